"""Engine.save and Engine.load: the core's files, and beside them what the core has not (beside.py)."""

from __future__ import annotations

import itertools
import os
import warnings
from typing import Any, SupportsIndex

from shoal import _core, beside, buffers, durable


def save(engine: Any, folder: str | os.PathLike, step: int, keep_last: int, extra: dict[str, str] | None) -> str:
    core = engine._live("save")
    if not isinstance(step, SupportsIndex):
        raise _core.Error(f"[save] step is {step!r}. Give the number of the step, 0 or more.")
    durable.act_together(engine.world, "save", lambda: core.check_readable("save"))
    given, folder = dict(extra or {}), os.fspath(folder)
    for key in (beside.KEY, beside.SUMS):
        given.pop(key, None)  # of the checkpoint that it was loaded from
    if not buffers.names_of(engine.module) and engine.client is None:
        return _core.save_checkpoint(core, engine.world, folder, step, keep_last, given)
    pending = beside.Pending(engine.world, folder, step, lambda: _values_beside(engine))
    try:
        path = _core.save_checkpoint(core, engine.world, folder, step, keep_last, given | pending.extra)
    finally:
        pending.settle()
    engine.world.barrier()
    return path


def _values_beside(engine: Any) -> dict[str, Any]:
    """What the core has not, equal in kind on every rank."""
    values: dict[str, Any] = {}
    if buffers.names_of(engine.module):
        values["buffers"] = buffers.read_all(engine.module)
    if engine.client is not None:
        values["optimizer"] = engine.client.owned_states([info.name for info in engine._live("save").params()])
    return values


def load(engine: Any, path: str | os.PathLike) -> _core.LoadedCheckpoint:
    core = engine._live("load")
    path = os.fspath(path)
    found: list[tuple[beside.Saved | None, dict[str, Any]]] = []
    failed = durable.together(engine.world, lambda: found.append(_read_beside(engine, path)))
    if failed is not None:
        raise _core.Error(f"[load] rank {failed[0]} cannot take {path}: {failed[1]} Nothing was loaded.")
    saved, own = found[0]
    loaded = _core.load_checkpoint(core, engine.world, path)
    place = f"load {loaded.path}"
    if "buffers" in own:
        buffers.write(engine.module, own["buffers"])
    elif buffers.names_of(engine.module) and engine.world.rank == 0:
        warnings.warn(f"[{place}] it has no buffers: those of the model stay as they are.")
    if engine.client is not None and "optimizer" in own:
        states = (values["optimizer"] for values in itertools.chain([own], saved.of_others(_rank_of(saved.world, engine.world))))
        engine.client.write_states(states, [info.name for info in core.params()], place)
    return loaded


def _rank_of(saved_world: int, world: _core.Group) -> int:
    """Buffers are each rank's own; where there are more ranks or fewer, all take those of rank 0."""
    return world.rank if saved_world == world.size else 0


def _read_beside(engine: Any, path: str) -> tuple[beside.Saved | None, dict[str, Any]]:
    """This rank's part of what was saved beside a checkpoint, found to fit; nothing is written yet."""
    if not os.path.exists(os.path.join(path, "manifest.json")):
        path = _core.find_latest_checkpoint(path)
    try:
        manifest = beside.manifest_of(path)
    except (OSError, ValueError):
        return None, {}  # the core says what is wrong with it
    place, extra = f"load {path}", manifest.get("extra", {})
    saved = beside.Saved(path, extra, manifest["world"]) if beside.KEY in extra else None
    own = saved.of_rank(_rank_of(saved.world, engine.world)) if saved is not None else {}
    if "buffers" in own:
        buffers.check_fit(engine.module, own["buffers"], place)
    if engine.client is not None and "optimizer" in own:
        engine.client.check_settings(own["optimizer"], place)
    elif engine.client is not None and not manifest["weights_only"]:
        raise _core.Error(
            f"[{place}] it has no states of {type(engine.client.optimizer).__name__}. Load it with the optimizer of the run "
            "that saved it, or start anew from its weights: shoal checkpoint export, then import."
        )
    elif "optimizer" in own:
        raise _core.Error(
            f"[{place}] it has states of torch's {own['optimizer']['type']}, and this engine has an optimizer of the config. "
            "Pass that optimizer, or start anew from its weights: shoal checkpoint export, then import."
        )
    return saved, own
