"""One rank of tools/against_deepspeed/trainers.py, under either package: calls a function of tests/python once a stage and
writes a line of JSON after each. The first that fails ends the rank, since the others may wait for it."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from unittest import mock

import torch

LIMIT_SECONDS = 300  # a stage


def accelerate_launch(stage: int) -> dict:
    import hf_saving_test
    from hf_runs import ds_config

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.json")
        path.write_text(json.dumps(ds_config(stage) | {"train_micro_batch_size_per_gpu": 2}))
        return hf_saving_test.launch(folder, "result", "--use_deepspeed", "--deepspeed_config_file", str(path))


def resume_same(folder: str, stage: int) -> list[float]:
    """What hf_saving_test.save_half saved, on as many ranks."""
    from hf_runs import ds_config, make_trainer, numbers_of

    trainer = make_trainer("gpt2", folder, ds_config(stage), max_steps=4)
    trainer.train(resume_from_checkpoint=os.path.join(folder, "checkpoint-2"))
    return numbers_of(trainer)


def of_the_loop(name: str, stage: int, **arguments: object) -> object:
    """A function of the plain loop's test, less what the real package refuses (two sections, a parameter of no dimension) or
    does not have (at stage 0, `overflow` of the plain optimizer that it returns)."""
    import deepspeed_loop_test as test

    whole, net = test.config, test.Net

    def config(stage: int, **others: object) -> dict:
        return {key: value for key, value in whole(stage, **others).items() if key not in ("amp", "sparse_gradients")}

    def with_dimension() -> torch.nn.Module:
        model = net()
        model.scale = torch.nn.Parameter(model.scale.detach().reshape(1))
        return model

    torch.manual_seed(0)
    torch.optim.Optimizer.overflow = False
    with mock.patch.multiple(test, config=config, Net=with_dimension):
        return getattr(test, name)(stage=stage, **arguments)


class Experts(torch.nn.Module):
    """Each expert a module of its own, as before transformers 5."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))
        self.head = torch.nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, expert: int) -> torch.Tensor:
        return self.head(x + self.experts[expert](x)).square().mean()


def an_expert_a_rank(stage: int) -> list[float]:
    import deepspeed

    torch.manual_seed(0)
    optimizer = {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}}
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": optimizer,
              "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}
    engine, *_ = deepspeed.initialize(model=Experts(), config=config)
    rank, losses = int(os.environ["RANK"]), []
    for step in range(4):
        loss = engine(torch.full((2, 8), step + rank + 1.0), rank)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    job = json.loads(sys.argv[1])
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "python"))
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        import deepspeed

        deepspeed.init_distributed("gloo")  # or zero.Init of the real package sees one rank, and refuses the batch
    function = getattr(importlib.import_module(job["file"]), job["name"])
    with open(f"{job['out']}.rank{os.environ.get('RANK', 0)}", "w", buffering=1) as out:
        for stage in job["stages"]:
            given = job["arguments"].items()
            arguments = {key: value.format(stage=stage) if isinstance(value, str) else value for key, value in given}
            signal.alarm(LIMIT_SECONDS)  # ends the process, wherever it waits
            try:
                print(json.dumps({"value": function(stage=stage, **arguments)}, default=float), file=out)
            except Exception as error:  # noqa: BLE001
                traceback.print_exc()
                print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), file=out)
                out.flush()
                os._exit(1)


if __name__ == "__main__":
    main()
