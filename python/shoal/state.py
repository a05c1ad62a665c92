"""The fp32 state of parameters, whole: for safe_get_* and safe_set_*, and for consolidated weights."""

from __future__ import annotations

import torch

from shoal import _core, buffers
from shoal.buffers import host_copy
from shoal.construction import find_shard
from shoal.engine import Engine
from shoal.gathering import gathered
from shoal.owners import owner_of
from shoal.world import world


def read_param(param: torch.Tensor, kind: str) -> torch.Tensor | None:
    """One state ("weight", "first_moment", "second_moment") of a parameter, in fp32, on its device. None if there is none.

    Every rank calls it, between steps.
    """
    owner = owner_of(param)
    if owner is None:
        return param.detach().float().clone() if kind == "weight" and not find_shard(param) else None
    engine, name = owner
    return _on_device_of(param, engine.read_state(name, kind))


def read_own(param: torch.Tensor, kind: str) -> torch.Tensor | None:
    """What this rank owns of one state ("gradient" too), in a row, in fp32, on the parameter's device. None if no engine has
    the parameter, but for the weight of one that was sharded on its own. Talks to nobody."""
    owner = owner_of(param)
    if owner is None:
        return _lone_part(param).float().to(param.device) if kind == "weight" and find_shard(param) else None
    engine, name = owner
    runs = engine.owned_grads(name) if kind == "gradient" else engine.owned_runs(name, kind)
    return torch.cat([torch.empty(0), *(values for _, values in runs)]).to(param.device)


def own_numel(param: torch.Tensor) -> int:
    """The number of elements that read_own gives."""
    if owner_of(param) is None and find_shard(param):
        return _lone_part(param).numel()
    engine, name = _owner(param)
    return engine.owned_numel(name)


def _lone_part(param: torch.Tensor) -> torch.Tensor:
    return _core.read_lone_shard(param, world().rank)


def write_own(param: torch.Tensor, kind: str, values: torch.Tensor) -> None:
    """Writes one state of a parameter; each rank passes what read_own gives it. Every rank calls it, between steps."""
    engine, name = _owner(param)
    engine.write_owned(name, kind, values)


def client_state_names(param: torch.Tensor) -> list[str] | None:
    """The states of a torch optimizer that runs on the shards of the parameter's engine; None if none does."""
    owner = owner_of(param)
    return list(owner[0].client.keys) if owner is not None and owner[0].client is not None else None


def write_param(param: torch.Tensor, kind: str, value: torch.Tensor) -> None:
    """Writes one state of a parameter on every rank; each passes the same values. Between steps."""
    engine, name = _owner(param)
    engine.write_state(name, kind, value)


def _owner(param: torch.Tensor) -> tuple[Engine, str]:
    owner = owner_of(param)
    if owner is None:
        raise _core.Error("[state] the parameter belongs to no engine. Call initialize first.")
    return owner


def read_grad(param: torch.Tensor) -> torch.Tensor | None:
    """The mean gradient of a parameter, in fp32, without the loss scale. After backward, before step; every rank."""
    owner = owner_of(param)
    if owner is None:
        return None if param.grad is None else param.grad.detach().float().clone()
    engine, name = owner
    return _on_device_of(param, engine.read_grad(name))


def write_grad(param: torch.Tensor, value: torch.Tensor) -> None:
    """Puts another mean gradient in place of a parameter's; each rank passes the same values. After backward, before step."""
    if owner_of(param) is None and param.grad is not None:
        param.grad.copy_(value)
        return
    engine, name = _owner(param)
    engine.write_grad(name, value)


def write_own_grad(param: torch.Tensor, values: torch.Tensor) -> None:
    """write_grad, where each rank passes what read_own gives it of "gradient". Every rank calls it."""
    engine, name = _owner(param)
    engine.write_owned_grads(name, values)


def _on_device_of(param: torch.Tensor, whole: torch.Tensor | None) -> torch.Tensor | None:
    return None if whole is None else whole.to(param.device)


def consolidate(engine: Engine, exclude_frozen: bool = False) -> dict[str, torch.Tensor] | None:
    """The model's state dict with whole weights on rank 0, in host memory, None elsewhere. Gathers unit by unit; every
    rank calls it."""
    first = engine.world.rank == 0
    model = engine.module
    whole: dict[int, torch.Tensor] = {}
    for _, params in engine.unit_tuples:
        tensors = [param for _, param, _, _ in params if id(param) not in whole]
        with gathered(tensors):
            for param in tensors:
                whole[id(param)] = host_copy(param) if first else None
    if not first:
        return None
    result: dict[str, torch.Tensor] = {}
    params = dict(model.named_parameters(remove_duplicate=False))
    for name in buffers.persistent_names(model):
        if name in params:
            if not (exclude_frozen and not params[name].requires_grad):
                result[name] = whole[id(params[name])]
        else:
            result[name] = host_copy(buffers.buffer_named(model, name))
    return result
