"""Hugging Face's Trainer at several numbers of CPU ranks: with one global batch and one micro-batch, the same bits."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from hf_runs import LENGTH, Samples, ds_config, main_with_models, make_trainer
from ranks import run

MICRO_BATCH, STEPS = 2, 4
EPOCH = 2  # steps: the samples are shuffled again on the way


class Padded(Samples):
    """Samples of 3 to 16 tokens; the labels of what pads them are -100."""

    def __getitem__(self, index: int) -> dict:
        sample = super().__getitem__(index)
        sample["labels"][3 + 5 * index % (LENGTH - 2) :] = -100
        return sample


def from_the_guide(heading: str) -> dict:
    """What the Python of a section of docs/huggingface.md defines."""
    text = (Path(__file__).parents[2] / "docs" / "huggingface.md").read_text()
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    names: dict = {}
    for block in section.split("```python\n")[1:]:
        exec(block.partition("```")[0], names)
    return names


def digest(model: torch.nn.Module) -> str:
    import deepspeed

    found = hashlib.sha256()
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        for name, param in model.named_parameters():
            found.update(name.encode() + param.detach().float().numpy().tobytes())
    return found.hexdigest()


def train(kind: str, stage: int, leaves: int = 4, dropout: float = 0, padded: bool = False, by_leaf: bool = False, zero: dict | None = None,
          **options) -> dict:  # fmt: skip
    """Losses of this rank's leaves, losses and norms that the Trainer logged, and a digest of the weights at the end.
    by_leaf: with the guide's own trainer."""
    guide = from_the_guide("The same bits at 1, 2 and 4 ranks")
    config = ds_config(stage)
    config["zero_optimization"] |= zero or {}
    config["fp16"] |= {"initial_scale_power": 19, "hysteresis": 1}  # the first steps overflow
    if dropout > 0:
        config["shoal"] = {"leaf_seed": 42}
    accumulation = leaves // int(os.environ["WORLD_SIZE"])
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(kind, folder, config, batch=MICRO_BATCH, max_steps=STEPS,
                               gradient_accumulation_steps=accumulation, **options)  # fmt: skip
        if by_leaf:
            trainer.__class__ = guide["ByLeaf"]
        trainer.train_dataset, trainer.eval_dataset = (
            (Padded if padded else Samples)(kind, count * leaves * MICRO_BATCH, seed) for seed, count in enumerate((EPOCH, 1))
        )
        trainer.add_callback(guide["ExactLosses"](trainer))
        for module in trainer.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = dropout
        losses: list[float] = []
        trainer.model.register_forward_hook(lambda module, args, out: losses.append(out.loss.item()) if module.training else None)
        trainer.train()
        evaluation = trainer.evaluate()["eval_loss"]
        logged = [entry for entry in trainer.state.log_history if "loss" in entry]
        return {
            "leaves": losses,
            "losses": [entry["loss"] for entry in logged],
            "norms": [str(entry["grad_norm"]) for entry in logged],  # nan where a step was skipped
            "evaluation": evaluation,
            "weights": digest(trainer.model),
        }


def train_all(cases: list[dict]) -> list[dict]:
    return [train(**case) for case in cases]


def at_ranks(ranks: int, cases: list[dict]) -> list[dict]:
    """Of each case: the losses of leaves in the order of leaves, and the rest as all ranks have it."""
    joined = []
    for of_ranks in zip(*run(__file__, "train_all", ranks, cases=cases)):
        leaves = [loss for dealt in zip(*(each.pop("leaves") for each in of_ranks)) for loss in dealt]
        for each in of_ranks:
            assert each["weights"] == of_ranks[0]["weights"] and each["norms"] == of_ranks[0]["norms"], of_ranks
        joined.append(of_ranks[0] | {"leaves": leaves})
    return joined


def compare(case: dict, one: dict, other: dict, ranks: int, *but: str) -> None:
    for what in one.keys() - set(but):
        assert one[what] == other[what], f"{case}: {what} at 1 and at {ranks} ranks:\n{one[what]}\n{other[what]}"


def test_one_two_and_four_ranks():
    by_tokens = {"kind": "gpt2", "stage": 2, "padded": True}
    cases = [
        {"kind": "gpt2", "stage": 2},
        {"kind": "llama", "stage": 3},
        {"kind": "gpt2", "stage": 3, "dropout": 0.1},
        by_tokens,
        by_tokens | {"average_tokens_across_devices": False},
    ]
    at_one = at_ranks(1, cases)
    assert len(at_one[0]["leaves"]) == 4 * STEPS and len(at_one[0]["losses"]) == STEPS, at_one[0]
    assert len({one["weights"] for one in at_one[:4]}) == 4 and at_one[3] == at_one[4], "each case is a run of its own"
    at_two, at_four = at_ranks(2, cases), at_ranks(4, cases[:4])
    for ranks, at_more in ((2, at_two), (4, at_four)):
        for case, one, more in zip(cases[:4], at_one, at_more):
            compare(case, one, more, ranks, *(["evaluation"] if case.get("padded") else []))
    for what, one, two in (
        ("each rank divides by its own tokens", at_one[4]["losses"][0], at_two[4]["losses"][0]),
        ("an evaluation divides by the tokens of all ranks' batches at hand", at_one[3]["evaluation"], at_two[3]["evaluation"]),
    ):
        assert abs(one - two) > 1e-3, f"the guide says that {what}: {one} {two}"


def test_what_travels_in_few_bits():
    """Int8 weights at 2 ranks and at 4 with second copies; int4 sums of two hosts at stages 2 and 3."""
    int8 = {"kind": "llama", "stage": 3, "zero": {"zero_quantized_weights": True}}
    int4 = {"kind": "llama", "stage": 2, "zero": {"zero_quantized_gradients": True}}
    (weights,) = at_ranks(2, [int8])
    os.environ["SHOAL_HOSTS"] = "a,a,b,b"
    second, sums, sharded = at_ranks(4, [int8 | {"zero": int8["zero"] | {"zero_hpz_partition_size": 2}}, int4, int4 | {"stage": 3}])
    del os.environ["SHOAL_HOSTS"]
    compare(int8, weights, second, 4)
    compare(int4, sums, sharded, 4)
    assert sums["weights"] != second["weights"]


def test_a_number_of_ranks_that_is_no_power_of_two():
    cases = [
        {"kind": "llama-fp16", "stage": 2, "leaves": 6, "padded": True, "fp16": True, "by_leaf": True},
        {"kind": "gpt2", "stage": 3, "leaves": 6},
    ]
    (one, plain), (three, plain_at_three) = at_ranks(1, cases), at_ranks(3, cases)
    assert "nan" in one["norms"][0] and "nan" not in one["norms"][-1], one["norms"]
    compare(cases[0], one, three, 3, "losses", "evaluation")
    assert plain["weights"] != plain_at_three["weights"], "the guide says that the Trainer's own factor rounds"


if __name__ == "__main__":
    main_with_models(globals(), "gpt2", "llama", "llama-fp16")
