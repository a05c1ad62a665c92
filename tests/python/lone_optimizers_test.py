"""DeepSpeedCPUAdam, FusedAdam, Lion and Adagrad without an engine: against torch's own and against the formulas."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from ranks import main

STEPS = 6
SHAPES = ((), (1,), (7,), (33, 65), (3, 40001))  # the last is shared out over threads


def params_of(dtype: torch.dtype, seed: int = 0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in SHAPES]


def train(optimizer: torch.optim.Optimizer, schedule=None) -> list[nn.Parameter]:
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(100 + step)
        for param in params:
            param.grad = torch.randn(param.shape, generator=generator).to(param.dtype)
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return params


def apart(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
    """The largest difference, relative to the larger of 1 and the value."""
    return max(((a.float() - b.float()).abs() / b.float().abs().clamp(min=1)).max().item() for a, b in zip(first, second))


# Both round each operation to fp32, in another order: six steps of 1e-2 leave a few units in the last place of numbers near 1.
FP32 = 2e-6


def test_fp32_is_torchs_within_rounding():
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam

    options = {"lr": 1e-2, "weight_decay": 0.1}
    pairs = {
        "CPU AdamW": (DeepSpeedCPUAdam, {}, torch.optim.AdamW),
        "CPU Adam": (DeepSpeedCPUAdam, {"adamw_mode": False}, torch.optim.Adam),
        "fused AdamW": (FusedAdam, {"betas": (0.8, 0.95)}, lambda *a, **k: torch.optim.AdamW(*a, betas=(0.8, 0.95), **k)),
        "fused Adam": (FusedAdam, {"adam_w_mode": False}, torch.optim.Adam),
        "Adagrad": (DeepSpeedCPUAdagrad, {}, torch.optim.Adagrad),
    }
    for name, (ours, own, theirs) in pairs.items():
        found = apart(train(ours(params_of(torch.float32), **options, **own)), train(theirs(params_of(torch.float32), **options)))
        assert found < FP32, (name, found)


def lion_by_hand(params: list[nn.Parameter], lr: float, betas: tuple[float, float], decay: float) -> list[torch.Tensor]:
    values = [param.detach().double().clone() for param in params]
    moments = [torch.zeros_like(value) for value in values]
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(100 + step)
        for value, moment in zip(values, moments):
            grad = torch.randn(value.shape, generator=generator).double()
            value.mul_(1 - lr * decay).sub_(lr * torch.sign(betas[0] * moment + (1 - betas[0]) * grad))
            moment.mul_(betas[1]).add_((1 - betas[1]) * grad)
    return values


def test_lion_and_steps_without_correction_follow_their_formulas():
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion

    for kind in (DeepSpeedCPULion, FusedLion):
        found = train(kind(params_of(torch.float32), lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1))
        assert apart(found, lion_by_hand(params_of(torch.float32), 1e-2, (0.9, 0.99), 0.1)) < FP32
    param = nn.Parameter(torch.full((5,), 2.0))
    optimizer = DeepSpeedCPUAdam([param], lr=0.1, bias_correction=False)
    param.grad = torch.full((5,), 3.0)
    optimizer.step()
    first, second = 0.1 * 3.0, 0.001 * 9.0
    wanted = torch.full((5,), 2.0 - 0.1 * first / (second**0.5 + 1e-8))
    assert torch.allclose(param, wanted, rtol=1e-5), "1 - 0.999 is 1.3e-5 of itself away from 1 - 0.999f"


def wide_twin(dtype: torch.dtype, optimizer_of, rounded_states: bool) -> list[torch.Tensor]:
    """Weights, and states where they are kept so, in fp32, rounded to the dtype after each step."""
    params = [nn.Parameter(param.detach().float()) for param in params_of(dtype)]
    optimizer = optimizer_of(params)
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(100 + step)
        for param in params:
            param.grad = torch.randn(param.shape, generator=generator).to(dtype).float()
        optimizer.step()
        for param in params:
            param.data = param.detach().to(dtype).float()
            for key, value in optimizer.state[param].items():
                if rounded_states and torch.is_tensor(value):
                    optimizer.state[param][key] = value.to(dtype).float()
    return [param.detach().to(dtype) for param in params]


def test_sixteen_bits_are_fp32_rounded_once_a_step():
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
    from deepspeed.ops.lion import DeepSpeedCPULion

    for dtype in (torch.bfloat16, torch.float16):
        for kind in (DeepSpeedCPUAdam, DeepSpeedCPULion, DeepSpeedCPUAdagrad):
            for wide in (True, False):
                optimizer = kind(params_of(dtype), lr=1e-2, fp32_optimizer_states=wide)
                found = train(optimizer)
                states = {value.dtype for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)}
                assert states == {torch.float32 if wide else dtype} and found[0].dtype == dtype
                twin = wide_twin(dtype, lambda params, kind=kind: kind(params, lr=1e-2), not wide)
                assert all(torch.equal(a, b) for a, b in zip(found, twin)), (kind, dtype, wide)
        assert {value.dtype for value in _states(FusedAdam(params_of(dtype)))} == {dtype}


def _states(optimizer) -> list[torch.Tensor]:
    train(optimizer)
    return [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]


def test_groups_schedules_states_and_copies():
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    def groups(dtype: torch.dtype) -> list[dict]:
        params = params_of(dtype)
        return [{"params": params[:2], "lr": 1e-2, "weight_decay": 0.0}, {"params": params[2:], "weight_decay": 0.2}]

    found = []
    for kind in (DeepSpeedCPUAdam, torch.optim.AdamW):
        optimizer = kind(groups(torch.float32), lr=3e-3)
        found.append(train(optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)))
    assert apart(*found) < FP32

    first = DeepSpeedCPUAdam(groups(torch.bfloat16), lr=3e-3, adamw_mode=False)
    train(first)
    second = DeepSpeedCPUAdam(groups(torch.bfloat16), lr=1.0, adamw_mode=False)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert {value.dtype for value in _states(second)} == {torch.float32}, "states stay fp32"
    assert second.param_groups[1]["lr"] == 3e-3
    twin = copy.deepcopy(first)
    assert twin.adam_w_mode is False and twin.kind == "adam"
    for a, b in zip(train(first), train(twin)):
        assert torch.equal(a, b)


def test_what_is_not_contiguous_or_has_no_gradient_is_stepped_or_left():
    from deepspeed.ops.adam import FusedAdam

    base = torch.randn(6, 9)
    across, along = nn.Parameter(base.t()), nn.Parameter(base.t().contiguous())
    idle = nn.Parameter(torch.ones(3))
    optimizer = FusedAdam([across, along, idle], lr=0.1)
    for _ in range(3):
        grad = torch.randn(9, 6)
        across.grad, along.grad = grad, grad.t().contiguous().t()
        assert optimizer.step(lambda: "the loss") == "the loss"
    assert torch.equal(across, along) and torch.equal(idle, torch.ones(3)) and not optimizer.state[idle]
    optimizer.zero_grad()
    assert across.grad is None


def test_sparse_gradients_update_rows():
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad

    torch.manual_seed(0)
    table, twin = nn.Embedding(9, 4, sparse=True), nn.Embedding(9, 4)
    twin.load_state_dict(table.state_dict())
    ours, theirs = DeepSpeedCPUAdagrad(table.parameters(), lr=0.1), torch.optim.Adagrad(twin.parameters(), lr=0.1)
    for _ in range(3):
        for module, optimizer in ((table, ours), (twin, theirs)):
            optimizer.zero_grad()
            module(torch.tensor([1, 4, 4, 7])).pow(2).sum().backward()
            optimizer.step()
    assert apart([table.weight.detach()], [twin.weight.detach()]) < FP32


def refusal(action) -> str:
    try:
        action()
    except (RuntimeError, TypeError) as error:
        return str(error)
    raise AssertionError("it was accepted")


def test_what_they_do_not_do_is_refused():
    import deepspeed
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam

    params = [nn.Parameter(torch.ones(3))]
    for kind in (FusedAdam, DeepSpeedCPUAdam, DeepSpeedCPUAdagrad):
        assert "AMSGrad" in refusal(lambda kind=kind: kind(params, amsgrad=True))
    assert "AMSGrad" in refusal(lambda: DeepSpeedCPUAdam([{"params": params, "amsgrad": True}]))
    assert "closure alone" in refusal(lambda: FusedAdam(params).step(scale=2.0))
    wide = nn.Parameter(torch.ones(3, dtype=torch.float64))
    wide.grad = torch.ones(3, dtype=torch.float64)
    assert "float64" in refusal(DeepSpeedCPUAdam([wide]).step)
    table = nn.Embedding(3, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    assert "sparse" in refusal(DeepSpeedCPUAdam(table.parameters()).step)
    model = nn.Linear(2, 2)
    optimizer = DeepSpeedCPUAdam(model.parameters())
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config={"train_batch_size": 1})[0]
    assert engine.optimizer is optimizer and "engine.step()" in refusal(optimizer.step)
    engine.destroy()
    optimizer.step()


def test_the_formulas_for_gpus_are_those_of_the_kernels():
    from deepspeed.ops import foreach_formulas
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    from deepspeed.ops.lion import DeepSpeedCPULion

    for make in (
        lambda params: DeepSpeedCPUAdam(params, lr=1e-2, weight_decay=0.1),
        lambda params: DeepSpeedCPUAdam(params, lr=1e-2, weight_decay=0.1, adamw_mode=False, bias_correction=False),
        lambda params: DeepSpeedCPUAdagrad(params, lr=1e-2, weight_decay=0.1),
        lambda params: DeepSpeedCPULion(params, lr=1e-2, weight_decay=0.1),
    ):
        for dtype, tolerance in ((torch.float32, FP32), (torch.bfloat16, 2.0**-7)):  # a unit in the last place of bf16
            ours, other = make(params_of(dtype)), make(params_of(dtype))

            def by_formula() -> None:
                params = other.param_groups[0]["params"]
                for param in params:
                    other._state_of(param)["step"] += 1
                states = [[other.state[param][key] for param in params] for key in other.state_names]
                step = other.state[params[0]]["step"]
                with torch.no_grad():
                    foreach_formulas.update(other.kind, params, states, step, other.param_groups[0])

            found = train(ours)
            other.step = by_formula
            difference = apart(found, train(other))
            assert difference <= tolerance, (ours.kind, dtype, difference)


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))
