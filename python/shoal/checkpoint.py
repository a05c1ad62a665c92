"""Engine.save, save_later and load: the core's files, and beside them what the core has not (beside.py)."""

from __future__ import annotations

import itertools
import os
import warnings
import weakref
from typing import Any, SupportsIndex

from shoal import _core, beside, buffers, durable


def save(engine: Any, folder: str | os.PathLike, step: int, keep_last: int, extra: dict[str, str] | None) -> str:
    _finish_earlier(engine, "save")
    core, folder, given, pending = _begin(engine, folder, step, extra)
    try:
        path = _core.save_checkpoint(core, engine.world, folder, step, keep_last, given)
    finally:
        _settle(pending)
    if pending is not None:
        engine.world.barrier()
    return path


def _begin(
    engine: Any, folder: str | os.PathLike, step: int, extra: dict[str, str] | None
) -> tuple[_core.Engine, str, dict[str, str], beside.Pending | None]:
    """What comes before the core saves: what the core has not is written."""
    core = engine._live("save")
    if not isinstance(step, SupportsIndex):
        raise _core.Error(f"[save] step is {step!r}. Give the number of the step, 0 or more.")
    durable.act_together(engine.world, "save", lambda: _check_ready(engine, core))
    given, folder = dict(extra or {}), os.fspath(folder)
    for key in (beside.KEY, beside.SUMS):
        given.pop(key, None)  # of the checkpoint that it was loaded from
    if not buffers.names_of(engine.module) and engine.client is None:
        return core, folder, given, None
    pending = beside.Pending(engine.world, folder, step, lambda: _values_beside(engine))
    return core, folder, given | pending.extra, pending


def _finish_earlier(engine: Any, place: str) -> None:
    """Waits for a save that is under way. That it failed is no reason not to do what comes now."""
    if engine.later is None:
        return
    try:
        engine.later.wait()
    except _core.Error as error:
        if engine.world.rank == 0:
            warnings.warn(f"[{place}] a save behind training, begun before, has failed: {error}")


def _settle(pending: beside.Pending | None) -> None:
    if pending is not None:
        pending.settle()


def _check_ready(engine: Any, core: _core.Engine) -> None:
    core.check_readable("save")
    engine.refuse_writes("save")


class LaterSaves:
    """Saves behind training: one is under way at most. What the core has not is written before save() returns."""

    def __init__(self, engine: Any):
        self._held = [_core.CheckpointSaver(engine._live("save_later"), engine.world)]
        # A save that nobody waits for is lost, and is to say so while there is somebody to say it to.
        weakref.finalize(self, self._held.clear)
        self._world = engine.world
        self._beside: beside.Pending | None = None

    def save(self, engine: Any, folder: str | os.PathLike, step: int, keep_last: int, extra: dict[str, str] | None) -> None:
        self.wait()
        _, folder, given, self._beside = _begin(engine, folder, step, extra)
        try:
            self._saver.save_later(folder, step, keep_last, given)
        except BaseException:
            self._end()
            raise

    @property
    def _saver(self) -> _core.CheckpointSaver:
        return self._held[0]

    @property
    def under_way(self) -> bool:
        return self._saver.under_way

    def drop(self) -> None:
        """Without a word to other ranks: a save that is under way is lost."""
        self._held.clear()
        pending, self._beside = self._beside, None
        if pending is not None:
            pending.settle()

    def poll(self) -> bool:
        if not self._saver.under_way:
            return True
        done = self._saver.poll_saved()
        if done:
            self._end()
        return done

    def wait(self) -> _core.SavedCheckpoint | None:
        try:
            saved = self._saver.wait_saved()
        finally:
            self._end()
        return saved

    def _end(self) -> None:
        pending, self._beside = self._beside, None
        if pending is not None:
            pending.settle()
            self._world.barrier()


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
    _finish_earlier(engine, "load")
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
