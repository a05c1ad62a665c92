"""Models whose blocks are not used the plain way: members that the parent calls, modules called twice or shared, weights used
by functions, hooks that replace outputs, forwards that return None or an object. At every stage they train as the mean over
ranks says, and with the same bits. `shapes_test.py --rounds 10` repeats it all, for runs under load."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent))
from models import largest_difference
from ranks import main, message, run, whole

WIDTH = 16
DEPTH = 3
STEPS = 2
ROUNDS = 1


class Members(nn.Module):
    """A block with a forward of its own, which the parents below may pass by."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.lin = nn.Linear(WIDTH, WIDTH)
        self.spare = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.lin(self.norm(x))


@dataclasses.dataclass
class Plain:
    x: torch.Tensor


@dataclasses.dataclass(slots=True)
class Slotted:
    x: torch.Tensor


class Opaque:
    def __init__(self, x: torch.Tensor):
        self.x = x


class ReturnsNone(Members):
    def forward(self, holder: Any) -> None:
        holder.x = super().forward(holder.x)


class Returns(Members):
    def __init__(self, kind: type):
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> Any:
        return self.kind(super().forward(x))


def pairs() -> nn.ModuleList:
    return nn.ModuleList(nn.ModuleList([nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)]) for _ in range(DEPTH))


def apply(norm: nn.Module, lin: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x + lin(norm(x))


class Model(nn.Module):
    """`blocks` used by `walk`."""

    def __init__(self, kind: str):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 1)
        self.kind = kind
        make, self.walk = SHAPES[kind]
        self.blocks = make()
        if kind == "shared":
            self.blocks[2] = self.blocks[0]
        if kind == "tied":
            self.blocks[2].lin.weight = self.blocks[0].lin.weight
            self.blocks[1].lin.weight = self.first.weight
        if kind == "replaced by a hook":
            for block in self.blocks:
                block.register_forward_hook(lambda module, args, output: (output + args[0]) / 2)
        if kind == "frozen members":
            for norm, lin in self.blocks:
                norm.requires_grad_(False)
                lin.bias.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.walk(self, self.first(x))).square().mean()


def walk_pairs(model: Model, x: torch.Tensor) -> torch.Tensor:
    for norm, lin in model.blocks:
        x = apply(norm, lin, x)
    return x


def walk_dicts(model: Model, x: torch.Tensor) -> torch.Tensor:
    for block in model.blocks:
        x = apply(block["norm"], block["lin"], x)
    return x


def walk_members(model: Model, x: torch.Tensor) -> torch.Tensor:
    for block in model.blocks:
        x = apply(block.norm, block.lin, x)
    return x


def walk_calls(model: Model, x: torch.Tensor) -> torch.Tensor:
    for block in model.blocks:
        x = block(x)
    return x


def walk_twice(model: Model, x: torch.Tensor) -> torch.Tensor:
    return walk_calls(model, walk_members(model, walk_calls(model, x)))


def walk_weights(model: Model, x: torch.Tensor) -> torch.Tensor:
    for block in model.blocks:
        x = x + F.linear(F.layer_norm(x, (WIDTH,), block.norm.weight, block.norm.bias), block.lin.weight, block.lin.bias)
    return x


def walk_func(model: Model, x: torch.Tensor) -> torch.Tensor:
    for block in model.blocks:
        x = torch.func.functional_call(block, dict(block.named_parameters()), (x,))
    return x


def walk_holders(model: Model, x: torch.Tensor) -> torch.Tensor:
    holder = Opaque(x)
    for block in model.blocks:
        block(holder)
    return holder.x


def walk_objects(model: Model, x: torch.Tensor) -> torch.Tensor:
    for block in model.blocks:
        x = block(x).x
    return x


def checkpointed(walk: Any, reentrant: bool) -> Any:
    """All blocks in one region; then, so that gradients of a parameter come from two regions, once more."""

    def wrapped(model: Model, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = checkpoint(walk, model, x, use_reentrant=reentrant)
        return x

    return wrapped


def walk_detached(model: Model, x: torch.Tensor) -> torch.Tensor:
    for index, (norm, lin) in enumerate(model.blocks):
        x = x + (lin(norm(x)).detach() if index == 1 else lin(norm(x)))
    return x


def walk_some(model: Model, x: torch.Tensor) -> torch.Tensor:
    """Each rank leaves out another block."""
    for index, (norm, lin) in enumerate(model.blocks):
        if index != model.rank:
            x = apply(norm, lin, x)
    return x


def call_some(model: Model, x: torch.Tensor) -> torch.Tensor:
    for index, block in enumerate(model.blocks):
        if index != model.rank:
            x = block(block(x))
    return x


def call_experts(model: Model, x: torch.Tensor) -> torch.Tensor:
    """Each rank uses an expert, another one at each step: most have no tokens in the first."""
    for index, block in enumerate(model.blocks):
        if index == (model.rank + model.step) % DEPTH:
            x = block(x)
    return x


def call_late(model: Model, x: torch.Tensor) -> torch.Tensor:
    """No block is used in the first step, and each rank uses others in the second."""
    for index, block in enumerate(model.blocks):
        if model.step and index != model.rank:
            x = block(x)
    return x


def walk_flattened(model: Model, x: torch.Tensor) -> torch.Tensor:
    for block in model.blocks:
        x = x + block(x.unsqueeze(0))[0][0]
    return x


def flattened() -> nn.ModuleList:
    """Views of one buffer, as cuDNN wants the weights of an RNN."""
    layers = nn.ModuleList(nn.GRU(WIDTH, WIDTH, batch_first=True) for _ in range(DEPTH))
    for layer in layers:
        buffer = torch.cat([param.detach().flatten() for param in layer.parameters()])
        begin = 0
        for param in layer.parameters():
            param.data = buffer[begin : begin + param.numel()].view_as(param)
            begin += param.numel()
    return layers


def blocks() -> nn.ModuleList:
    return nn.ModuleList(Members() for _ in range(DEPTH))


def dicts() -> nn.ModuleList:
    return nn.ModuleList(
        nn.ModuleDict({"norm": nn.LayerNorm(WIDTH), "lin": nn.Linear(WIDTH, WIDTH)}) for _ in range(DEPTH)
    )


SHAPES: dict[str, tuple[Any, Any]] = {
    "lists": (pairs, walk_pairs),
    "dicts": (dicts, walk_dicts),
    "members by the parent": (blocks, walk_members),
    "called twice, by both": (blocks, walk_twice),
    "shared": (blocks, walk_calls),
    "tied": (blocks, walk_members),
    "weights by functions": (blocks, walk_weights),
    "torch.func": (blocks, walk_func),
    "replaced by a hook": (blocks, walk_calls),
    "returns None": (lambda: nn.ModuleList(ReturnsNone() for _ in range(DEPTH)), walk_holders),
    "returns a dataclass": (lambda: nn.ModuleList(Returns(Plain) for _ in range(DEPTH)), walk_objects),
    "returns one with slots": (lambda: nn.ModuleList(Returns(Slotted) for _ in range(DEPTH)), walk_objects),
    "returns an object": (lambda: nn.ModuleList(Returns(Opaque) for _ in range(DEPTH)), walk_objects),
    "lists, reentrant": (pairs, checkpointed(walk_pairs, True)),
    "lists, recomputed": (pairs, checkpointed(walk_pairs, False)),
    "members by the parent, reentrant": (blocks, checkpointed(walk_members, True)),
    "members by the parent, recomputed": (blocks, checkpointed(walk_members, False)),
    "weights by functions, reentrant": (blocks, checkpointed(walk_weights, True)),
    "weights by functions, recomputed": (blocks, checkpointed(walk_weights, False)),
    "calls, reentrant": (blocks, checkpointed(walk_calls, True)),
    "frozen members": (pairs, walk_pairs),
    "frozen members, reentrant": (pairs, checkpointed(walk_pairs, True)),
    "detached": (pairs, walk_detached),
    "another block on each rank": (pairs, walk_some),
    "another block on each rank, called twice": (blocks, call_some),
    "another expert at each step": (blocks, call_experts),
    "blocks that come late": (blocks, call_late),
    "views of one buffer": (flattened, walk_flattened),
}


def batch(step: int, rank: int) -> torch.Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(1000 * step + rank))


def config(stage: int, threshold: int, accumulation: int = 1) -> dict:
    return {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 0,
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": threshold},
        "shoal": {"reproducible": True},
    }


def train(kind: str, stage: int | None, threshold: int, accumulation: int) -> list[float]:
    """Losses and weights; stage None: plain torch, which has the samples of all ranks."""
    import deepspeed

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    model = Model(kind)
    model.rank = rank
    if stage is not None:
        engine = deepspeed.initialize(model=model, config=config(stage, threshold, accumulation))[0]
    else:
        optimizer = torch.optim.SGD((param for param in model.parameters() if param.requires_grad), lr=0.1)
    numbers = []
    for step in range(STEPS * accumulation):
        model.step = step
        if stage is not None:
            loss = engine(batch(step, rank))
            engine.backward(loss)
            engine.step()
            numbers.append(loss.item())
            continue
        for other in range(world):
            model.rank = other
            loss = model(batch(step, other))
            (loss / (world * accumulation)).backward()
            if other == rank:
                numbers.append(loss.item())
        if (step + 1) % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        numbers += torch.cat([param.detach().flatten().float() for param in model.parameters()]).tolist()
    if stage is not None:
        engine.destroy()
    return numbers


def train_all(kinds: list[str], accumulation: int) -> dict:
    found = {}
    for kind in kinds:
        # At stage 3 with all parameters sharded, with the vectors whole, and with all of them whole.
        runs = [(0, 0), (1, 0), (2, 0), (3, 0), (3, WIDTH), (3, 10**6), (None, 0)]
        found[kind] = [train(kind, stage, threshold, accumulation) for stage, threshold in runs]
    return found


def compare(world: int, accumulation: int) -> None:
    for result in run(__file__, "train_all", world, kinds=list(SHAPES), accumulation=accumulation):
        for kind, (*stages, plain) in result.items():
            for index, stage in enumerate(stages):
                # Sums of two roundings each, of gradients below 10: an error of a missing gradient is above 1e-3.
                difference = largest_difference(stage, plain)
                assert difference < 1e-5, (kind, f"run {index}", world, accumulation, difference)
                assert stage == stages[0], (kind, f"run {index}", world, accumulation, largest_difference(stage, stages[0]))


def test_blocks_of_every_shape_on_two_ranks():
    if not whole():
        print("left to make grids: two ranks without accumulation; three, and two with it, are here")
        return
    for _ in range(ROUNDS):
        compare(2, 1)


def test_blocks_of_every_shape_on_three_ranks():
    for _ in range(ROUNDS):
        compare(3, 1)


def test_blocks_of_every_shape_with_accumulation():
    for _ in range(ROUNDS):
        compare(2, 2)


if __name__ == "__main__":
    if "--rounds" in sys.argv:
        at = sys.argv.index("--rounds")
        ROUNDS = int(sys.argv[at + 1])
        del sys.argv[at : at + 2]
    main(globals())
