"""Parameters that are read outside their unit: by name, by registration, and by experts that only some ranks run."""

from __future__ import annotations

import copy
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent))
from models import VOCABULARY, Block, Net, largest_difference, tokens
from ranks import main, run

STEPS = 3


class Borrowing(nn.Module):
    """Reads weights of blocks that are released then. kind: who reads, and how."""

    def __init__(self, kind: str, width: int = 16):
        super().__init__()
        self.kind = kind
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        if kind == "frozen":
            self.blocks[0].up.weight.requires_grad_(False)
        if kind == "registered":
            hidden = [self.blocks[0].up.weight]  # no name leads there from the last block
            last = self.blocks[2]
            last.forward = lambda x: Block.forward(last, x) + F.linear(x, hidden[0]).mean(-1, keepdim=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        penalty = x.new_zeros(())
        for index, block in enumerate(self.blocks):
            if self.kind == "checkpointed" and index == 1:
                x = checkpoint(self.with_first, x, use_reentrant=False)
            x = block(x)
        if self.kind in ("named", "frozen", "checkpointed"):
            x = x + F.linear(F.linear(x, self.blocks[0].up.weight), self.blocks[0].down.weight)
            penalty = self.blocks[1].norm.weight.square().sum()
        loss = F.cross_entropy(self.head(x)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        return loss + 0.01 * penalty

    def with_first(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.linear(F.linear(x, self.blocks[0].up.weight), self.blocks[0].down.weight)


def config(stage: int) -> dict:
    return {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_clipping": 0,
        "optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
    }


def train(kind: str, stage: int | None) -> list[float]:
    import deepspeed

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    model = Borrowing(kind)
    if kind == "registered":
        deepspeed.zero.register_external_parameter(model.blocks[2], model.blocks[0].up.weight)
    if stage is not None:
        engine = deepspeed.initialize(model=model, config=config(stage))[0]
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    numbers = []
    for step in range(STEPS):
        if stage is not None:
            loss = engine(tokens(step, rank))
            engine.backward(loss)
            engine.step()
        else:
            losses = [model(tokens(step, other)) for other in range(world)]
            (sum(losses) / world).backward()
            loss = losses[rank]
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            numbers += [loss.item(), model(tokens(99, 0)).item()]
    if stage == 3:
        try:
            model.blocks[0].up.weight.sum()
            raise AssertionError("a released parameter was read between passes")
        except RuntimeError as error:
            assert "is released" in str(error), error
    return numbers


def train_all(kinds: list[str]) -> dict:
    return {kind: [train(kind, stage) for stage in (0, 2, 3, None)] for kind in kinds}


def test_parameters_used_outside_their_module():
    for result in run(__file__, "train_all", 2, kinds=["named", "registered", "frozen", "checkpointed"]):
        for kind, (*stages, plain) in result.items():
            assert stages[0] == stages[1] == stages[2], (kind, stages)
            difference = largest_difference(stages[0], plain)
            assert difference < 1e-5, (kind, difference, stages[0], plain)


class Experts(nn.Module):
    """A block whose experts are modules; each rank runs those that its tokens ask for, in one order on all ranks."""

    def __init__(self, width: int, count: int = 4):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, x: torch.Tensor, chosen: list[int]) -> torch.Tensor:
        return x + sum(torch.tanh(self.experts[index](x)) for index in chosen)


class ExpertNet(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Experts(width) for _ in range(2))
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor, chosen: list[int]) -> torch.Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, chosen)
        return F.cross_entropy(self.head(x)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def experts(stage: int | None, units: list[str] | None) -> list[float]:
    import shoal
    from deepspeed.utils import set_z3_leaf_modules

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    model = ExpertNet()
    set_z3_leaf_modules(model, [Experts])  # accepted, and without effect
    if stage is not None:
        engine = shoal.initialize(model, config(stage), units=units)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(STEPS):
        chosen = [sorted([(step + other) % 4, (step + 2 * other + 1) % 4]) for other in range(world)]
        if stage is not None:
            loss = engine(tokens(step, rank), chosen[rank])
            engine.backward(loss)
            engine.step()
        else:
            every = [model(tokens(step, other), chosen[other]) for other in range(world)]
            # A parameter that nobody used has a zero gradient, as with the engine: SGD moves it by its momentum.
            (sum(every) / world + 0 * sum(param.sum() for param in model.parameters())).backward()
            loss = every[rank]
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def all_experts() -> list:
    layers, each = None, ["Linear", "embedding"]
    return [experts(stage, units) for units in (layers, each) for stage in (0, 2, 3)] + [experts(None, None)]


def test_expert_modules_that_run_on_some_ranks_only():
    for result in run(__file__, "all_experts", 2):
        *stages, plain = result
        for losses in stages:
            assert losses == stages[0], stages
        assert largest_difference(stages[0], plain) < 1e-5, (stages[0], plain)


def wrapped() -> list[str]:
    """Blocks in torch's checkpoint_wrapper, whose parameters have other names for whom asks the wrapper."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    import deepspeed

    found = []
    for wraps in (False, True):
        torch.manual_seed(0)
        model = Net()
        for index, block in enumerate(model.blocks if wraps else ()):
            model.blocks[index] = checkpoint_wrapper(block)
        engine = deepspeed.initialize(model=model, config=config(3))[0]
        for step in range(STEPS):
            engine.backward(engine(tokens(step, int(os.environ["RANK"]))))
            engine.step()
        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            found.append(str([param.sum().item() for param in model.parameters()]))
        engine.destroy()
    return found


def test_blocks_in_checkpoint_wrapper():
    for plain, inside in run(__file__, "wrapped", 2):
        assert plain == inside, (plain, inside)


class Parts(nn.Module):
    """Its parts are called from outside, and its forward now and then, as generate() calls an encoder."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.front = nn.Sequential(nn.Embedding(VOCABULARY, width), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.end = nn.Module()
        self.end.norm = nn.LayerNorm(width)
        self.end.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.end.head(self.end.norm(self.blocks[1](self.blocks[0](self.front(ids)))))


def in_parts(model: Parts, ids: torch.Tensor) -> torch.Tensor:
    x = model.front(ids)
    for block in model.blocks:
        x = block(x)
    return model.end.head(model.end.norm(x))


def call_parts(stage: int | None) -> list[float]:
    import deepspeed

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    model = Parts()
    if stage is not None:
        engine = deepspeed.initialize(model=model, config=config(stage))[0]
        twin = copy.deepcopy(engine.module) if stage < 3 else None
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    numbers = []

    def loss_of(ids: torch.Tensor, step: int) -> torch.Tensor:
        call = in_parts if step != 1 else Parts.__call__
        return F.cross_entropy(call(model, ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    for step in range(STEPS):
        if stage is not None:
            loss = loss_of(tokens(step, rank), step)
            engine.backward(loss)
            engine.step()
        else:
            losses = [loss_of(tokens(step, other), step) for other in range(world)]
            (sum(losses) / world).backward()
            loss = losses[rank]
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            numbers += [loss.item(), in_parts(model, tokens(99, 0)).sum().item(), model.front(tokens(9, rank)).sum().item()]
    if stage is not None:
        try:
            model.front[0](tokens(0, rank) + VOCABULARY)
        except IndexError:
            pass
        assert twin is None or in_parts(twin, tokens(0, rank)).isfinite().all()
        with torch.no_grad():
            numbers.append(in_parts(model, tokens(99, 0)).sum().item())
        engine.destroy()
    else:
        numbers.append(numbers[-2])
    return numbers


def all_parts() -> list:
    return [call_parts(stage) for stage in (0, 2, 3, None)]


def test_modules_of_the_root_are_called_by_themselves():
    for world in (1, 2):
        for *stages, plain in run(__file__, "all_parts", world):
            assert stages[0] == stages[1] == stages[2], stages
            assert largest_difference(stages[0], plain) < 1e-4, (stages[0], plain)


def copies() -> list[str]:
    """A copy of a gathered block is an ordinary module, and destroying the engine leaves ordinary modules."""
    import shoal

    torch.manual_seed(0)
    model = Net()
    engine = shoal.initialize(model, config(3))
    with shoal.gathered(model.blocks[0].parameters()):
        twin = copy.deepcopy(model.blocks[0])
        values = twin.up.weight.sum().item() == model.blocks[0].up.weight.sum().item()
    kinds = [type(twin.up._parameters).__name__]
    engine.make_whole()
    kinds.append(type(model.blocks[0].up._parameters).__name__)
    return [str(values), *kinds, str(model(tokens(0, 0)).item() > 0)]


def test_copies_and_destroyed_engines_are_ordinary():
    assert run(__file__, "copies", 1)[0] == ["True", "dict", "dict", "True"]


def cost() -> float:
    """Microseconds that a read of a parameter by name costs more than without an engine."""
    import shoal

    def measure(module: nn.Module) -> float:
        best = float("inf")
        for _ in range(5):
            begin = time.process_time()
            for _ in range(20000):
                module.weight  # noqa: B018
            best = min(best, time.process_time() - begin)
        return best / 20000 * 1e6

    model = Net()
    plain = measure(model.blocks[0].up)
    engine = shoal.initialize(model, config(3))
    engine.uses.units.append(0)  # as in the unit's forward
    return measure(model.blocks[0].up) - plain


def test_a_read_inside_its_unit_costs_little():
    microseconds = run(__file__, "cost", 1)[0]
    assert microseconds < 3, f"{microseconds} microseconds a read"  # 0.1 to 0.3 on an idle machine


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))
