"""zero_grad() drops the gradients of a step that is not taken, as torch's does: a batch that is left out, two engines whose
losses go through each other. And tensors that share a parameter's memory are refused, not left behind."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
from models import largest_difference
from ranks import main, message, run

WIDTH = 8


def net(out: int = 1) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, out))


def batch(step: int, rank: int) -> torch.Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(1000 * step + rank))


def config(stage: int, accumulation: int = 1) -> dict:
    return {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": accumulation,
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
    }


def weights_of(*models: nn.Module) -> list[float]:
    import deepspeed

    params = [param for model in models for param in model.parameters()]
    with deepspeed.zero.GatheredParameters(params):
        return torch.cat([param.detach().flatten() for param in params]).tolist()


class Plain:
    """What an engine is, over the samples of all ranks."""

    def __init__(self, model: nn.Module):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.zero_grad, self.step = self.optimizer.zero_grad, self.optimizer.step

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)


def made(model: nn.Module, stage: int | None) -> Any:
    import deepspeed

    return Plain(model) if stage is None else deepspeed.initialize(model=model, config=config(stage))[0]


def mean_backward(engine: Any, loss_of: Any) -> None:
    """Of the mean over ranks."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if not isinstance(engine, Plain):
        engine.backward(loss_of(rank))
        return
    for other in range(world):
        (loss_of(other) / world).backward()


def leave_a_batch_out(stage: int | None, through: str) -> list[float]:
    torch.manual_seed(0)
    model = net()
    engine = made(model, stage)
    for step in range(4):
        mean_backward(engine, lambda rank: engine(batch(step, rank)).square().mean())
        if step == 1:
            {"engine": engine, "optimizer": engine.optimizer, "model": model}[through].zero_grad()
            continue
        engine.step()
        engine.zero_grad()
    return weights_of(model)


def leave_a_batch_out_of_shoal(stage: int, through: str) -> list[float]:
    """The same by `import shoal` with an optimizer of torch."""
    import shoal

    torch.manual_seed(0)
    model = net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = {key: value for key, value in config(stage).items() if key != "optimizer"} | {"gradient_clipping": 0}
    engine = shoal.initialize(model, settings, optimizer=sgd)
    rank = int(os.environ["RANK"])
    for step in range(4):
        engine.backward(engine(batch(step, rank)).square().mean())
        if step == 1:
            {"engine": engine, "optimizer": sgd, "model": model}[through].zero_grad()
            continue
        engine.step()
        engine.zero_grad()
        sgd.zero_grad()
        model.zero_grad()
    engine.backward(engine(batch(4, rank)).square().mean())
    a_part = message(model[0].zero_grad)
    by_torch = message(sgd.step)
    engine.drop_gradients()
    model[0].zero_grad()
    assert "without 2.weight and 3 more: the engine's gradients are dropped together" in a_part, a_part
    assert "[SGD] is an engine's, which updates by itself. Call engine.step()" in by_torch, by_torch
    with shoal.gathered(list(model.parameters())):
        values = torch.cat([param.detach().flatten() for param in model.parameters()]).tolist()
    engine.destroy()
    sgd.step()  # nobody's now
    assert "shoal_watches" not in vars(nn.Module.zero_grad) or shoal.owners.any_lives()
    return values


def play_two(stage: int | None) -> list[float]:
    """A generator's loss goes through the other's model, whose gradients are dropped before its own."""
    torch.manual_seed(0)
    first, second = net(WIDTH), net()
    makes, judges = made(first, stage), made(second, stage)
    for step in range(3):
        makes.zero_grad()
        mean_backward(makes, lambda rank: F.softplus(-judges(makes(batch(step, rank)))).mean())
        makes.step()
        judges.zero_grad()
        mean_backward(judges, lambda rank: F.softplus(judges(makes(batch(step, rank)).detach()) - judges(batch(step, rank))).mean())
        judges.step()
    return weights_of(first, second)


def between_forward_and_backward(stage: int) -> list[float]:
    torch.manual_seed(0)
    model = net()
    engine = made(model, stage)
    rank = int(os.environ["RANK"])
    for step in range(3):
        loss = engine(batch(step, rank)).square().mean()
        if step == 1:
            engine.backward(loss)
            loss = engine(batch(step, rank)).square().mean()
        engine.zero_grad()
        engine.backward(loss)
        engine.step()
    return weights_of(model)


def plain_steps() -> list[float]:
    torch.manual_seed(0)
    model = net()
    plain = Plain(model)
    for step in range(3):
        mean_backward(plain, lambda rank: plain(batch(step, rank)).square().mean())
        plain.step()
        plain.zero_grad()
    return weights_of(model)


def all_loops() -> dict:
    stages = (0, 1, 2, 3)
    return {
        "left out": [leave_a_batch_out(stage, through) for through in ("engine", "optimizer", "model") for stage in stages]
        + [leave_a_batch_out_of_shoal(stage, through) for through in ("engine", "optimizer", "model") for stage in stages]
        + [leave_a_batch_out(None, "engine")],
        "two": [play_two(stage) for stage in (*stages, None)],
        "late": [between_forward_and_backward(stage) for stage in stages] + [plain_steps()],
    }


def test_what_zero_grad_drops_is_in_no_step():
    for result in run(__file__, "all_loops", 2):
        for kind, (*stages, plain) in result.items():
            for stage, found in enumerate(stages):
                difference = largest_difference(found, plain)
                assert difference < 1e-5, (kind, stage, difference)


def accumulate() -> dict:
    import deepspeed

    torch.manual_seed(0)
    engine = deepspeed.initialize(model=net(), config=config(2, accumulation=2))[0]
    rank = int(os.environ["RANK"])
    engine.backward(engine(batch(0, rank)).square().mean())
    engine.step()
    refusal = message(engine.zero_grad)
    engine.drop_gradients()
    accumulated = engine._shoal.core.accumulated
    engine.zero_grad()  # nothing is there
    aliased = net()
    aliased.register_buffer("mirror", aliased[0].weight.data)
    buffer = message(lambda: deepspeed.initialize(model=aliased, config=config(0)))
    kept = net()
    kept.view = kept[2].weight.detach()[1:]
    made_anew = net()
    nn.utils.spectral_norm(made_anew[0])
    deepspeed.initialize(model=made_anew, config=config(0))
    attribute = message(lambda: deepspeed.initialize(model=kept, config=config(0)))
    views = [message(lambda make=make: deepspeed.initialize(model=with_view(make), config=config(0))) for make in VIEWS]
    outside = net()
    held_outside = outside.state_dict()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        engines = [deepspeed.initialize(model=model, config=config(0))[0] for model in (outside, net())]
    told = [str(each.message) for each in warned if "share the memory of" in str(each.message)]
    assert len(held_outside) == 6
    for engine in engines:
        engine.destroy()
    own = net()
    passed = torch.optim.SGD(own.parameters(), lr=0.1)
    without = {key: value for key, value in config(2).items() if key != "optimizer"}
    held, returned, *_ = deepspeed.initialize(model=own, optimizer=passed, config=without)
    held.backward(held(batch(0, rank)).square().mean())
    steps = [message(passed.step), message(returned.step)]
    held.step()
    held.destroy()
    passed.step()  # nobody's now
    return {"steps": steps, "refusal": refusal, "accumulated": accumulated, "buffer": buffer, "attribute": attribute,
            "views": views, "told": told, "rank": rank}


VIEWS = (lambda weight: weight.t(), lambda weight: [weight[0], weight[1:]], lambda weight: {"rows": [weight.detach()]})


def with_view(make):
    """A tied weight as people write it: a view that is taken once, which torch trains, since the optimizer writes in its memory."""
    model = net()
    model.tied = make(model[0].weight)
    return model


def test_what_cannot_be_meant_is_refused():
    for found in run(__file__, "accumulate", 2):
        assert "[zero_grad] 1 of 2 micro-steps are accumulated" in found["refusal"], found
        assert found["accumulated"] == 0, found
        for step in found["steps"]:
            assert "is an engine's, which updates by itself. Call engine.step()" in step, found
        assert "[buffer mirror] shares its memory with parameter 0.weight" in found["buffer"], found
        assert "[attribute view] shares its memory with parameter 2.weight" in found["attribute"], found
        for view, what in zip(found["views"], ("tied", "tied[0]", "tied['rows'][0]")):
            assert f"[attribute {what}] shares its memory with parameter 0.weight" in view, found
        assert len(found["told"]) == (1 if found["rank"] == 0 else 0), found
        assert all("share the memory of 0.weight, 0.bias, 2.weight (6 parameters in all)" in each for each in found["told"]), found


if __name__ == "__main__":
    main(globals())
