"""No argument of the package `deepspeed` is dropped in silence: each is read, refused by name, or listed here with why."""

from __future__ import annotations

import ast
import logging
import math
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from ranks import main

# Arguments that a function takes and does not read, and why that is right.
UNREAD = {
    "accelerator.torch_accelerator.pin_memory align_bytes": "pinned memory begins at a page",
    "absent_names.__call__": "refused as a whole",
    "absent_names.__getitem__ key": "refused as a whole",
    "absent_names.refuse_instance": "refused as a whole",
    "api.init_inference": "refused as a whole",
    "api.tp_model_init": "refused as a whole",
    "comm.init_distributed verbose": "there is nothing to say",
    "comm.allgather_fn debug": "the log's own setting says whether callers are named",
    "comm.logged.wrapper debug": "the log's own setting says whether callers are named",
    "comm.reduce_scatter_fn debug": "the log's own setting says whether callers are named",
    "monitor.base.write_events event_list": "a monitor of somebody's own has the body",
    "monitor.comet.write_events event_list": "one that is off writes nothing",
    "ops.foreach_formulas._adagrad_step step": "the formula does not count steps",
    "ops.foreach_formulas._lion_step step": "the formula does not count steps",
    "ops.kernel_optimizer.state_dtype param": "states are fp32 unless a class says otherwise",
    "ops.kernel_optimizer._update_rows": "refused as a whole",
    "ops.op_builder.is_compatible verbose": "there is nothing to say",
    "ops.op_builder.load verbose": "refused as a whole",
    "profiling.flops_profiler.formulas.attention result": "all formulas are called alike",
    "profiling.flops_profiler.formulas.einsum kwargs": "all formulas are called alike",
    "profiling.flops_profiler.formulas.einsum result": "all formulas are called alike",
    "profiling.flops_profiler.formulas.formula result": "all formulas are called alike",
    "profiling.flops_profiler.formulas.linear result": "all formulas are called alike",
    "profiling.flops_profiler.profiler.begin args": "a hook of torch, which says more than this one asks",
    "profiling.flops_profiler.profiler.finish output": "a hook of torch, which says more than this one asks",
    "runtime.accumulation.zero_grad set_to_none": "gradients are the engine's, and gone after a step",
    "runtime.base_optimizer.add_param_group": "refused as a whole",
    "runtime.base_optimizer.load_state_dict": "DeepSpeed's further arguments choose between ways of loading states",
    "runtime.checkpoint_saved.take_names engine": "has something to do for checkpoints of stage 0 alone",
    "runtime.checkpoint_plain.inner rank": "one state dict serves all ranks",
    "runtime.checkpoint_plain.wholes meta": "its values are read whole in any case",
    "runtime.checkpoint_universal.wholes meta": "its values are read whole in any case",
    "runtime.checkpoint_universal.inner rank": "one state dict serves all ranks",
    "runtime.engine.allreduce_gradients": "gradients are reduced in backward",
    "runtime.engine.offload_states": "refused as a whole",
    "runtime.engine.reload_states": "refused as a whole",
    "utils.timer.__call__ name": "of timers that do nothing",
    "utils.timer.elapsed kwargs": "of timers that do nothing",
    "utils.timer.get_mean": "of timers that do nothing; DeepSpeed's own does not read `reset` either",
    "utils.timer.log": "of timers that do nothing; DeepSpeed's own does not read `memory_breakdown` either",
    "utils.timer.stop": "of timers that do nothing; DeepSpeed's own does not read `reset` and `record` either",
    "runtime.zero.local_part.__torch_function__ types": "one class of ours is looked for among the arguments",
    "runtime.zero.local_part.__deepcopy__ memo": "a copy has nothing to share",
    "runtime.zero.parameter_offload.get_param_coordinator training": "one order serves both",
    "runtime.zero.parameter_offload._register_deepspeed_module": "hooks were never taken off",
    "runtime.zero.partition_parameters.__init__ mem_efficient_linear": "no function of torch is replaced",
    "runtime.zero.partition_parameters.__call__": "a hook of torch, which says more than this one asks",
    "runtime.zero.partition_parameters.__deepcopy__ memo": "a copy has nothing to share",
}


def unread(folder: Path) -> list[str]:
    """Every "module.function argument" that the function's body does not name."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        parts = [part for part in path.relative_to(folder).with_suffix("").parts if part != "__init__"]
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            taken = node.args.args + node.args.kwonlyargs + [each for each in (node.args.vararg, node.args.kwarg) if each]
            names = {inner.id for line in node.body for inner in ast.walk(line) if isinstance(inner, ast.Name)}
            place = ".".join([*parts, node.name])
            found += [f"{place} {each.arg}" for each in taken if each.arg not in names and each.arg not in ("self", "cls")]
    return found


def test_every_argument_is_read_or_listed():
    import deepspeed

    found = unread(Path(deepspeed.__file__).parent)
    unlisted = [each for each in found if each not in UNREAD and each.split()[0] not in UNREAD]
    assert not unlisted, f"read these, refuse them by name, or list them with a reason: {unlisted}"
    gone = [each for each in UNREAD if each not in found and each not in {place.split()[0] for place in found}]
    assert not gone, f"these are read now, or no longer there: {gone}"


def refusal(action) -> str:
    import shoal

    try:
        action()
    except (shoal.Error, TypeError) as error:
        return str(error)
    raise AssertionError("it was accepted")


def test_what_cannot_be_done_is_refused_by_name():
    import deepspeed
    from deepspeed.ops.adam import FusedAdam

    params = [nn.Parameter(torch.zeros(2))]
    assert "unheard_of" in refusal(lambda: FusedAdam(params, unheard_of=1))
    assert "remote_device='nvme'" in refusal(lambda: deepspeed.zero.Init(remote_device="nvme"))
    assert "mpu" in refusal(lambda: deepspeed.zero.Init(mpu=object()))
    assert "zero_quantized_weights" in refusal(lambda: deepspeed.zero.Init(zero_quantized_weights=True))
    assert "set the key in the config" in refusal(lambda: deepspeed.zero.Init(zero_quantized_nontrainable_weights=True))
    assert "mpu_" in refusal(lambda: deepspeed.checkpointing.configure(mpu_=object()))
    config = {"train_batch_size": 1, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 1}}
    engine = deepspeed.initialize(model=nn.Linear(2, 2), config=config)[0]
    assert "custom_load_fn" in refusal(lambda: engine.load_checkpoint("nowhere", custom_load_fn=print))
    assert "allreduce_gradients" in refusal(lambda: engine.backward(torch.ones(1), allreduce_gradients=False))
    assert "release" in refusal(lambda: engine.backward(torch.ones(1), release=True))
    assert "closure" in refusal(lambda: engine.optimizer.step(print))
    assert "schedule" in refusal(lambda: engine.compile(schedule=[(0, [])]))
    assert "compiled_autograd_enabled" in refusal(lambda: engine.compile(compiled_autograd_enabled=True))


def test_what_has_no_effect_is_warned_of_by_name():
    import deepspeed

    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    logging.getLogger("DeepSpeed").addHandler(handler)
    deepspeed.zero.Init(remote_device="cpu", pin_memory=True)
    deepspeed.checkpointing.configure(num_checkpoints=3, deepspeed_config={"activation_checkpointing": {"synchronize_checkpoint_boundary": True}})
    deepspeed.checkpointing.configure(None, partition_activations=False, profile=False)
    logging.getLogger("DeepSpeed").removeHandler(handler)
    for name in ("remote_device", "pin_memory", "num_checkpoints", "synchronize"):
        assert len([line for line in heard if name in line]) == 1, (name, heard)
    assert not [line for line in heard if "partition_activations" in line or "profile" in line]


def test_the_loader_of_deepspeed_io_takes_what_is_given():
    import deepspeed

    config = {"train_batch_size": 2, "optimizer": {"type": "AdamW"}, "dataloader_drop_last": True}
    data = list(range(7))
    engine, _, loader, _ = deepspeed.initialize(model=nn.Linear(2, 2), config=config, training_data=data)
    assert len(loader) == 3 and sorted(set(torch.cat(list(loader)).tolist())) != data
    ordered = engine.deepspeed_io(data, batch_size=3, route="eval", collate_fn=tuple)
    assert list(ordered) == [(0, 1, 2), (3, 4, 5)]
    chosen = engine.deepspeed_io(data, batch_size=1, data_sampler=[5, 6], collate_fn=tuple)
    assert list(chosen) == [(5,), (6,)]


RATES = (0.01, 0.002)


def two_groups() -> torch.optim.Optimizer:
    params = [nn.Parameter(torch.zeros(1)) for _ in RATES]
    return torch.optim.Adam([{"params": [param], "lr": rate} for param, rate in zip(params, RATES)])


def follow(schedule, steps: int) -> list[list[float]]:
    """The rates of both groups after each step."""
    found = []
    for _ in range(steps):
        schedule.step()
        assert schedule.get_last_lr() == [group["lr"] for group in schedule.optimizer.param_groups]
        found.append(schedule.get_last_lr())
    return found


def expect(found: list[list[float]], formula) -> None:
    """formula: of a group's number and of how many steps came before, DeepSpeed's last_batch_iteration."""
    for before, rates in enumerate(found):
        for group, rate in enumerate(rates):
            wanted = formula(group, before)
            assert math.isclose(rate, wanted, rel_tol=1e-12, abs_tol=1e-15), (group, before, rate, wanted)


def test_schedules_take_their_arguments_in_deepspeeds_order():
    from deepspeed.runtime.lr_schedules import LRRangeTest, WarmupCosineLR, WarmupDecayLR, WarmupLR

    def rise(before: int) -> float:  # linear, over 4 steps
        return min(1.0, before / 4)

    expect(follow(WarmupLR(two_groups(), 0.001, 0.02, 4, "linear"), 7), lambda _, i: 0.001 + 0.019 * rise(i))
    expect(follow(WarmupLR(two_groups(), 0.001, 0.02, 4), 7), lambda _, i: 0.001 + 0.019 * min(1.0, math.log(i + 1) / math.log(4)))
    expect(follow(WarmupLR(two_groups()), 5), lambda group, i: RATES[group] * math.log(i + 1) / math.log(1000))
    expect(follow(WarmupLR(two_groups(), 0.001, 0.02, 4, "linear", 1), 3), lambda _, i: 0.001 + 0.019 * rise(i + 2))

    def decayed(before: int) -> float:
        return rise(before) if before < 4 else max(0.0, (10 - before) / 6)

    expect(follow(WarmupDecayLR(two_groups(), 10, 0.001, 0.02, 4, "linear"), 13), lambda _, i: 0.001 + 0.019 * decayed(i))
    expect(follow(WarmupDecayLR(two_groups(), 2000), 3), lambda _, i: 0.001 * math.log(i + 1) / math.log(1000))
    expect(follow(WarmupDecayLR(two_groups(), 10, 0.0, None, 4, "linear"), 9), lambda group, i: RATES[group] * decayed(i))

    def cosine(before: int) -> float:
        if before < 4:
            return 0.1 + 0.9 * rise(before)
        return 0.05 + 0.95 * (1 + math.cos(math.pi * min(1.0, (before - 3) / 6))) / 2

    expect(follow(WarmupCosineLR(two_groups(), 10, 0.1, 4, 0.05, "linear"), 13), lambda group, i: RATES[group] * cosine(i))

    def range_test(before: int) -> float:
        return 0.003 * (1 + 2.5 * math.floor((before + 1) / 4))

    expect(follow(LRRangeTest(two_groups(), 0.003, 4, 2.5, True), 9), lambda _, i: range_test(i))
    expect(follow(LRRangeTest(two_groups(), 0.003, 4, 2.5), 9), lambda _, i: 0.003 * (1 + 2.5 * (i + 1) / 4))


def test_two_schedules_are_those_of_transformers():
    from deepspeed.runtime.lr_schedules import WarmupCosineRestartsLR, WarmupStableDecayLR
    from transformers.optimization import get_cosine_with_hard_restarts_schedule_with_warmup, get_wsd_schedule

    def expect_like(ours, theirs) -> None:
        rates = []
        for _ in range(14):
            theirs.optimizer.step()
            theirs.step()
            rates.append(theirs.get_last_lr())
        expect(follow(ours, 14), lambda group, before: rates[before][group])

    steps = {"warmup_num_steps": 3, "total_num_steps": 12}
    for curve in ("linear", "cosine", "1-sqrt"):
        expect_like(
            WarmupStableDecayLR(two_groups(), **steps, decay_num_steps=5, decay_type=curve, min_lr_ratio=0.1),
            get_wsd_schedule(two_groups(), 3, 5, num_training_steps=12, decay_type=curve, min_lr_ratio=0.1),
        )
    for cycles in (1, 3):
        expect_like(
            WarmupCosineRestartsLR(two_groups(), **steps, num_cycles=cycles),
            get_cosine_with_hard_restarts_schedule_with_warmup(two_groups(), 3, 12, cycles),
        )


def test_one_cycle_takes_its_arguments_in_deepspeeds_order():
    from deepspeed.runtime.lr_schedules import OneCycle

    def height(before: int, stairs: int) -> float:  # up in 4 steps, down in 2
        at = (before + 1) % 6
        part = at / 4 if at <= 4 else (6 - at) / 2
        return math.floor(part * stairs) / stairs if stairs else part

    for stairs in (0, 2):
        schedule = OneCycle(two_groups(), 0.001, 0.02, 0.5, 4, 2, stairs, None, 3, True, 0.7, 0.95, 0.25)
        for before in range(10):
            schedule.step()
            after = (before - 5) / 3  # in intervals of the decay, from the cycle's end
            rate = 0.001 + 0.019 * height(before, stairs) if before < 6 else 0.001 / (1 + 0.5 * after)
            momentum = 0.95 - 0.25 * height(before, stairs) if before < 6 else 0.95 * (1 + 0.25 * after)
            for group in schedule.optimizer.param_groups:
                assert math.isclose(group["lr"], rate, rel_tol=1e-12), (stairs, before, group["lr"], rate)
                assert math.isclose(group["betas"][0], momentum, rel_tol=1e-12) and group["betas"][1] == 0.99, (before, group["betas"])
    schedule = OneCycle(two_groups(), 0.001, 0.02, 0.0, 4, 2, 0, None, 0, False)
    schedule.step(batch_iteration=3)
    expect([schedule.get_last_lr()], lambda _, i: 0.02)
    assert [group["betas"] for group in schedule.optimizer.param_groups] == [(0.9, 0.999)] * 2 and schedule.last_batch_iteration == 3


def test_schedules_take_a_rate_for_each_group():
    import deepspeed
    from deepspeed.runtime.lr_schedules import LRRangeTest, OneCycle, WarmupDecayLR, WarmupLR

    low, high = (0.001, 0.0), [0.02, 0.04]
    expect(follow(WarmupLR(two_groups(), low, high, 4, "linear"), 7), lambda g, i: low[g] + (high[g] - low[g]) * min(1.0, i / 4))
    expect(follow(WarmupDecayLR(two_groups(), 10, 0.0, high, 4, "linear"), 4), lambda g, i: high[g] * i / 4)
    expect(follow(LRRangeTest(two_groups(), high, 4), 5), lambda g, i: high[g] * (1 + (i + 1) / 4))
    expect(follow(OneCycle(two_groups(), low, high, 0.0, 4, cycle_min_mom=[0.8, 0.8]), 4), lambda g, i: low[g] + (high[g] - low[g]) * (i + 1) / 4)
    assert "warmup_max_lr] has 3 values for 2 groups" in refusal(lambda: WarmupLR(two_groups(), 0, [0.1, 0.2, 0.3]))
    assert "total_num_steps" in refusal(lambda: WarmupDecayLR(two_groups()))

    def engine_with(kind="WarmupLR", **params):
        layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        optimizer = torch.optim.AdamW([{"params": layer.parameters(), "lr": rate} for layer, rate in zip(layers, RATES)])
        config = {"train_batch_size": 1, "scheduler": {"type": kind, "params": params}}
        return deepspeed.initialize(model=layers, optimizer=optimizer, config=config)[0]

    engine = engine_with(warmup_max_lr=high, warmup_num_steps=4, warmup_type="linear")
    rates = []
    for _ in range(3):
        engine.backward(engine(torch.ones(1, 2)).sum())
        engine.step()
        rates.append(engine.get_lr())
    expect(rates, lambda g, i: high[g] * i / 4)
    assert "unheard_of" in refusal(lambda: engine_with(unheard_of=1))
    unlike = {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2, "cycle_max_mom": [0.8, 0.9]}
    assert "one momentum for all groups" in refusal(lambda: engine_with("OneCycle", **unlike))
    engine.basic_optimizer.param_groups[1]["betas"] = (0.5, 0.99)
    engine.backward(engine(torch.ones(1, 2)).sum())
    assert "one pair for all groups" in refusal(engine.step)


def test_schedules_have_deepspeeds_attributes_and_errors():
    from deepspeed.runtime.lr_schedules import LRRangeTest, OneCycle, WarmupCosineLR, WarmupDecayLR, WarmupLR

    warm = WarmupLR(two_groups(), 0.001, None, 1)
    assert (warm.warmup_num_steps, warm.min_lrs, warm.max_lrs) == (2, [0.001, 0.001], list(RATES)), vars(warm)
    assert warm.get_last_lr() == [0.001, 0.001] and math.isclose(warm.inverse_log_warm_up, 1 / math.log(2))
    assert isinstance(WarmupDecayLR(two_groups(), 10), WarmupLR) and WarmupDecayLR(two_groups(), 10).total_num_steps == 10
    later = WarmupLR(two_groups(), 0.5, 0.7, 4, "linear", last_batch_iteration=2)
    assert [group["lr"] for group in later.optimizer.param_groups] == list(RATES), "the rates of before, until a step"

    cosine = WarmupCosineLR(two_groups(), 10, 0.1, 4, 0.05, "linear")
    assert cosine.org_lrs == list(RATES) and cosine.get_lr_ratio() == 0.0
    for _ in range(12):
        cosine.step()
        wanted = [lr * cosine.get_lr_ratio() for lr in RATES]
        assert all(math.isclose(a, b, rel_tol=1e-12) for a, b in zip(cosine.get_last_lr(), wanted))
    assert math.isclose(cosine.get_lr_ratio(), 0.05)

    cycle = OneCycle(two_groups(), 0.1, 0.2, cycle_first_step_size=4, cycle_min_mom=[0.5, 0.8], cycle_max_mom=[0.9, 0.9])
    assert cycle.total_size == 8 and cycle.min_lrs == [0.1, 0.1] and cycle.max_moms == [(0.9, 0.99)] * 2
    cycle.step()
    assert cycle.get_mom() == [group["betas"] for group in cycle.optimizer.param_groups]
    assert all(math.isclose(a[0], b) and a[1] == 0.99 for a, b in zip(cycle.get_mom(), (0.8, 0.875)))
    assert OneCycle(two_groups(), 0.1, 0.2, cycle_momentum=False).get_mom() is None
    assert OneCycle(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0), 0.1, 0.2).get_mom() is None

    param = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([param], lr=torch.tensor(0.5))
    kept = optimizer.param_groups[0]["lr"]
    schedule = WarmupLR(optimizer, torch.tensor(0.25), torch.tensor([1.0]), 4, "linear")
    assert kept.item() == 0.25
    for _ in range(3):
        schedule.step()
    assert optimizer.param_groups[0]["lr"] is kept and math.isclose(kept.item(), 0.25 + 0.75 * 2 / 4), kept

    for wrong in (
        lambda: WarmupLR(two_groups(), 0, [0.1, 0.2, 0.3]),
        lambda: WarmupLR(two_groups(), warmup_num_steps=-1),
        lambda: WarmupLR(two_groups(), warmup_num_steps=2.5),
        lambda: WarmupCosineLR(two_groups(), 10, warmup_num_steps=-3),
        lambda: LRRangeTest(two_groups(), lr_range_test_step_size=0),
        lambda: LRRangeTest(two_groups(), [0.1]),
        lambda: OneCycle(two_groups(), 0.1, 0.2, cycle_first_step_size=0),
        lambda: OneCycle(two_groups(), 0.1, 0.2, cycle_second_step_size=-1),
    ):
        try:
            wrong()
        except ValueError as error:
            assert isinstance(error, RuntimeError) and str(error).startswith("["), error
        else:
            raise AssertionError("it was accepted")
    try:
        WarmupLR(object())
    except TypeError as error:
        assert "object is not a torch.optim.Optimizer" in str(error)
    else:
        raise AssertionError("it was accepted")


if __name__ == "__main__":
    main(globals())
