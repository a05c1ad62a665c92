"""Loops that people write: a backward of autograd's own, several backwards before a step, and errors that the caller survives."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent))
from models import largest_difference
from ranks import main, message, run

WIDTH = 8
STEPS = 2


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.bias = nn.Parameter(torch.zeros(WIDTH))
        self.fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + torch.tanh(block(x))
            if self.fails and block is self.blocks[1]:
                x.register_hook(_fail)
        return (x + self.bias).square().mean()


def _fail(grad: torch.Tensor) -> None:
    raise ValueError("made to fail")


def batch(step: int, rank: int) -> torch.Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))


def make(stage: int, accumulation: int, **more: object) -> tuple:
    import deepspeed

    torch.manual_seed(0)
    model = Model()
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 0,
        "optimizer": {"type": "SGD", "params": {"lr": 0.5}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
    } | more
    return deepspeed.initialize(model=model, config=config)[0], model


def weights(model: nn.Module) -> list[float]:
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        return torch.cat([param.detach().flatten().float() for param in model.parameters()]).tolist()


def plain(backwards: int, divisor: int) -> list[float]:
    """SGD on the mean over ranks of the sum of so many losses, divided."""
    world = int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(STEPS):
        for micro in range(backwards):
            for rank in range(world):
                (model(batch(step * backwards + micro, rank)) / (world * divisor)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


def from_outside(stage: int, how: str) -> list[float]:
    rank = int(os.environ["RANK"])
    # A loss scale that is a power of two changes no bit of what fp32 would give; fp16 itself rounds.
    fp16 = {"fp16": {"enabled": True, "loss_scale": 16}} if how == "scaled fp16" else {}
    engine, model = make(stage, 4, **fp16)
    for step in range(STEPS * 4):
        x = batch(step, rank)
        loss = engine(x.half() if fp16 else x)
        if how == "engine":
            engine.backward(loss)
        elif how == "loss":
            loss.backward()
        else:
            engine.scale(loss).backward()
        engine.step()
    found = weights(model)
    if fp16:
        engine.scale(engine(batch(0, rank).half()))  # and not used: what comes next is not scaled by it
        for _ in range(4):
            engine.backward(engine(batch(0, rank).half()))
            engine.step()
        said = message(lambda: engine(batch(0, rank).half()).backward())
        assert "does not know the loss scale" in said, said
    engine.destroy()
    return found


def all_from_outside(stages: list[int]) -> dict:
    ways = ("engine", "loss", "scaled", "scaled fp16")
    return {"plain": plain(4, 4)} | {f"{how} {stage}": from_outside(stage, how) for stage in stages for how in ways}


def test_a_backward_of_autograds_own_is_divided_by_the_accumulation_steps():
    for found in run(__file__, "all_from_outside", 2, stages=[0, 1, 2, 3]):
        wanted = found.pop("plain")
        for how, values in found.items():
            # Of fp16: a weight moves by about 0.1, in gradients of 11 bits. A factor of 4 would be an error of 0.1.
            assert largest_difference(values, wanted) < (2e-3 if "fp16" in how else 1e-6), (how, largest_difference(values, wanted))


def several(stage: int, how: str, accumulation: int) -> list[float]:
    """Three backwards before each call of step(), of which every accumulation-th ends a step, as DeepSpeed counts."""
    rank = int(os.environ["RANK"])
    engine, model = make(stage, accumulation, **({"managed_gradient_accumulation": False} if how == "unmanaged" else {}))
    for step in range(STEPS * accumulation):
        for micro in range(3):
            def back() -> None:
                engine.backward(engine(batch(3 * step + micro, rank)))

            if how == "no_sync" and micro < 2:
                with engine.no_sync():
                    back()
            elif how == "boundary":
                engine.set_gradient_accumulation_boundary(micro == 2)
                back()
            elif how == "coalesced":
                with engine.coalesce_grad_reduction():
                    assert "coalesce_grad_reduction" in message(engine.step)
                    back()
            else:
                back()
        held = engine._shoal.memory()
        assert held.held.gradients == held.planned.gradients, (how, held.held.gradients, held.planned.gradients)
        assert how == "unmanaged" or engine.is_gradient_accumulation_boundary() == ((step + 1) % accumulation == 0)
        engine.step()
        assert engine.global_steps == (step + 1) // accumulation, (how, engine.global_steps)
    assert engine.global_samples == 4 * int(os.environ["WORLD_SIZE"]) * STEPS * (3 if how == "unmanaged" else accumulation)
    found = weights(model)
    engine.destroy()
    return found


def all_several(stages: list[int]) -> dict:
    found = {"plain 1": plain(3, 1), "plain 2": plain(6, 2)}
    for stage in stages:
        for how in ("in a row", "no_sync", "boundary", "unmanaged") + (("coalesced",) if stage > 0 else ()):
            for accumulation in (1, 2):
                if how == "in a row" or accumulation == 1:
                    found[f"{how} {stage} {accumulation}"] = several(stage, how, accumulation)
    return found


def test_several_backwards_before_a_step_add_up():
    for world in (2, 3):
        for found in run(__file__, "all_several", world, stages=[0, 1, 2, 3]):
            wanted = {accumulation: found.pop(f"plain {accumulation}") for accumulation in ("1", "2")}
            for how, values in found.items():
                difference = largest_difference(values, wanted[how[-1]])
                assert difference < 1e-6, (how, world, difference)


def after_errors(stage: int) -> list[str]:
    """What each door says after a backward that failed, and after an evaluation that could not begin."""
    rank = int(os.environ["RANK"])
    said = []
    for own in (False, True):
        engine, model = make(stage, 1)
        engine.backward(engine(batch(0, rank)))
        engine.step()
        model.fails = True
        loss = engine(batch(1, rank))
        try:
            loss.backward() if own else engine.backward(loss)
            raise AssertionError("the backward did not fail")
        except ValueError as error:
            assert "made to fail" in str(error)
        model.fails = False
        said.append(message(lambda: engine(batch(2, rank))))
        said.append(message(lambda: engine.backward(loss)))
        said.append(message(engine.step))
        said.append(message(lambda: model(batch(2, rank))))
        with torch.no_grad():
            said.append(message(lambda: engine(batch(2, rank))))
        said.append(message(lambda: engine.save_checkpoint("/nowhere")))
        engine.destroy()
    engine, model = make(stage, 1)
    engine.backward(engine(batch(0, rank)))
    engine.step()
    for param in (model.blocks[0].weight, model.bias):  # of a unit inside, which is left in order, and of the outermost
        mine = param.data
        param.data = torch.zeros_like(mine)
        with torch.no_grad():
            assert "was replaced, moved or cast" in message(lambda: engine(batch(1, rank)))
        param.data = mine
        said.append(message(lambda: engine.backward(engine(batch(1, rank)))))
        if said[-1] == "nothing was raised":
            engine.step()
            said[-1] = f"norm {engine.get_global_grad_norm()}"
    engine.destroy()
    engine, model = make(stage, 1)
    for step in range(2):
        engine.backward(engine(batch(step, rank)))
        engine.step()
    said.append(f"norm {engine.get_global_grad_norm()}")
    engine.destroy()
    return said


def test_an_engine_that_failed_half_way_refuses_to_go_on():
    for stage in range(4):
        for said in run(__file__, "after_errors", 2, stage=stage):
            *after_backward, inner, outermost, undisturbed = said
            assert all("earlier backward failed half-way" in each for each in after_backward), (stage, said)
            assert inner == undisturbed, (stage, inner, undisturbed)
            assert "an evaluation could not begin" in outermost, (stage, said)
            assert all("Destroy the engine and resume from a checkpoint." in each for each in [*after_backward, outermost])


class Regions(Model):
    """Every block in a re-entrant region. kind: what the forward returns, or what the regions are like."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor | None:
        x = x + self.bias
        if self.kind == "nested":
            for block in self.blocks:
                x = checkpoint(self.around, block, x, use_reentrant=True)
        else:
            for block in self.blocks:
                x = x + torch.tanh(checkpoint(block, x, use_reentrant=True))
        self.loss = x.square().mean()
        return None if self.kind == "returns None" else self.loss

    def around(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        """A region whose last part is a region of the same block."""
        return checkpoint(block, torch.tanh(block(x)), use_reentrant=True)


def regions(kind: str, stage: int | None) -> list[float]:
    import deepspeed

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    model = Regions(kind)
    if stage is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for step in range(STEPS):
            for micro in range(2):
                for other in range(world):
                    model(batch(2 * step + micro, other))
                    (model.loss / (2 * world)).backward()
            optimizer.step()
            optimizer.zero_grad()
        return weights(model)
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 0,
        "optimizer": {"type": "SGD", "params": {"lr": 0.5}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
    }
    engine = deepspeed.initialize(model=model, config=config)[0]
    for step in range(STEPS * 2):
        engine(batch(step, rank))
        model.loss.backward()
        engine.step()
        assert engine.global_steps == (step + 1) // 2, (kind, stage, engine.global_steps)
    found = weights(model)
    engine.destroy()
    return found


def all_regions(kinds: list[str]) -> dict:
    return {f"{kind} {stage}": regions(kind, stage) for kind in kinds for stage in (None, 0, 1, 2, 3)}


def test_a_backward_of_autograds_own_through_regions_is_one_backward():
    kinds = ["returns its loss", "returns None", "nested"]
    for found in run(__file__, "all_regions", 2, kinds=kinds):
        for kind in kinds:
            for stage in range(4):
                difference = largest_difference(found[f"{kind} {stage}"], found[f"{kind} None"])
                assert difference < 1e-6, (kind, stage, difference)


class Interrupted(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fails:
            self.blocks[0](x)
            raise KeyboardInterrupt
        return super().forward(x)


def interrupted(stage: int) -> list[float]:
    """Ctrl-C in an evaluation and in a forward, in a notebook that goes on. One rank: on several, all would have to be."""
    import deepspeed

    found = []
    for interrupts in (True, False):
        torch.manual_seed(0)
        model = Interrupted()
        config = {"train_batch_size": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.5}},
                  "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}  # fmt: skip
        engine = deepspeed.initialize(model=model, config=config)[0]
        for step in range(4):
            for graph in (False, True) if interrupts else ():
                model.fails = True
                with torch.set_grad_enabled(graph), contextlib.suppress(KeyboardInterrupt):
                    engine(batch(step, 7))
                model.fails = False
            engine.backward(engine(batch(step, 0)))
            engine.step()
        found.append(weights(model))
        engine.destroy()
    assert found[0] == found[1], (stage, largest_difference(*found))
    return found[0]


def test_training_goes_on_after_an_interrupt_in_forward():
    for stage in range(4):
        run(__file__, "interrupted", 1, stage=stage)


def aside_loss(how: str, call: object, x: torch.Tensor) -> torch.Tensor:
    """A loss on whose way torch.autograd.grad runs through the model."""
    x = x.clone().requires_grad_(True)
    loss = call(x)
    if how == "penalty":
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        return loss + slope.square().sum()
    (slope,) = torch.autograd.grad(loss, x)  # an attack: the loss of another input
    return call((x + 0.1 * slope.sign()).detach())


def asides(how: str, stage: int | None, door: str) -> list[float]:
    import shoal

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    if stage is None:
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    elif door == "deepspeed":
        engine, model = make(stage, 2)
    else:
        model = Model()
        config = {
            "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 0,
            "optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "zero_optimization": {"stage": stage},
        }  # fmt: skip
        engine = shoal.initialize(model, config)
    for micro in range(2 * STEPS):
        if stage is not None:
            engine.backward(aside_loss(how, engine, batch(micro, rank)))
            engine.step()
            continue
        for other in range(world):
            (aside_loss(how, model, batch(micro, other)) / (2 * world)).backward()
        if micro % 2 == 1:
            optimizer.step()
            optimizer.zero_grad()
    numbers = weights(model)
    if stage is not None:
        engine.destroy()
    return numbers


def all_asides() -> dict:
    found = {
        how: [asides(how, stage, door) for stage in (0, 1, 2) for door in ("deepspeed", "shoal")] + [asides(how, None, "")]
        for how in ("penalty", "attack")
    }
    for how in ("penalty", "attack"):
        engine = make(3, 1)[0]
        found[f"{how} at stage 3"] = message(lambda: aside_loss(how, engine, batch(0, int(os.environ["RANK"]))))
    return found


def test_autograd_grad_through_the_model_is_no_backward_of_the_step():
    for found in run(__file__, "all_asides", 2):
        for how in ("penalty", "attack"):
            *engines, expected = found[how]
            for index, numbers in enumerate(engines):
                difference = largest_difference(numbers, expected)
                assert difference < 1e-5, (how, index, difference)
            assert "[backward] torch.autograd.grad, or a backward with inputs=, runs" in found[f"{how} at stage 3"], found


def with_forward_before_step(stage: int, how: str, accumulation: int) -> list[float]:
    """Between the backward that ends a step and the step: a forward with gradients on that nobody back-propagates."""
    rank = int(os.environ["RANK"])
    engine, model = make(stage, accumulation)
    for step in range(STEPS * accumulation):
        engine.backward(engine(batch(step, rank)))
        if how == "evaluated":
            engine.eval()
            engine(batch(77, rank))
            engine.train()
        elif how == "of the module":
            engine.module(batch(77, rank))
        elif how == "on one rank" and rank == 0:
            engine(batch(77, rank))
        engine.step()
    found = weights(model)
    engine.destroy()
    return found


def all_with_forward_before_step() -> dict:
    ways = [("evaluated", 1), ("evaluated", 2), ("of the module", 1), ("on one rank", 1)]
    return {f"plain {n}": plain(n, n) for n in (1, 2)} | {
        f"{how} at {stage} plain {n}": with_forward_before_step(stage, how, n)
        for stage in range(4) for how, n in ways if stage < 3 or how != "on one rank"
    }  # fmt: skip


def test_a_forward_between_backward_and_step_changes_nothing():
    for found in run(__file__, "all_with_forward_before_step", 2):
        for how, values in found.items():
            assert largest_difference(values, found[how[how.index("plain"):]]) < 1e-6, how


def backward_after_the_step(stage: int, another_first: bool) -> str:
    """The forward ran before the step that changed its weights."""
    rank = int(os.environ["RANK"])
    engine, _ = make(stage, 1)
    engine.backward(engine(batch(0, rank)))
    loss = engine(batch(1, rank))
    engine.step()
    if another_first:
        engine(batch(2, rank))
    said = message(lambda: engine.backward(loss))
    engine.destroy()
    return said


def all_backwards_after_the_step() -> dict:
    return {f"{stage} {first}": backward_after_the_step(stage, first) for stage in range(4) for first in (False, True)}


def test_a_backward_through_weights_that_a_step_has_changed_is_refused():
    for found in run(__file__, "all_backwards_after_the_step", 2):
        for how, said in found.items():
            wanted = "comes to a graph whose pass is over" if "True" in how else "no forward of the model has run since"
            assert wanted in said, (how, said)


if __name__ == "__main__":
    main(globals())
