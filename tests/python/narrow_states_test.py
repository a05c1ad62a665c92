"""Moments and masters of 16 bits, and torch_autocast in float16, through `import deepspeed`: against plain torch, at every stage,
and in checkpoints of DeepSpeed's layout."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from models import Net, tokens
from ranks import main, message, run

KINDS = {
    "states": ("bf16", {"bf16_optimizer_states": True}),
    "masters": ("bf16", {"bf16_master_weights_and_grads": True}),
    "both": ("bf16", {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}),
    "fp16": ("fp16", {"fp16_master_weights_and_grads": True, "initial_scale_power": 4}),
}


class Row(nn.Module):
    """A weight whose gradient is what the forward is given."""

    def __init__(self, numel: int = 1000):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-2, 2, numel))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        return (self.weight.float() * gradient).sum()


def gradient_of(step: int, rank: int = 0) -> torch.Tensor:
    """Eighths: their mean over two ranks, and a loss scale, are exact in 16 bits."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(-8, 9, (1000,), generator=generator) / 8


def config_of(kind: str, stage: int, **others) -> dict:
    precision, keys = KINDS[kind]
    adam = {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}}
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
    base = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0, "optimizer": adam, "zero_optimization": zero}
    return base | {precision: {"enabled": True, **keys}} | others


def all_rows() -> dict:
    return {kind: engine_rows(kind) for kind in KINDS}


def engine_rows(kind: str) -> list:
    """Of stages 0 and 3: weight and moments after four steps."""
    import deepspeed
    from shoal import state

    found = []
    for stage in (0, 3):
        engine = deepspeed.initialize(model=Row(), config=config_of(kind, stage))[0]
        for step in range(4):
            engine.backward(engine(gradient_of(step, int(os.environ["RANK"]))))
            engine.step()
        weight = engine.module.weight
        names = ("weight", "exp_avg", "exp_avg_sq")
        states = [state.read_param(weight, {"exp_avg": "first_moment", "exp_avg_sq": "second_moment"}.get(key, key)) for key in names]
        found.append([values.tolist() for values in states])
        engine.destroy()
    return found


def rounded(values: torch.Tensor, narrow: torch.dtype | None) -> torch.Tensor:
    return values if narrow is None else values.to(narrow).double()


def plain_rows(kind: str, world: int) -> list[torch.Tensor]:
    """The same by AdamW's formula in fp64, which is rounded where the engine keeps 16 bits."""
    precision, keys = KINDS[kind]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16
    moments = torch.bfloat16 if "bf16_optimizer_states" in keys else None
    masters = dtype if any("master" in key for key in keys) else None
    weight = rounded(Row().weight.detach().double(), masters)
    first, second = torch.zeros(1000, dtype=torch.double), torch.zeros(1000, dtype=torch.double)
    beta1, beta2 = torch.tensor([0.9, 0.999]).double().tolist()  # as fp32 has them
    for step in range(4):
        gradient = sum(gradient_of(step, rank).double() for rank in range(world)) / world
        first, second = beta1 * first + (1 - beta1) * gradient, beta2 * second + (1 - beta2) * gradient**2
        move = first / (1 - beta1 ** (step + 1)) / ((second / (1 - beta2 ** (step + 1))).sqrt() + 1e-8)
        weight = rounded(weight * (1 - 1e-2 * 0.1) - 1e-2 * move, masters)
        first, second = rounded(first, moments), rounded(second, moments)
    return [weight, first, second]


def test_narrow_states_are_those_of_plain_torch():
    world = 2
    for kind, stages in run(__file__, "all_rows", world)[0].items():
        assert all(stage == stages[0] for stage in stages), (kind, world)
        for name, ours, plain in zip(("weight", "first", "second"), stages[0], plain_rows(kind, world)):
            ours = torch.tensor(ours, dtype=torch.double)
            narrow = ours.equal(ours.to(torch.bfloat16).double()) or ours.equal(ours.to(torch.float16).double())
            assert narrow == (kind == "both" or (name == "weight") == (kind != "states")), (kind, name)
            # fp32 here and fp64 there: 1e-5 of a number at most. Where that turns a rounding, which few do, the next number of
            # bf16 (2^-7 of it) or fp16; and a moment that is the next one moves a weight by that much of the learning rate.
            error = (ours - plain).abs()
            turned = error > 1e-5 * plain.abs() + 1e-8
            most = (2.0**-7 if narrow else 1e-5) * plain.abs() + (4 * 1e-2 * 2.0**-7 if name == "weight" else 1e-8)
            assert turned.double().mean() < 0.02 and (error <= most).all(), (kind, world, name, turned.sum(), error.max())


STAGES = {"both": 2, "states": 3}  # of what is saved


def trained(kind: str, stage: int, model: nn.Module | None = None, **others):
    import deepspeed

    torch.manual_seed(0)
    engine = deepspeed.initialize(model=model or Net(), config=config_of(kind, stage, **others))[0]
    for step in range(2):
        engine.backward(engine(tokens(step, engine.global_rank)))
        engine.step()
    return engine


def states_of(engine) -> dict[str, float]:
    from shoal import state

    kinds = ("weight", "first_moment", "second_moment")
    named = engine.module.named_parameters()
    return {f"{name} {kind}": state.read_param(param, kind).double().abs().sum().item() for name, param in named for kind in kinds}


def save_all(folder: str) -> dict:
    return {kind: save(f"{folder}/{kind}", kind, stage) for kind, stage in STAGES.items()}


def load_all(folder: str) -> dict:
    """At another stage than they were saved at."""
    return {kind: load(f"{folder}/{kind}", kind, 3 - stage) for kind, stage in STAGES.items()}


def save(folder: str, kind: str, stage: int) -> dict:
    engine = trained(kind, stage)
    engine.save_checkpoint(folder)
    found = states_of(engine)
    engine.destroy()
    return found


def load(folder: str, kind: str, stage: int) -> list:
    import deepspeed

    torch.manual_seed(1)
    said: list[str] = []
    deepspeed.utils.logger.warning, before = said.append, deepspeed.utils.logger.warning
    engine = deepspeed.initialize(model=Net(), config=config_of(kind, stage))[0]
    engine.load_checkpoint(folder)
    deepspeed.utils.logger.warning = before
    found = states_of(engine)
    engine.backward(engine(tokens(2, engine.global_rank)))
    engine.step()
    engine.destroy()
    return [found, [line for line in said if "rounded" in line]]


def dtypes_in(folder: str) -> dict[str, str]:
    """Of the states of rank 0."""
    path = next(Path(folder).glob("*/*zero_pp_rank_0_mp_rank_00_optim_states.pt"))
    part = torch.load(path, weights_only=False)["optimizer_state_dict"]
    weights = part.get("fp32_flat_groups", part.get("single_partition_of_fp32_groups"))
    inner = part.get("base_optimizer_state", part.get("optimizer_state_dict"))
    moments = [value for key, value in inner["state"][0].items() if key.startswith("exp_avg")]
    return {"weights": str(weights[0].dtype), "moments": str(moments[0].dtype)}


def test_checkpoints_in_deepspeeds_layout_hold_what_is_kept():
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    with tempfile.TemporaryDirectory() as folder:
        saved = run(__file__, "save_all", 2, folder=folder)[0]
        for kind in STAGES:
            dtypes = {"weights": "torch.bfloat16" if kind == "both" else "torch.float32", "moments": "torch.bfloat16"}
            assert dtypes_in(f"{folder}/{kind}") == dtypes, dtypes_in(f"{folder}/{kind}")
            whole = get_fp32_state_dict_from_zero_checkpoint(f"{folder}/{kind}")
            assert {value.dtype for value in whole.values()} == {torch.float32}
        for kind, (found, said) in run(__file__, "load_all", 1, folder=folder)[0].items():
            assert found == saved[kind] and said == [], (kind, said)


def save_and_round(folder: str) -> list[str]:
    save(folder, "masters", 1)
    return load(folder, "both", 1)[1]


def test_a_load_that_rounds_says_so():
    with tempfile.TemporaryDirectory() as folder:
        said = run(__file__, "save_and_round", 1, folder=folder)[0]
        assert len(said) == 2 and "keeps each first moment in torch.bfloat16" in said[0], said


def client_runs() -> dict:
    import deepspeed
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    def make(kind: str, optimizer, **others):
        asked = config_of(kind, 1, **others)
        asked.pop("optimizer")
        model = Net()
        return deepspeed.initialize(model=model, config=asked, optimizer=optimizer(model.parameters()))[0]

    def narrow(params):
        return DeepSpeedCPUAdam(params, lr=1e-2, fp32_optimizer_states=False)

    answers = {}
    for name, kind, optimizer in (("narrow", "masters", narrow), ("wide", "masters", DeepSpeedCPUAdam)):
        engine = make(kind, optimizer)
        engine.backward(engine(tokens(0, 0)))
        engine.step()
        answers[name] = [engine.bf16_master_weights_and_gradients(), engine.bf16_optimizer_states()]
        engine.destroy()
    answers["fp16"] = message(lambda: make("fp16", narrow))
    answers["torch"] = message(lambda: make("states", lambda params: torch.optim.RMSprop(params, lr=1e-3)))
    engine = make("masters", lambda params: torch.optim.RMSprop(params, lr=1e-2))
    before = engine.module.head.weight.detach().float().clone()
    engine.backward(engine(tokens(0, 0)))
    engine.step()
    answers["moved"] = not torch.equal(before, engine.module.head.weight.detach().float())
    engine.destroy()
    section = {"type": "Adam", "params": {"lr": 1e-2, "fp32_optimizer_states": False}}
    engine = trained("masters", 1, optimizer=section)
    answers["section"] = engine.bf16_optimizer_states()
    engine.destroy()
    return answers


def test_optimizers_of_the_client_have_the_states_that_they_ask_for():
    found = run(__file__, "client_runs", 1)[0]
    assert found["narrow"] == [True, True] and found["wide"] == [True, False] and found["section"] and found["moved"], found
    assert "false keeps the moments in fp16" in found["fp16"], found["fp16"]
    assert "[config bf16.bf16_optimizer_states] RMSprop, an optimizer of torch, keeps states of its own" in found["torch"], found


class Scaled(nn.Module):
    """Its loss is so large in the given steps that fp16 gradients overflow."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 1)

    def forward(self, x: torch.Tensor, factor: float) -> torch.Tensor:
        return (self.down(torch.relu(self.up(x))) * factor).float().mean()


FACTORS = [1.0, 1e4, 1.0, 3.0, 1.0]


def inputs(step: int, rank: int) -> torch.Tensor:
    return torch.randn(4, 16, generator=torch.Generator().manual_seed(1000 * step + rank))


def autocast_run(stage: int) -> dict:
    import deepspeed
    from deepspeed.runtime.fp16.loss_scaler import read_loss_scaler

    torch.manual_seed(0)
    model, seen = Scaled(), set()
    model.up.register_forward_hook(lambda module, args, out: seen.add(f"{module.weight.dtype} {out.dtype}"))
    asked = config_of("states", stage, gradient_clipping=0.5)
    asked.pop("bf16")
    asked |= {"torch_autocast": {"enabled": True, "dtype": "float16"}, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
    asked["fp16"] = {"enabled": False, "loss_scale": 7}  # DeepSpeed does not read it either
    engine = deepspeed.initialize(model=model, config=asked)[0]
    scales, losses = [engine.cur_scale], []
    for step, factor in enumerate(FACTORS):
        loss = engine(inputs(step, engine.global_rank), factor)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
        scales.append(engine.cur_scale)
    scaler = read_loss_scaler(engine)
    found = {"losses": losses, "scales": scales, "seen": sorted(seen), "skipped": engine.skipped_steps}
    found |= {"dynamic": engine.dynamic_loss_scale(), "window": scaler.scale_window, "enabled": engine.fp16_enabled()}
    found["weight"] = deepspeed.utils.safe_get_full_fp32_param(model.up.weight).double().sum().item()
    engine.destroy()
    return found


def autocast_runs() -> list:
    return [autocast_run(stage) for stage in (0, 3)]


def plain_autocast(world: int) -> dict:
    """By torch itself, with its own scaler."""
    torch.manual_seed(0)
    model = Scaled()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    scaler.scale(torch.zeros(1))  # it is made when it is first used
    scales, losses = [scaler.get_scale()], []
    for step, factor in enumerate(FACTORS):
        of_step = []
        for rank in range(world):
            with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
                loss = model(inputs(step, rank), factor)
            scaler.scale(loss).backward()
            of_step.append(loss.item())
        for param in model.parameters():
            param.grad /= world
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(of_step)
        scales.append(scaler.get_scale())
    return {"losses": losses, "scales": scales, "weight": model.up.weight.detach().double().sum().item()}


def test_torch_autocast_in_float16_scales_the_loss_as_torch_does():
    plain = plain_autocast(2)
    for rank, stages in enumerate(run(__file__, "autocast_runs", 2)):
        for found in stages:
            assert found == stages[0], stages
        found = stages[0]
        assert found["seen"] == ["torch.float32 torch.float16"] and found["dynamic"] and not found["enabled"], found
        halved = sum(after < before for before, after in zip(plain["scales"], plain["scales"][1:]))
        assert 1 <= halved < len(FACTORS) and found["skipped"] == halved and found["window"] == 2000, (found, plain)
        assert found["scales"] == plain["scales"], (found, plain)
        # One process adds the gradients of both ranks in another order, in fp32, and losses are of fp16: one place is 2^-10.
        for ours, theirs in zip(found["losses"], plain["losses"]):
            assert abs(ours - theirs[rank]) <= 2.0**-9 * max(1.0, abs(theirs[rank])), (found, plain)
        assert abs(found["weight"] - plain["weight"]) < 1e-4 * max(1.0, abs(plain["weight"])), (found, plain)


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))
