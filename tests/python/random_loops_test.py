"""Loops that nobody thought of: sequences of what an engine can be asked for, made up by a seed, against plain torch. With
SHOAL_TEST_SIZE=whole many more; SHOAL_SEED=7 runs the loops of that seed alone and prints what they do."""

from __future__ import annotations

import copy
import os
import random
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from models import largest_difference
from ranks import main, run, whole

WIDTH = 8
LENGTH = 24  # parts of a loop
BEFORE = ("nothing", "nothing", "dropped forward", "evaluation", "graph in evaluation mode", "failed forward")
LOSSES = ("one", "one", "two forwards", "twice the output", "of the module")
BACKWARDS = ("engine", "engine", "loss", "scaled")
BETWEEN = ("nothing", "nothing", "evaluation", "dropped forward", "zero_grad", "drop", "save", "read")
AFTER = ("nothing", "nothing", "edit", "rate", "load", "dropped forward", "state dict", "move")


RATE = 0.2
CLIP = (0.0, 0.3)


def optimizer_of(seed: int, model: nn.Module) -> torch.optim.Optimizer:
    """Of each kind that there is: two that the engine has itself, one of torch. eps: no element moves by the sign of its gradient."""
    if seed % 4 == 1:
        return torch.optim.AdamW(model.parameters(), lr=RATE / 10, eps=0.1, weight_decay=0.05)
    return torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9 if seed % 4 == 3 else 0, nesterov=seed % 4 == 3)


def config_of(seed: int) -> dict:
    """With no section for the optimizer where torch's runs on the shards."""
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": seed % 3 + 1, "gradient_clipping": CLIP[seed % 2]}
    if seed % 4 == 1:
        return config | {"optimizer": {"type": "AdamW", "params": {"lr": RATE / 10, "eps": 0.1, "weight_decay": 0.05}}}
    return config if seed % 4 == 3 else config | {"optimizer": {"type": "SGD", "params": {"lr": RATE}}}


class Model(nn.Module):
    """Members called by the parent, a tied weight, one of the root itself."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(nn.ModuleDict({"norm": nn.LayerNorm(WIDTH), "up": nn.Linear(WIDTH, WIDTH)}) for _ in range(2))
        self.leave = nn.Linear(WIDTH, WIDTH)
        self.leave.weight = self.enter.weight
        self.bias = nn.Parameter(torch.zeros(WIDTH))
        self.fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.enter(x))
        for block in self.blocks:
            x = x + torch.tanh(block["up"](block["norm"](x)))
            if self.fails:
                raise ValueError("made to fail")
        return self.leave(x) + self.bias


def batch(number: int, rank: int) -> torch.Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(1000 * number + rank))


def made_up(seed: int) -> list[dict]:
    """Of each micro-step: what comes before its forward, its loss, its backward, what comes before step() and after."""
    draw = random.Random(seed)
    ways = {"before": BEFORE, "loss": LOSSES, "backward": BACKWARDS, "between": BETWEEN, "after": AFTER}
    return [{part: draw.choice(choices) for part, choices in ways.items()} for _ in range(LENGTH)]


class Plain:
    """The same loop over the samples of all ranks, by autograd and torch's optimizer."""

    def __init__(self, seed: int):
        torch.manual_seed(0)
        self.model, self.clip = Model(), CLIP[seed % 2]
        self.accumulation = config_of(seed)["gradient_accumulation_steps"]
        self.optimizer = optimizer_of(seed, self.model)
        self.saved: tuple[dict, dict] | None = None
        self.drop()

    def drop(self) -> None:
        self.count = 0
        for param in self.model.parameters():
            param.grad = torch.zeros_like(param)

    def micro_step(self, number: int, how: dict) -> None:
        world = int(os.environ["WORLD_SIZE"])
        losses = [loss_of(self.model, self.model, how["loss"], number, rank) for rank in range(world)]
        (sum(losses) / world / self.accumulation).backward()
        self.count += 1

    def step(self) -> bool:
        if self.count < self.accumulation:
            return False
        if self.clip:
            nn.utils.clip_grad_norm_(list(self.model.parameters()), self.clip)
        self.optimizer.step()
        self.drop()
        return True

    def after(self, what: str) -> None:
        if what == "edit":
            with torch.no_grad():
                self.model.bias += 0.01
        elif what == "rate":
            self.optimizer.param_groups[0]["lr"] *= 0.9
        elif what == "load" and self.saved is None:
            self.saved = copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))
        elif what == "load":
            model, optimizer = copy.deepcopy(self.saved)
            self.model.load_state_dict(model)
            self.optimizer.load_state_dict(optimizer)


def loss_of(call: object, module: nn.Module, how: str, number: int, rank: int) -> torch.Tensor:
    x = batch(number, rank)
    if how == "two forwards":
        return call(x).square().mean() + call(-x).abs().mean()
    if how == "twice the output":
        y = call(x)
        return y.square().mean() + y.abs().mean()
    return (module if how == "of the module" else call)(x).square().mean()


def plain_loop(loop: list[dict], seed: int) -> list[list[float]]:
    plain = Plain(seed)
    found = []
    for number, how in enumerate(loop):
        plain.micro_step(number, how)
        if how["between"] == "drop" or how["between"] == "zero_grad" and plain.count == plain.accumulation:
            plain.drop()
        elif plain.step():
            plain.after(how["after"])
            found.append(weights(plain.model))
    return found


def weights(model: nn.Module) -> list[float]:
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        return torch.cat([param.detach().flatten() for param in model.parameters()]).tolist()


def aside(engine: object, model: nn.Module, what: str, number: int, rank: int) -> None:
    x = batch(500 + number, rank)
    if what == "dropped forward":
        engine(x)
    elif what == "evaluation":
        engine.eval()
        with torch.no_grad():
            engine(x)
        engine.train()
    elif what == "graph in evaluation mode":
        engine.eval()
        engine(x)
        engine.train()
    elif what == "failed forward":
        model.fails = True
        try:
            engine(x)
            raise AssertionError("the forward did not fail")
        except ValueError:
            model.fails = False


def engine_of(stage: int, seed: int, initial: int) -> tuple[object, nn.Module]:
    import deepspeed

    torch.manual_seed(initial)
    model = Model()
    config = config_of(seed) | {"zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}
    passed = None if "optimizer" in config else optimizer_of(seed, model)
    return deepspeed.initialize(model=model, optimizer=passed, config=config)[0], model


def engine_loop(loop: list[dict], stage: int, seed: int, says: bool) -> list[list[float]]:
    import deepspeed

    rank = int(os.environ["RANK"])
    engine, model = engine_of(stage, seed, initial=0)
    found = []
    folder = os.environ["SHOAL_RANDOM_FOLDER"]
    saved = False
    for number, how in enumerate(loop):
        if says and rank == 0:
            print(stage, seed, number, how, file=sys.stderr, flush=True)
        aside(engine, model, how["before"], number, rank)
        loss = loss_of(engine, model, how["loss"], number, rank)
        if how["backward"] == "engine":
            engine.backward(loss)
        elif how["backward"] == "loss":
            loss.backward()
        else:
            engine.scale(loss).backward()
        if how["between"] == "zero_grad" and engine.is_gradient_accumulation_boundary():  # refused before
            engine.zero_grad()
            continue
        if how["between"] == "drop":
            engine.drop_gradients()
            continue
        if how["between"] == "save":
            engine.save_checkpoint(f"{folder}/between", tag="one")
        elif how["between"] == "read":
            for param in model.parameters():
                deepspeed.utils.safe_get_full_fp32_param(param)
        else:
            aside(engine, model, how["between"], number, rank)
        before = engine.global_steps
        engine.step()
        if engine.global_steps == before:
            continue
        if how["after"] == "edit":
            with deepspeed.zero.GatheredParameters([model.bias], modifier_rank=0):
                if rank == 0:
                    with torch.no_grad():
                        model.bias += 0.01
        elif how["after"] == "rate":
            engine.optimizer.param_groups[0]["lr"] *= 0.9
        elif how["after"] == "load":
            place = f"{folder}/{stage}-{seed}"
            if saved:
                engine.load_checkpoint(place, tag="kept")
            else:
                engine.save_checkpoint(place, tag="kept")
                saved = True
        elif how["after"] == "state dict":
            engine.module.state_dict()
        elif how["after"] == "move":  # to another engine, of another stage
            engine.save_checkpoint(f"{folder}/move", tag="one")
            engine.destroy()
            engine, model = engine_of((stage + number) % 4, seed, initial=number)
            engine.load_checkpoint(f"{folder}/move")
        else:
            aside(engine, model, how["after"], number, rank)
        found.append(weights(model))
    engine.destroy()
    return found


def loops(seeds: list[int], stages: list[int], says: bool) -> list[str]:
    """What differs, by the seed."""
    wrong = []
    for seed in seeds:
        loop = made_up(seed)
        wanted = plain_loop(loop, seed)
        for stage in stages:
            name = f"seed {seed}, stage {stage}"
            try:
                found = engine_loop(loop, stage, seed, says)
            except RuntimeError as error:
                return [*wrong, f"{name}: {error}"]  # the other ranks may be elsewhere
            if len(found) != len(wanted):
                wrong.append(f"{name}: {len(found)} steps for {len(wanted)}")
                continue
            for index, (one, other) in enumerate(zip(found, wanted)):
                if largest_difference(one, other) > 1e-5:
                    wrong.append(f"{name}: step {index} is {largest_difference(one, other)} away")
                    break
    return wrong


def test_loops_made_up_by_a_seed_are_those_of_torch():
    own = os.environ.get("SHOAL_SEED")
    seeds = [int(own)] if own else list(range(60 if whole() else 6))
    for world in (1, 2, 3) if whole() else (2,):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SHOAL_RANDOM_FOLDER"] = folder
            for wrong in run(__file__, "loops", world, seeds=seeds, stages=[0, 1, 2, 3], says=bool(own)):
                assert not wrong, f"{world} ranks:\n" + "\n".join(wrong)


if __name__ == "__main__":
    main(globals(), imports=("shoal",))
