"""Torch optimizers of the user's on the shards: against plain torch, equal at every stage, saved, and refused where they need
whole matrices."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from models import Net, largest_difference, tokens, train_steps
from ranks import main, run

STEPS = 3
KINDS = ["rmsprop", "nadam", "amsgrad", "asgd", "groups", "decoupled", "own"]


class SignDescent(torch.optim.Optimizer):
    """One that torch does not have: a step by the sign of an average."""

    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                average = self.state[param].setdefault("average", torch.zeros_like(param))
                average.lerp_(param.grad, 0.5)
                param.add_(average.sign(), alpha=-group["lr"])


class Whitening(torch.optim.Optimizer):
    """Like Shampoo: a matrix is divided by a root of what its rows have in common."""

    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                grad = param.grad.reshape(param.shape[0], -1)
                common = grad @ grad.T + torch.eye(len(grad))
                param.sub_((torch.linalg.inv(common) @ grad).reshape(param.shape), alpha=group["lr"])


class CommonNorm(torch.optim.SGD):
    """Divides by one norm over all of its parameters, of which a rank has a part."""

    def step(self, closure=None):
        params = [param for group in self.param_groups for param in group["params"] if param.grad is not None]
        norm = torch.cat([param.grad.flatten() for param in params]).norm()
        for param in params:
            param.grad /= norm
        return super().step(closure)


class OwnList(SignDescent):
    """Steps over a list of its own, as torch's LBFGS."""

    def __init__(self, params):
        super().__init__(params)
        self.own = self.param_groups[0]["params"]

    def step(self, closure=None):
        kept, self.param_groups[0]["params"] = self.param_groups[0]["params"], [param for param in self.own if param.grad is not None]
        super().step(closure)
        self.param_groups[0]["params"] = kept


class Wrapper(torch.optim.Optimizer):
    """Holds another optimizer, whose groups are its own, as timm's Lookahead does."""

    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner, self.param_groups = inner, inner.param_groups

    def step(self, closure=None):
        self.inner.step()


class Factored(torch.optim.SGD):
    """Like some Adafactors: large matrices alone are divided by what their rows have in common."""

    @torch.no_grad()
    def step(self, closure=None):
        for param in self.param_groups[0]["params"]:
            if param.dim() == 2 and min(param.shape) >= 128:
                param.grad /= param.grad.square().mean(dim=1, keepdim=True).sqrt()
        return super().step(closure)


class LargeNorm(torch.optim.SGD):
    """Clips by a norm over all of its parameters, when it is large."""

    def step(self, closure=None):
        nn.utils.clip_grad_norm_([param for group in self.param_groups for param in group["params"]], 1000.0)
        return super().step(closure)


class LateNorm(torch.optim.SGD):
    """Changes its rule after some steps."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        if self.steps > 5:
            nn.utils.clip_grad_norm_([param for group in self.param_groups for param in group["params"]], 1e-3)
        return super().step(closure)


def make(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    params = list(model.parameters())
    if kind == "rmsprop":
        return torch.optim.RMSprop(params, lr=1e-3, momentum=0.5, centered=True)
    if kind == "nadam":
        return torch.optim.NAdam(params, lr=1e-2)
    if kind == "amsgrad":
        return torch.optim.AdamW(params, lr=1e-2, amsgrad=True)
    if kind == "asgd":
        return torch.optim.ASGD(params, lr=1e-2, t0=1)
    if kind == "decoupled":  # one of them, which the core's Adam cannot either
        return torch.optim.Adam([{"params": params[:3]}, {"params": params[3:], "decoupled_weight_decay": True}], lr=1e-2, weight_decay=0.5)
    if kind == "groups":  # that differ in betas, which the core's Adam cannot
        return torch.optim.Adam([{"params": params[:3]}, {"params": params[3:], "betas": (0.5, 0.9), "lr": 1e-3}], lr=1e-2)
    return SignDescent(params, lr=1e-3)


def config(stage: int, **others) -> dict:
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
    return {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.5, "zero_optimization": zero, **others}


def train_plain(kind: str) -> list[float]:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    model = Net()
    optimizer = make(kind, model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    numbers = []
    for step in range(STEPS):
        losses = [model(tokens(step, other)) for other in range(world)]
        (sum(losses) / world).backward()
        numbers += [losses[rank].item(), nn.utils.clip_grad_norm_(model.parameters(), 0.5).item()]
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return [*numbers, model(tokens(99, 0)).item()]


def train(kind: str, stage: int, **others) -> list[float]:
    import deepspeed

    torch.manual_seed(0)
    model = Net()
    optimizer = make(kind, model)
    engine, optimizer, _, schedule = deepspeed.initialize(
        model=model, optimizer=optimizer, config=config(stage, **others),
        lr_scheduler=lambda basic: torch.optim.lr_scheduler.LambdaLR(basic, lambda step: 1 / (step + 1)),
    )
    numbers = []
    for step in range(STEPS):
        loss = engine(tokens(step, int(os.environ["RANK"])))
        engine.backward(loss)
        engine.step()
        numbers += [loss.item(), engine.get_global_grad_norm()]
    with torch.no_grad():
        numbers.append(model(tokens(99, 0)).item())
    engine.destroy()
    return numbers


def train_all() -> dict:
    return {
        kind: {
            "stages": [train(kind, stage) for stage in range(4)],
            "bf16": [train(kind, stage, bf16={"enabled": True}) for stage in (0, 3)],
            "plain": train_plain(kind),
        }
        for kind in KINDS
    }


def test_elementwise_optimizers_run_on_shards_of_every_stage():
    for result in run(__file__, "train_all", 2):
        for kind, runs in result.items():
            for numbers in runs["stages"]:
                assert numbers == runs["stages"][0], (kind, runs["stages"])
            assert runs["bf16"][0] == runs["bf16"][1], (kind, runs["bf16"])
            # The same modules on the same weights: whatever ran before in this process, in bf16 too, has changed nothing in torch.
            assert runs["stages"][0][0] == runs["plain"][0], (kind, runs["stages"][0], runs["plain"])
            difference = largest_difference(runs["stages"][0], runs["plain"])
            assert difference < 1e-5, (kind, difference, runs["stages"][0], runs["plain"])


def through_shoal() -> dict:
    import shoal

    torch.manual_seed(0)
    model = Net()
    engine = shoal.initialize(model, config(3), optimizer=make("nadam", model))
    for step in range(STEPS):
        engine.backward(engine(tokens(step, int(os.environ["RANK"]))))
        engine.step()
    found = {"states": engine.memory().held.states, "message": ""}
    found["moment"] = engine.read_state("blocks.0.up.weight", "exp_avg").abs().sum().item()
    schedule = {"scheduler": {"type": "WarmupLR", "params": {}}}
    other = Net()
    try:
        shoal.initialize(other, config(3, **schedule), optimizer=make("nadam", other))
    except shoal.Error as error:
        found["message"] = str(error)
    return found


def test_shoal_initialize_takes_an_optimizer():
    found = run(__file__, "through_shoal", 2)[0]
    assert found["states"] == 0, "the core keeps states that nobody uses"
    assert found["moment"] > 0, found
    assert "does not reach an optimizer" in found["message"], found


def refusals() -> dict:
    import deepspeed

    makers = {
        "Muon": lambda model: torch.optim.Muon([param for param in model.parameters() if param.dim() == 2]),
        "Adafactor": lambda model: torch.optim.Adafactor(model.parameters()),
        "LBFGS": lambda model: torch.optim.LBFGS(model.parameters()),
        "Whitening": lambda model: Whitening(model.parameters()),
        "CommonNorm": lambda model: CommonNorm(model.parameters(), lr=0.1),
        "OwnList": lambda model: OwnList(model.parameters()),
        "Wrapper": lambda model: Wrapper(SignDescent(model.parameters())),
        "Factored": lambda model: Factored(model.parameters(), lr=0.1),
        "LargeNorm": lambda model: LargeNorm(model.parameters(), lr=0.1),
        "LateNorm": lambda model: LateNorm(model.parameters(), lr=0.1),
    }
    found = {}
    for name, maker in makers.items():
        model = Net()
        try:
            deepspeed.initialize(model=model, optimizer=maker(model), config=config(2))
            found[name] = ""
        except RuntimeError as error:
            found[name] = str(error)
    return found


def test_optimizers_that_need_whole_matrices_are_refused():
    for name, message in run(__file__, "refusals", 1)[0].items():
        assert f"[optimizer] {name} " in message and "cannot run on shards. Use" in message, (name, message)


def save_and_resume(folder: str, stage: int, kind: str) -> list:
    import deepspeed

    def begin():
        torch.manual_seed(1)
        model = Net()
        return deepspeed.initialize(model=model, optimizer=make(kind, model), config=config(stage))[0]

    engine = begin()
    train_steps(engine, 0, 2)
    engine.save_checkpoint(folder)
    straight = train_steps(engine, 2, 4)
    engine.load_checkpoint(folder)
    back = train_steps(engine, 2, 4)
    engine.destroy()
    engine = begin()
    engine.load_checkpoint(folder)
    return [straight, back, train_steps(engine, 2, 4)]


def states_after_load(folder: str, stage: int, kind: str) -> dict:
    import deepspeed
    from deepspeed import utils

    model = Net()
    engine = deepspeed.initialize(model=model, optimizer=make(kind, model), config=config(stage))[0]
    engine.load_checkpoint(folder)
    weight = model.blocks[1].up.weight
    keys = [key for key in engine._shoal.client.keys if key != "step"]
    found = {key: utils.safe_get_full_optimizer_state(weight, key).double().sum().item() for key in keys}
    steps = [float(state["step"]) for state in engine.optimizer.state.values()]
    return found | {"steps": sorted(set(steps))}


def test_states_are_saved_and_resume_to_the_bit():
    for stage, kind in ((1, "nadam"), (3, "rmsprop")):
        with tempfile.TemporaryDirectory() as folder:
            for straight, back, resumed in run(__file__, "save_and_resume", 2, folder=folder, stage=stage, kind=kind):
                assert straight == back == resumed, (kind, straight, back, resumed)
            here = run(__file__, "states_after_load", 2, folder=folder, stage=stage, kind=kind)[0]
            alone = run(__file__, "states_after_load", 1, folder=folder, stage=0, kind=kind)[0]
            assert here == alone and len(here) > 1, (kind, here, alone)
            assert here["steps"] == [2.0], here


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))
