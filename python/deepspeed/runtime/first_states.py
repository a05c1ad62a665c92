"""States that a torch optimizer has already when it is given to initialize, of those whose update is the engine's. The engine has
one count of steps for all parameters: what has more, or states of some parameters only, is refused."""

from __future__ import annotations

from typing import Any

import torch

import shoal
from shoal import _core

from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.runtime.checkpoint_save import ADAGRAD_NAMES, STATE_NAMES

_REMEDY = "Step with all parameters before initialize, or pass an optimizer without states."


def read(optimizer: torch.optim.Optimizer, section: dict[str, Any]) -> tuple[int, dict[int, dict[str, torch.Tensor]]] | None:
    """The steps taken, and of each parameter, by id, the states by the core's names. None: there are none yet."""
    trained = [param for group in optimizer.param_groups for param in group["params"] if param.requires_grad]
    states = {id(param): optimizer.state[param] for param in trained if optimizer.state.get(param)}
    names = {ADAGRAD_NAMES[1]: "first_moment"} if isinstance(optimizer, DeepSpeedCPUAdagrad) else STATE_NAMES[section["type"]]
    if section["type"] == "SGD":  # with momentum its buffer is all that it has, and without even that says nothing
        names = names if section["params"].get("momentum") else {}
        states = {key: state for key, state in states.items() if torch.is_tensor(state.get("momentum_buffer"))} if names else {}
    if not any(_has_begun(state, names) for state in states.values()):
        return None
    kind = type(optimizer).__name__
    if len(states) != len(trained):
        raise shoal.Error(f"[optimizer] {kind} has states of {len(states)} of its {len(trained)} trained parameters. {_REMEDY}")
    steps = sorted({int(state.get("step", 1)) for state in states.values()})
    if len(steps) > 1:
        raise shoal.Error(f"[optimizer] {kind} has parameters of {steps[0]} and of {steps[-1]} steps. {_REMEDY}")
    found = {}
    for param in trained:
        state = states[id(param)]
        for name in names:
            if not torch.is_tensor(state.get(name)) or state[name].shape != _shape(param):
                raise shoal.Error(f"[optimizer] {kind} has states of a parameter of shape {tuple(_shape(param))}, and {name} is not of "
                                  f"that shape. {_REMEDY}")
        found[id(param)] = {kind: state[name].detach() for name, kind in names.items()}
    return steps[0], found


def write(engine: shoal.Engine, optimizer: torch.optim.Optimizer, first: tuple | None) -> None:
    """Gives them to the engine; the optimizer has none from then on. Every rank calls it, and has the same."""
    _agree(engine, type(optimizer).__name__, first)
    optimizer.state.clear()
    if first is None:
        return
    steps, states = first
    for key, values in states.items():
        for kind, value in values.items():
            engine.write_part(engine.names[key], kind, value)
    progress = engine.core.progress()
    progress.applied_steps = steps
    engine.core.finish_restore(progress)


def refuse_late(optimizer: torch.optim.Optimizer) -> None:
    """In step: states that were put into the optimizer after initialize have no effect."""
    if optimizer.state and any(optimizer.state.values()):
        raise shoal.Error(
            f"[step] states were put into {type(optimizer).__name__} after initialize, and the engine keeps its own. Load a checkpoint "
            "by engine.load_checkpoint, set states by safe_set_full_optimizer_state, or load them before initialize; then "
            "optimizer.state.clear()."
        )


def _has_begun(state: dict[str, Any], names: dict[str, str]) -> bool:
    """Not one of zeros that the constructor made."""
    return int(state.get("step", 1)) > 0 or any(torch.is_tensor(state.get(name)) and bool(state[name].any()) for name in names)


def _shape(param: torch.Tensor) -> torch.Size:
    return getattr(param, "ds_shape", param.shape)


def _agree(engine: shoal.Engine, kind: str, first: tuple | None) -> None:
    """Ranks that begin with unlike states would keep unlike copies of one weight."""
    mine = ""
    if first is not None:
        sums = [float(value.double().sum()) for values in first[1].values() for value in values.values()]
        mine = f"{first[0]} steps, {len(first[1])} parameters, sums {hash(tuple(sums))}"
    said = _core.gather_texts(engine.world, mine)
    other = next((rank for rank, each in enumerate(said) if each != said[0]), None)
    if other is not None:
        raise shoal.Error(
            f"[optimizer] {kind} has other states on rank {other} than on rank 0. Step or load alike on all ranks before initialize, or "
            "pass an optimizer without states."
        )
