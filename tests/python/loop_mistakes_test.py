"""Loops whose mistakes were silent: settings, states, gradients and hooks that an engine cannot take are an error that names them, and
what it can take is taken as plain torch does."""

from __future__ import annotations

import argparse
import contextlib
import copy
import os
import pickle
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Callable

import torch
from torch import nn
from torch.nn.utils import clip_grad
from torch.testing._internal.two_tensor import TwoTensor

sys.path.insert(0, str(Path(__file__).parent))
from models import largest_difference
from ranks import main, run

WIDTH = 8
STAGES = (0, 1, 2, 3)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return self.last(x).square().mean()


def batch(step: int, rank: int) -> torch.Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))


def model_of_seed() -> Model:
    torch.manual_seed(0)
    return Model()


def make(stage: int, model: nn.Module, optimizer: Any = None, **more: Any) -> Any:
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": more.pop("accumulation", 1),
        "gradient_clipping": 0,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
    }
    if optimizer is None:
        config["optimizer"] = {"type": "SGD", "params": {"lr": 0.1}}
    return deepspeed.initialize(model=model, config=config, optimizer=optimizer, **more)[0]


def step(engine: Any, number: int) -> None:
    engine.backward(engine(batch(number, int(os.environ["RANK"]))))
    engine.step()


def step_plain(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    world = int(os.environ["WORLD_SIZE"])
    for rank in range(world):
        (model(batch(number, rank)) / world).backward()
    optimizer.step()
    optimizer.zero_grad()


def weights(model: nn.Module) -> list[float]:
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        return torch.cat([param.detach().flatten() for param in model.parameters()]).tolist()


def said(call: Callable[[], Any]) -> str:
    try:
        call()
    except (RuntimeError, TypeError) as error:
        return str(error)
    return "nothing was raised"


def expect(call: Callable[[], Any], *parts: str) -> None:
    text = said(call)
    for part in parts:
        assert part in text, f"{part!r} is not in {text!r}"


def refused(stage: int, make_optimizer: Callable, change: Callable, *parts: str) -> None:
    """A step after a change of the optimizer says these; a step before it goes well."""
    model = model_of_seed()
    optimizer = make_optimizer(model)
    engine = make(stage, model, optimizer)
    step(engine, 0)
    change(optimizer, model)
    expect(engine.step, "[step] ", *parts)
    engine.destroy()


def written(key: str, value: Any) -> Callable:
    return lambda optimizer, model: optimizer.param_groups[-1].update({key: value})


def two_groups(kind: type) -> Callable:
    return lambda model: kind([{"params": list(model.blocks.parameters())}, {"params": list(model.last.parameters())}], lr=0.1)


def move(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    optimizer.param_groups[1]["params"].append(optimizer.param_groups[0]["params"].pop())


def settings(stage: int) -> None:
    adamw, sgd = torch.optim.AdamW, torch.optim.SGD
    refused(stage, two_groups(adamw), written("eps", 1.0), "eps", "group 1 is 1.0 now and was 1e-08", "class Own(torch.optim.AdamW): pass")
    refused(stage, two_groups(adamw), written("amsgrad", True), "amsgrad", "is True now and was False")
    refused(stage, two_groups(sgd), written("momentum", 0.5), "momentum", "is 0.5 now and was 0", "cycle_momentum=False")
    for key, value in (("maximize", True), ("dampening", 0.5), ("nesterov", True)):
        refused(stage, two_groups(sgd), written(key, value), f"[step] {key} ", f"is {value} now")
    refused(stage, two_groups(sgd), written("lr", float("nan")), "group 1", "nan")
    for kind in (sgd, torch.optim.RMSprop):  # the engine's, and one that runs itself
        refused(stage, two_groups(kind), move, "blocks.1.bias is in number 1", "was in number 0", "call initialize again")
        add = lambda optimizer, model: optimizer.add_param_group({"params": [model.last.bias]})  # noqa: E731
        refused(stage, lambda model: kind(model.blocks.parameters(), lr=0.1), add, "last.bias is in number 1", "was in none")
    late = lambda optimizer, model: optimizer.state[model.last.bias].update(exp_avg=torch.zeros(1))  # noqa: E731
    refused(stage, two_groups(adamw), late, "states were put into AdamW", "engine.load_checkpoint")


def cycled(schedule: str, optimizer: torch.optim.Optimizer) -> Any:
    if schedule == "one cycle":
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=6)
    return torch.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.01, max_lr=0.2, step_size_up=2)


def momentum_of_a_schedule(stage: int | None, schedule: str) -> list[float]:
    model = model_of_seed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    made = cycled(schedule, optimizer)
    engine = make(stage, model, optimizer, lr_scheduler=made) if stage is not None else None
    for number in range(4):
        if engine is not None:
            step(engine, number)
        else:
            step_plain(model, optimizer, number)
            made.step()
    found = weights(model)
    if engine is not None:
        engine.destroy()
    return found


def added_group(stage: int | None) -> list[float]:
    """One that takes all that was in no group."""
    model = model_of_seed()
    optimizer = torch.optim.SGD(model.blocks.parameters(), lr=0.1)
    engine = make(stage, model, optimizer) if stage is not None else None
    for number in range(4):
        if number == 2:
            optimizer.add_param_group({"params": list(model.last.parameters()), "lr": 0.2})
        step(engine, number) if engine is not None else step_plain(model, optimizer, number)
        model.zero_grad()
    found = weights(model)
    if engine is not None:
        engine.destroy()
    return found


def optimizer_named(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    from deepspeed.ops.adam import FusedAdam
    from deepspeed.ops.lion import FusedLion

    params = list(model.parameters())
    made = {
        "AdamW": lambda: torch.optim.AdamW(params, lr=0.01),
        "SGD": lambda: torch.optim.SGD(params, lr=0.1, momentum=0.9),
        "Adagrad": lambda: torch.optim.Adagrad(params, lr=0.1),
        "NAdam": lambda: torch.optim.NAdam(params, lr=0.01),  # runs itself
        "FusedAdam": lambda: FusedAdam(params, lr=0.01),
        "FusedLion": lambda: FusedLion(params, lr=0.01),
    }
    return made[kind]()


def stepped_before(stage: int | None, kind: str) -> list[float]:
    """Two steps before initialize, the second by an optimizer that loaded the state of the first, and two after it."""
    model = model_of_seed()
    optimizer = optimizer_named(kind, model)
    step_plain(model, optimizer, 90)
    loaded = optimizer_named(kind, model)
    loaded.load_state_dict(optimizer.state_dict())
    step_plain(model, loaded, 91)
    engine = make(stage, model, loaded) if stage is not None else None
    for number in range(2):
        step(engine, number) if engine is not None else step_plain(model, loaded, number)
    found = weights(model)
    if engine is not None:
        engine.destroy()
    return found


def states_in_part(stage: int) -> None:
    model = model_of_seed()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model.last(torch.ones(WIDTH)).sum().backward()
    optimizer.step()
    expect(lambda: make(stage, model, optimizer), "[optimizer] AdamW has states of 2 of its 6 trained parameters", "without states")
    step_plain(model, optimizer, 0)
    expect(lambda: make(stage, model, optimizer), "[optimizer] AdamW has parameters of 1 and of 2 steps")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(batch(0, int(os.environ["RANK"]))).backward()
    optimizer.step()
    expect(lambda: make(stage, model, optimizer), "[optimizer] AdamW has other states on rank 1 than on rank 0")


def gradients_by_hand(stage: int) -> None:
    model, other = model_of_seed(), nn.Linear(2, 2)
    own = (nn.utils.clip_grad_norm_, clip_grad.clip_grad_norm_, nn.utils.clip_grad_value_, clip_grad.clip_grad_value_)
    engine = make(stage, model)
    assert nn.utils.clip_grad_norm_.__doc__ == own[0].__doc__
    engine.backward(engine(batch(0, 0)))
    assert all(param.grad is None for param in model.parameters())
    for clip in (nn.utils.clip_grad_norm_, clip_grad.clip_grad_norm_, nn.utils.clip_grad_value_, clip_grad.clip_grad_value_):
        expect(lambda: clip(model.parameters(), 1.0), "blocks.0.weight is an engine's", '"gradient_clipping" in the config')
        expect(lambda: clip(model.last.bias, 1.0), "last.bias is an engine's")
    other(torch.ones(2)).sum().backward()
    assert abs(nn.utils.clip_grad_norm_(other.parameters(), 0.5).item() - 6**0.5) < 1e-6
    assert abs(torch.cat([param.grad.flatten() for param in other.parameters()]).norm().item() - 0.5) < 1e-5
    nn.utils.clip_grad_value_(other.weight, 0.01)
    assert other.weight.grad.max().item() <= 0.01 < other.bias.grad.max().item()
    model.last.bias.grad = torch.ones(1)
    expect(engine.step, "[step] last.bias.grad was set by hand", "engine.backward", "safe_set_full_grad")
    model.last.bias.grad = None
    engine.step()
    engine.destroy()
    assert (nn.utils.clip_grad_norm_, clip_grad.clip_grad_norm_, nn.utils.clip_grad_value_, clip_grad.clip_grad_value_) == own


def optimizer_hooks(stage: int, kind: str) -> None:
    model = model_of_seed()
    optimizer = optimizer_named(kind, model)
    engine = make(stage, model, optimizer, accumulation=2)
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *given: seen.append("before"))
    optimizer.register_step_post_hook(lambda *given: seen.append("after"))
    wanted = ["before", "after"]
    if engine.optimizer is not optimizer:
        engine.optimizer.register_step_pre_hook(lambda *given: seen.append("first"))
        engine.optimizer.register_step_post_hook(lambda *given: seen.append("last"))
        wanted = ["first", *wanted, "last"]
    for number in range(4):
        step(engine, number)
    assert seen == 2 * wanted, (stage, kind, seen)
    engine.destroy()


def parameter_hooks(stage: int | None) -> list[float]:
    """What is said of hooks that would see no gradient; and those of register_hook, which work."""
    model = model_of_seed()
    for param in model.parameters():
        param.register_hook(lambda grad: 0.5 * grad)
    if stage is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(2):
            step_plain(model, optimizer, number)
        return weights(model)
    engine = make(stage, model)
    step(engine, 0)
    loss = engine(batch(1, int(os.environ["RANK"])))
    handle = model.last.bias.register_post_accumulate_grad_hook(lambda param: param.grad.mul_(0.5))
    for call in (lambda: engine.backward(loss), lambda: engine(batch(1, 0))):
        expect(call, "[backward] last.bias has a hook of register_post_accumulate_grad_hook", "they see no p.grad", "register_hook")
    handle.remove()
    engine.backward(loss)
    engine.step()
    found = weights(model)
    engine.destroy()
    return found


def two_engines(stage: int) -> None:
    model = model_of_seed()
    first = make(stage, model)
    step(first, 0)
    expect(lambda: make(stage, model), "[initialize] another engine holds blocks.0.weight", "destroy()")
    expect(lambda: make(stage, nn.Sequential(model.last)), "another engine holds 0.weight")
    step(first, 1)
    kept = weights(model)
    del first  # without destroy()
    second = make(stage, model)
    assert weights(model) == kept
    step(second, 2)
    found = weights(model)
    second.destroy()
    plain = model_of_seed()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for number in range(3):
        step_plain(plain, optimizer, number)
    assert largest_difference(found, weights(plain)) < 1e-6


def against_torch(stage: int, name: str, case: Callable, *given: Any) -> None:
    difference = largest_difference(case(stage, *given), case(None, *given))
    assert difference < 2e-6, (name, stage, given, difference)


def loops(stages: list[int]) -> None:
    for stage in stages:
        if stage in (0, 3):  # what is one rule for all stages
            settings(stage)
            states_in_part(stage)
            two_engines(stage)
        gradients_by_hand(stage)
        for kind in ("SGD", "NAdam"):
            optimizer_hooks(stage, kind)
        for schedule in ("one cycle", "cyclic"):
            against_torch(stage, "momentum", momentum_of_a_schedule, schedule)
        for kind in ("AdamW", "SGD", "Adagrad", "NAdam", "FusedAdam", "FusedLion"):
            against_torch(stage, "stepped before", stepped_before, kind)
        against_torch(stage, "added group", added_group)
        against_torch(stage, "hooks", parameter_hooks)


def test_a_loop_is_as_in_torch_or_is_refused():
    run(__file__, "loops", 2, stages=list(STAGES))


def sentences() -> None:
    """Wrong arguments, each with what to do."""
    import deepspeed
    import shoal

    good = {"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}

    def initialize(model: Any = None, config: Any = good, **more: Any) -> Any:
        return deepspeed.initialize(model=model_of_seed() if model is None else model, config=config, **more)[0]

    def own(config: Any = {"train_micro_batch_size_per_gpu": 4}, **more: Any) -> Any:
        return shoal.initialize(model_of_seed(), config, **more)

    expect(lambda: initialize(model=3), "model is 3", "Pass the model")
    expect(lambda: initialize(model=nn.LazyLinear(2)), "weight has no shape yet", "once on a batch")
    held = TwoTensor(torch.ones(2, 2), torch.ones(2, 2))
    wrapped = nn.Linear(2, 2)
    wrapped.weight = nn.Parameter(held)
    expect(lambda: initialize(model=wrapped), "weight is a TwoTensor, which holds other tensors", "plain parameters")
    expect(lambda: initialize(config=good | {"torch_autocast": {"enabled": True, "dtyp": "bf16"}}), "[config torch_autocast.dtyp] is no key")
    text = {"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": "false"}}
    expect(lambda: initialize(config=good | text), "gather_16bit_weights_on_model_save", "false")
    expect(lambda: initialize(model_of_seed().requires_grad_(False)), "every parameter of the model is frozen")
    expect(lambda: initialize(optimizer=3), "optimizer is 3", "Pass an optimizer of torch")
    expect(lambda: initialize(optimizer=lambda params: 4), "optimizer is 4")
    expect(lambda: initialize(optimizer=torch.optim.SGD(Model().parameters(), lr=1)), "6 of 6 tensors that are no parameters of the model")
    expect(lambda: initialize(lr_scheduler=4), "lr_scheduler is 4", "Pass a schedule")
    expect(lambda: initialize(training_data=3), "training_data is 3", "Dataset")
    for optimizer in (None, torch.optim.SGD):  # a filter of names that none has
        for none in ([], (param for param in [])):
            expect(lambda: initialize(model_parameters=none, optimizer=optimizer), "model_parameters is empty", "Leave it out")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns, and updates it twice
        twice = model_of_seed()
        twice_held = torch.optim.SGD([twice.last.bias, twice.last.bias], lr=0.1)
    expect(lambda: initialize(twice, optimizer=twice_held), "last.bias is in group 0 of the optimizer and once more in group 0", "once")
    args = argparse.Namespace(deepspeed_config="other.json", deepscale_config="third.json")
    expect(lambda: initialize(args=args), "there are 3 configs: args.deepspeed_config, args.deepscale_config, config. Give one")
    nan = {"type": "SGD", "params": {"lr": float("nan")}}
    expect(lambda: initialize(config=good | {"optimizer": nan}), "[config optimizer.params.lr] is NaN")
    for wrong in (None, 3, [1], b"{}"):
        expect(lambda: own(config=wrong), f"[config] is {wrong!r}", "Give a dict")
    expect(lambda: own(optimizer=torch.optim.SGD), "Pass an optimizer of torch")
    for wrong in ({"lr": 1}, [1]):
        expect(lambda: own(groups=[wrong]), f"group 0 is {wrong!r}", '"params"')
    model = model_of_seed()
    for group, said_of_it in (
        ({"params": list(model.parameters()), "betas": (0.5, 0.9)}, "group 0 has 'betas', and groups may differ in lr and weight_decay only"),
        ({"params": [model.last.weight]}, "blocks.0.weight is in no group (5 parameters in all), and trainable"),
    ):
        expect(lambda: shoal.initialize(model, {"train_micro_batch_size_per_gpu": 4}, groups=[group]), said_of_it)
    expect(lambda: own(units=3), "[units] 3 is no unit")
    expect(lambda: own(units=["Nope"]), "no module of Model is named Nope")
    expect(lambda: own(units=[nn.Conv2d]), "no module of Model is named Conv2d")
    model = model_of_seed()
    lone = shoal.initialize(model, {"train_micro_batch_size_per_gpu": 4}, units=["Linear"], groups=[{"params": model.parameters()}])
    assert len(lone.group_dicts[0]["params"]) == 6
    expect(lambda: lone.save("/nowhere", step="a"), "step is 'a'")
    expect(lambda: copy.deepcopy(lone), "cannot be copied or pickled")
    lone.destroy()
    engine = initialize(config=good | {"optimizer": good["optimizer"] | {"adam_w_mode": True}})  # which DeepSpeed passes over
    expect(lambda: initialize(config=good | {"optimizer": {"type": "SGD", "param": {}}}), "optimizer.param]", "params")
    for wrong in (None, 3, [torch.ones(1)]):
        expect(lambda: engine.backward(wrong), "[backward] the loss is ", "no tensor")
    for copied in (copy.deepcopy, pickle.dumps):
        expect(lambda: copied(engine), "cannot be copied or pickled", "save_checkpoint")
    expect(lambda: engine.set_gradient_accumulation_boundary("x"), "'x' is no boundary")
    expect(lambda: engine.load_module_state_dict(None), "None is no state dict")
    expect(shoal.gathered(engine.module.parameters(), written_by=7).__enter__, "rank 7 is to write, and there are 2")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "file")
        file.write_text("")
        expect(lambda: engine.save_checkpoint(folder, client_state=[1]), "client_state is [1]", "Pass a dict")
        expect(lambda: engine.save_checkpoint(folder, client_state={"global_steps": 7}), "client_state has 'global_steps', a name under which")
        expect(lambda: engine.save_checkpoint(folder, tag="../out"), "the tag '../out' leads out of")
        expect(lambda: engine.save_checkpoint(folder, tag="a/b/../c"), "the tag 'a/b/../c' leads out of")
        expect(lambda: engine.save_checkpoint(str(file)), "cannot be made: File exists")
        expect(lambda: engine.save_checkpoint(None), "None is no path")
        expect(lambda: engine.load_checkpoint(str(file)), "is no folder")
        expect(lambda: engine.load_checkpoint(3), "3 is no path")
        lines: list[str] = []
        with _logged(lines):
            assert engine.load_checkpoint(folder) == (None, None)
        wanted = ["has no file named latest: nothing was loaded"] if os.environ["RANK"] == "0" else []
        assert len(lines) == len(wanted) and all(part in line for part, line in zip(wanted, lines)), lines
    with engine.no_sync():
        engine.backward(engine(batch(0, int(os.environ["RANK"]))))
        expect(engine.step, "[step] is called inside no_sync", "Leave it first")
    step(engine, 0)
    assert engine.global_steps == 1
    engine.destroy()


def schedules() -> None:
    """Of a checkpoint and of the engine that loads it."""
    import deepspeed

    warmup = {"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.1, "warmup_num_steps": 4, "warmup_type": "linear"}}}
    good = {"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}

    def begin(more: dict, schedule: Any = None) -> Any:
        return deepspeed.initialize(model=model_of_seed(), config=good | more, lr_scheduler=schedule)[0]

    kinds = torch.optim.lr_scheduler
    with tempfile.TemporaryDirectory() as folder:
        folder = _core_text(folder)
        for name, (more, schedule) in {"none": ({}, None), "warmup": (warmup, None), "decay": ({}, lambda held: kinds.StepLR(held, 1))}.items():
            engine = begin(more, schedule)
            step(engine, 0)
            step(engine, 1)
            engine.save_checkpoint(f"{folder}/{name}")
            engine.destroy()
        engine = begin(warmup)
        expect(lambda: engine.load_checkpoint(f"{folder}/none"), "was saved without a schedule", "WarmupLR, which would begin anew", "load_lr_scheduler_states=False")
        engine.load_checkpoint(f"{folder}/none", load_lr_scheduler_states=False)
        engine.load_checkpoint(f"{folder}/warmup")
        assert engine.lr_scheduler.last_batch_iteration == 1 and engine.global_steps == 2
        engine.destroy()
        rank = os.environ["RANK"]
        engine = begin({"zero_optimization": {"stage": 3}})
        step(engine, 0)
        engine.save_checkpoint(f"{folder}/own", client_state={"of rank": rank})
        assert engine.load_checkpoint(f"{folder}/own")[1] == {"of rank": rank}
        engine.destroy()
        engine = begin({"zero_optimization": {"stage": 1}})
        step(engine, 0)
        engine.save_checkpoint(f"{folder}/lost")
        if rank == "0":
            for name in ("shoal_files.json", "zero_pp_rank_0_mp_rank_00_optim_states.pt"):
                Path(folder, "lost", "global_step1", name).unlink()
        expect(lambda: engine.load_checkpoint(f"{folder}/lost"), "has no zero_pp_rank_0_mp_rank_00_optim_states.pt", "load_module_only=True")
        engine.load_checkpoint(f"{folder}/lost", load_module_only=True)
        engine.destroy()
        engine = begin({}, lambda held: kinds.LambdaLR(held, lambda step: 1.0))
        for other in ("warmup", "decay"):
            expect(lambda: engine.load_checkpoint(f"{folder}/{other}"), "another schedule of the learning rate than LambdaLR")
        engine.destroy()


def _core_text(text: str) -> str:
    """Rank 0's."""
    from shoal import _core, world

    return _core.gather_texts(world(), text)[0]


@contextlib.contextmanager
def _logged(lines: list[str]):
    from deepspeed.utils.logging import logger

    keep = lambda record: bool(lines.append(record.getMessage())) or True  # noqa: E731
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)


def test_wrong_arguments_are_named_in_a_sentence():
    run(__file__, "sentences", 2)


def test_a_schedule_goes_on_or_is_refused():
    run(__file__, "schedules", 2)


def skipping(stage: int, kind: str) -> list[str]:
    """What a run says whose loss is not finite from its third step on, or whose gradients are not; "": nothing in 30 steps."""
    import shoal

    said = []
    for package, most in (("deepspeed", None), ("deepspeed", 4), ("deepspeed", 0), ("shoal", 5)):
        config = {
            "train_micro_batch_size_per_gpu": 4,
            "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
            "shoal": {} if most is None else {"max_nonfinite": most},
        }
        if package == "deepspeed":
            import deepspeed

            engine = deepspeed.initialize(model=model_of_seed(), config=config)[0]
        else:
            engine = shoal.initialize(model_of_seed(), config)
        said.append("")
        for number in range(30):
            loss = engine(batch(number, int(os.environ["RANK"])))
            if number >= 2:
                loss = loss * float("nan") if kind == "loss" else loss + float("inf")
            try:
                engine.backward(loss)
                engine.step()
            except shoal.Error as error:
                said[-1] = f"{number + 1} {error}"
                break
        engine.destroy()
    return said


def test_a_run_that_only_skips_ends():
    # A loss that is not finite though its gradients are is known to its rank alone: of several none may end alone.
    assert run(__file__, "skipping", 2, stage=2, kind="gradients are finite") == [[""] * 4] * 2
    for ranks, stage, kind in ((2, 0, "loss"), (2, 3, "loss"), (1, 2, "gradients are finite")):
        for usual, four, never, five in run(__file__, "skipping", ranks, stage=stage, kind=kind):
            value = "nan" if kind == "loss" else "inf"
            assert usual.startswith(f"22 [step] steps 3 to 22 are not finite: the loss of step 3 was {value}"), usual
            assert "So many in a row end a run (shoal.max_nonfinite 20; 0: none do)." in usual, usual
            assert ("a gradient of unit " in usual) == (kind == "loss"), usual
            assert four.startswith("6 [step] steps 3 to 6 are not finite") and never == "", (four, never)
            assert five.startswith("7 [step] steps 3 to 7 are not finite"), five


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))
