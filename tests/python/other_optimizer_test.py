"""Checkpoints that an engine cannot go on from: of another optimizer, of other groups, of parameters that were not trained then. And
what else an engine takes over from outside: buffers, groups and modules that come late."""

from __future__ import annotations

import copy
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from models import largest_difference
from ranks import main, run, whole


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


def engine_of(stage: int, model: nn.Module, optimizer: Any) -> Any:
    import deepspeed

    config = {"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0, "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def step(engine: Any, number: int = 0) -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * number + int(os.environ["RANK"])))
    engine.backward(engine(x).square().mean())
    engine.step()


def two_groups(kind: Any, model: nn.Module, **settings: Any) -> Any:
    return kind([{"params": list(model[0].parameters()), "lr": 1e-3}, {"params": list(model[2].parameters())}], lr=1e-2, **settings)


def swapped(kind: Any, model: nn.Module) -> Any:
    """The groups of two_groups, the other way round."""
    return kind([{"params": list(model[2].parameters())}, {"params": list(model[0].parameters()), "lr": 1e-3}], lr=1e-2)


def adamw(model: nn.Module) -> Any:
    return torch.optim.AdamW((param for param in model.parameters() if param.requires_grad), lr=1e-2)


def sgd(model: nn.Module) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.5)


def momentum(model: nn.Module) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def head_alone(model: nn.Module) -> Any:
    model[0].requires_grad_(False)
    return adamw(model)


# What it was saved with, what it is loaded with, what the refusal says.
PAIRS = {
    "thawed": (head_alone, adamw, "of ['0.weight', '0.bias'] (2 in all), which were not trained when it was saved"),
    "fewer groups": (lambda model: two_groups(torch.optim.AdamW, model), adamw, "settings of 2 groups of the optimizer, and this engine has 1"),
    "more groups": (adamw, lambda model: two_groups(torch.optim.AdamW, model), "settings of 1 groups of the optimizer, and this engine has 2"),
    "groups swapped": (lambda model: two_groups(torch.optim.AdamW, model), lambda model: swapped(torch.optim.AdamW, model), "0.weight is in group 0 of the optimizer"),
    "SGD into AdamW": (sgd, adamw, "was saved with another optimizer"),
    "AdamW into SGD": (adamw, sgd, "was saved with another optimizer"),
    "AdamW into momentum": (adamw, momentum, "was saved with another optimizer"),
    "momentum into SGD": (momentum, sgd, "it has momentum_buffer, which SGD does not keep"),
    "AdamW into amsgrad": (adamw, lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=True), "has no max_exp_avg_sq, which AdamW keeps"),
    "AdamW into RMSprop": (adamw, lambda model: torch.optim.RMSprop(model.parameters(), lr=1e-2), "was saved with another optimizer"),
    "RMSprop into NAdam": (lambda model: torch.optim.RMSprop(model.parameters(), lr=1e-2), lambda model: torch.optim.NAdam(model.parameters()), "was saved with another"),
}


def refusals(stage: int, folder: str, pairs: list[str]) -> dict[str, Any]:
    found = {}
    for name in pairs:
        before, after, _ = PAIRS[name]
        model = net()
        engine = engine_of(stage, model, before(model))
        for number in range(3):
            step(engine, number)
        engine.save_checkpoint(folder, tag="one")
        engine.destroy()
        model = net()
        engine = engine_of(stage, model, after(model))
        try:
            engine.load_checkpoint(folder, tag="one")
            found[name] = "loaded"
        except RuntimeError as error:
            found[name] = str(error)
        settings = copy.deepcopy([{**group, "params": 0} for group in engine.basic_optimizer.param_groups])
        engine.load_checkpoint(folder, tag="one", load_optimizer_states=False)
        found[f"{name}, anew"] = [engine.global_steps, engine.global_samples, engine._shoal.core.progress().applied_steps] + [
            settings == [{**group, "params": 0} for group in engine.basic_optimizer.param_groups]]
        step(engine)
        engine.load_checkpoint(folder, tag="one", load_module_only=True)
        found[f"{name}, module"] = engine.global_steps
        engine.destroy()
    return found


def test_a_checkpoint_that_an_engine_cannot_go_on_from_is_refused():
    for number, stage in enumerate((0, 2, 3)):
        pairs = list(PAIRS) if whole() else sorted({*list(PAIRS)[number::3], "groups swapped"})
        with tempfile.TemporaryDirectory() as folder:
            for found in run(__file__, "refusals", 2, stage=stage, folder=folder, pairs=pairs):
                for name in pairs:
                    words = PAIRS[name][2]
                    assert words in found[name] and "load_optimizer_states=False" in found[name], (stage, name, found[name])
                    assert found[f"{name}, anew"] == [3, 24, 0, True], (stage, name, found)
                    assert found[f"{name}, module"] == 4, (stage, name, found)


def swapped_in_shoal(folder: str, kind: str) -> list[str]:
    """What a save says, a load of the same groups, and one of groups the other way round."""
    import shoal

    kinds, said = getattr(torch.optim, kind), []
    settings = {"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0, "zero_optimization": {"stage": 2}}
    for number, way in enumerate((two_groups, two_groups, swapped)):
        model = net()
        engine = shoal.initialize(model, settings, optimizer=way(kinds, model))
        try:
            step(engine)
            engine.save(folder, 1) if number == 0 else engine.load(folder)
            said.append("")
        except RuntimeError as error:
            said.append(str(error))
        engine.destroy()
    return said


def test_the_package_shoal_refuses_groups_in_another_order_too():
    with tempfile.TemporaryDirectory() as folder:
        for saved, same, other in run(__file__, "swapped_in_shoal", 2, folder=folder, kind="NAdam"):
            assert saved == same == "", (saved, same)
            assert "0.weight was in group 0 of the optimizer when it was saved and is in group 1" in other, other


class WithEmpty(nn.Module):
    """Has a trained parameter of no elements."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8)
        self.extra = nn.Parameter(torch.empty(0, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.cat([x, self.extra]))


def empty_parameter(stage: int, folder: str) -> list:
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    engine = engine_of(stage, model := WithEmpty(), adamw(model))
    step(engine)
    engine.save_checkpoint(folder)
    step(engine, 1)
    wanted = engine._shoal.read_state("linear.weight", "weight").tolist()
    engine.destroy()
    engine = engine_of(stage, model := WithEmpty(), adamw(model))
    engine.load_checkpoint(folder)
    step(engine, 1)
    found = engine._shoal.read_state("linear.weight", "weight").tolist()
    engine.destroy()
    weights = get_fp32_state_dict_from_zero_checkpoint(folder) if stage > 0 else {"extra": torch.empty(0, 8)}
    return [found == wanted, tuple(weights["extra"].shape)]


def test_a_parameter_without_elements_is_saved_and_loaded():
    for stage in range(4):
        with tempfile.TemporaryDirectory() as folder:
            for same, shape in run(__file__, "empty_parameter", 2, stage=stage, folder=folder):
                assert same and tuple(shape) == (0, 8), (stage, same, shape)


def late_group(stage: int | None, kind: str, begins: int) -> Any:
    """The group of the first layer comes before step `begins`."""
    made = {"SGD": lambda params: torch.optim.SGD(params, lr=0.1), "AdamW": lambda params: torch.optim.AdamW(params, lr=0.01)}
    model = net()
    optimizer = made[kind](model[2].parameters())
    engine = engine_of(stage, model, optimizer) if stage is not None else None
    for number in range(4):
        if number == begins:
            optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 0.05})
        try:
            step(engine, number) if engine is not None else plain_step(model, optimizer, number)
        except RuntimeError as error:
            return str(error)
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        return torch.cat([param.detach().flatten() for param in model.parameters()]).tolist()


def plain_step(model: nn.Module, optimizer: Any, number: int) -> None:
    world = int(os.environ["WORLD_SIZE"])
    batches = [torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * number + rank)) for rank in range(world)]
    model.zero_grad()
    (sum(model(x).square().mean() for x in batches) / world).backward()
    optimizer.step()


def late_groups() -> dict[str, Any]:
    return {f"{kind} {begins} {stage}": late_group(stage, kind, begins) for kind in ("SGD", "AdamW") for begins in (0, 2) for stage in (None, 0, 2, 3)}


def test_a_group_that_comes_late_has_states_of_its_own_or_is_refused():
    for found in run(__file__, "late_groups", 2):
        for stage in (0, 2, 3):
            for case in ("SGD 0", "SGD 2", "AdamW 0"):
                assert largest_difference(found[f"{case} {stage}"], found[f"{case} None"]) < 1e-5, (case, stage)
            assert "a group was added to AdamW after the first step" in found[f"AdamW 2 {stage}"], found


class Features(nn.Module):
    def __init__(self, rank: int):
        super().__init__()
        self.body = nn.Linear(8, 8)
        draw = torch.Generator().manual_seed(100 + rank)
        self.register_buffer("random", torch.randn(8, 8, generator=draw))
        self.register_buffer("narrow", torch.randn(3, generator=draw).bfloat16(), persistent=False)
        self.register_buffer("number", torch.tensor(rank))
        self.register_buffer("empty", torch.empty(0))
        self.register_buffer("absent", None)
        if rank == 9:
            self.register_buffer("own", torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x @ self.random)


def buffers_of_ranks(stage: int) -> dict[str, Any]:
    rank = int(os.environ["RANK"])
    model = Features(rank)
    engine = engine_of(stage, model, sgd(model))
    facts = {"values": [model.random.tolist(), model.narrow.tolist(), model.number.item()]}
    step(engine)
    engine.destroy()
    odd = Features(9 * rank)
    try:
        engine_of(stage, odd, sgd(odd))
    except RuntimeError as error:
        facts["odd"] = str(error)
    return facts


def test_buffers_begin_as_rank_0s():
    for stage in (0, 3):
        ranks = run(__file__, "buffers_of_ranks", 3, stage=stage)
        first = Features(0)
        for facts in ranks:
            assert facts["values"] == [first.random.tolist(), first.narrow.tolist(), 0], stage
            assert "[initialize] rank 1 has a buffer own, and rank 0 has none" in facts["odd"], facts


def late_modules(stage: int) -> dict[str, list[str]]:
    ways = {
        "nothing": lambda model: None,
        "replaced": lambda model: setattr(model, "2", nn.Linear(8, 8)),
        "beside": lambda model: model.add_module("teacher", nn.Linear(8, 8)),
    }
    found = {}
    for name, way in ways.items():
        model = net()
        engine = engine_of(stage, model, sgd(model))
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            for number in range(3):
                if number == 1:
                    way(model)
                engine.backward(model[2](model[0](torch.ones(4, 8))).sum())
                engine.step()
        found[name] = [str(each.message) for each in heard if "after initialize" in str(each.message)]
        engine.destroy()
    return found


def test_parameters_that_come_after_initialize_are_told_of():
    for stage in (0, 3):
        for found in run(__file__, "late_modules", 2, stage=stage):
            assert found["nothing"] == found["beside"] == [], found
            assert len(found["replaced"]) == 1 and "[step] 2.weight came into the model" in found["replaced"][0], found


if __name__ == "__main__":
    main(globals(), imports=("shoal",))
