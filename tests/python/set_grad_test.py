"""safe_set_full_grad and its kin: the norm, the clipping and the update of a step are of the gradients that were set."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from models import Net, largest_difference, tokens
from ranks import main, run

STEPS, MICRO_STEPS, RATE = 3, 2, 1e-2


def fresh() -> Net:
    torch.manual_seed(0)
    model = Net(depth=2)
    with torch.no_grad():
        model.embedding.weight.mul_(0.1)  # losses of a few units, which fp32 tells apart at 1e-6
    return model


def config(stage: int, **others) -> dict:
    return {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": MICRO_STEPS,
        "gradient_clipping": 0.5,
        "optimizer": {"type": "AdamW", "params": {"lr": RATE, "weight_decay": 0.01}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 20},  # vectors stay whole
        **others,
    }


def changed(grad: torch.Tensor, dim: int) -> torch.Tensor:
    """What the tests set: matrices turned round and made larger, the rest halved."""
    return -3.0 * grad if dim > 1 else 0.5 * grad


def plain(world: int, rank: int, make) -> list[float]:
    model = fresh()
    optimizer = make(model.parameters())
    numbers = []
    for step in range(STEPS):
        for micro in range(MICRO_STEPS):
            losses = [model(tokens(2 * step + micro, other)) for other in range(world)]
            (sum(losses) / world / MICRO_STEPS).backward()
            numbers.append(losses[rank].item())
        for param in model.parameters():
            param.grad = changed(param.grad, param.dim())
        numbers.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
        optimizer.step()
        optimizer.zero_grad()
    return numbers


def set_all(model: torch.nn.Module) -> None:
    """Each kind of parameter by another door."""
    from deepspeed import utils

    named = dict(model.named_parameters())
    at_once = [param for name, param in named.items() if name.endswith("bias")]
    utils.safe_update_full_grad_vectorized(at_once, lambda grad, param: changed(grad, param.dim()))
    for name, param in named.items():
        if name.endswith("bias"):
            continue
        if ".down." in name:
            utils.safe_set_local_grad(param, changed(utils.safe_get_local_grad(param), param.dim()))
            continue
        value = changed(utils.safe_get_full_grad(param), param.dim())
        utils.safe_set_full_grad(param, value)
        assert torch.equal(utils.safe_get_full_grad(param), value), name


def train(stage: int, make=None, **others) -> list[float]:
    import deepspeed

    model = fresh()
    optimizer = make(model.parameters()) if make else None
    asked = config(stage, **others)
    if make:
        del asked["optimizer"]
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=asked)[0]
    numbers = []
    for step in range(STEPS):
        for micro in range(MICRO_STEPS):
            loss = engine(tokens(2 * step + micro, int(os.environ["RANK"])))
            engine.backward(loss)
            if micro + 1 == MICRO_STEPS:
                set_all(model)
            engine.step()
            numbers.append(loss.item())
        numbers.append(float(engine.get_global_grad_norm()))
    engine.destroy()
    return numbers


def adamw(params) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=RATE, weight_decay=0.01)


def rmsprop(params) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(params, lr=1e-3, eps=1e-4)


def everywhere(disk: str) -> dict:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_disk = config(2)["zero_optimization"] | {"offload_optimizer": {"device": "nvme", "nvme_path": disk}}
    return {
        "engine": [
            *(train(stage) for stage in range(4)),
            train(3, shoal={"defer_update": "on"}),
            train(2, zero_optimization=on_disk),
        ],
        "client": [train(stage, rmsprop) for stage in (0, 1, 3)],
        "plain engine": plain(world, rank, adamw),
        "plain client": plain(world, rank, rmsprop),
    }


def test_the_step_is_of_what_was_set_at_every_stage():
    os.environ["SHOAL_REPRODUCIBLE"] = "1"
    for world in (1, 2, 3):
        with tempfile.TemporaryDirectory() as disk:
            results = run(__file__, "everywhere", world, disk=disk)
        for rank, found in enumerate(results):
            for kind in ("engine", "client"):
                assert all(numbers == found[kind][0] for numbers in found[kind]), (kind, world, rank, found[kind])
                difference = largest_difference(found[kind][0], found[f"plain {kind}"])
                assert difference < 1e-5, (kind, world, rank, difference, found[kind][0], found[f"plain {kind}"])


def set_back(stage: int, precision: str) -> list[list[float]]:
    """Losses with gradients read and set again as they were, and without."""
    import deepspeed
    from deepspeed import utils

    runs = []
    for sets in (True, False):
        scale = {"initial_scale_power": 7} if precision == "fp16" else {}
        asked = config(stage, **({precision: {"enabled": True, **scale}} if precision != "fp32" else {}))
        model = fresh()
        engine = deepspeed.initialize(model=model, config=asked | {"gradient_accumulation_steps": 1})[0]
        numbers = []
        for step in range(STEPS):
            loss = engine(tokens(step, int(os.environ["RANK"])))
            engine.backward(loss)
            for param in model.parameters() if sets else []:
                utils.safe_set_full_grad(param, utils.safe_get_full_grad(param))
            engine.step()
            numbers += [loss.item(), float(engine.get_global_grad_norm())]
        engine.destroy()
        runs.append(numbers)
    return runs


def set_back_everywhere() -> dict:
    return {f"{precision}, {stage}": set_back(stage, precision) for precision in ("fp32", "bf16", "fp16") for stage in range(4)}


def test_setting_what_was_read_changes_no_bit():
    for found in run(__file__, "set_back_everywhere", 2):
        for place, (with_it, without) in found.items():
            assert with_it == without, (place, with_it, without)


def refusals(stage: int) -> dict:
    import deepspeed
    from deepspeed import utils
    from shoal import state

    def message(call) -> str:
        try:
            call()
        except deepspeed.api.Error as error:
            return str(error)
        return ""

    model = fresh()
    model.norm.bias.requires_grad_(False)
    weight = model.blocks[0].up.weight
    engine = deepspeed.initialize(model=model, config=config(stage))[0]
    rank = int(os.environ["RANK"])
    found = {"too early": message(lambda: utils.safe_set_full_grad(weight, torch.zeros(weight.shape)))}
    engine.backward(engine(tokens(0, rank)))
    found["inside a step"] = message(lambda: utils.safe_set_full_grad(weight, torch.zeros(weight.shape)))
    engine.step()
    engine.backward(engine(tokens(1, rank)))
    utils.safe_set_full_grad(model.norm.bias, torch.zeros(16))  # as with DeepSpeed, nothing
    found["frozen"] = message(lambda: state.write_grad(model.norm.bias, torch.zeros(16)))
    found["misshapen"] = message(lambda: utils.safe_set_full_grad(weight, torch.zeros(7)))
    utils.safe_set_full_grad(weight, torch.full(weight.shape, float("inf")))
    engine.step()
    found["skipped"] = [engine.skipped_steps, engine.global_steps]
    found["too late"] = message(lambda: utils.safe_set_full_grad(weight, torch.zeros(weight.shape)))
    engine.destroy()
    lone = torch.nn.Linear(2, 2)
    lone(torch.ones(1, 2)).sum().backward()
    utils.safe_set_full_grad(lone.weight, torch.full((2, 2), 3.0))
    found["of no engine"] = [lone.weight.grad.tolist(), message(lambda: utils.safe_set_full_grad(torch.nn.Linear(1, 1).weight, torch.zeros(1, 1)))]
    return found


def test_gradients_are_set_between_the_last_backward_and_step():
    for stage in (0, 3):
        for found in run(__file__, "refusals", 2, stage=stage):
            for when in ("too early", "inside a step", "too late"):
                assert "complete after the backward that ends a step" in found[when], (when, found)
            assert "frozen" in found["frozen"] and "7 elements" in found["misshapen"], found
            assert found["skipped"] == [1, 1], "a gradient that is not finite is an overflow, also one that was set"
            assert found["of no engine"][0] == [[3.0, 3.0], [3.0, 3.0]] and "initialize" in found["of no engine"][1], found


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))
