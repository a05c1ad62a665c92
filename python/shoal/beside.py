"""What each rank saves beside the core's files of a checkpoint: buffers of its module, states of a torch optimizer.

The format, and why a kill at any moment does no harm, is in docs/formats/checkpoint.md. Engine.save and Engine.load call it.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from typing import Any, Callable, Iterator

import torch

from shoal import _core, durable

KEY = "shoal.beside"  # of the manifest's extra: the id in the folder's name
SUMS = "shoal.beside_checksums"  # and the checksum of each rank's file, in their order, with blanks between
_NAME = "beside-"


def _inside(checkpoint: str, id: str) -> str:
    return os.path.join(checkpoint, _NAME + id)


def _outside(checkpoint: str, id: str) -> str:
    """Where it is written, before the checkpoint is there."""
    folder, step = os.path.split(os.path.abspath(checkpoint))
    return os.path.join(folder, f".{step}.{_NAME}{id}")


def _file(folder: str, rank: int) -> str:
    return os.path.join(folder, f"rank-{rank:05}.pt")


class Pending:
    """The files of all ranks, written before the core saves and moved into the checkpoint after. Every rank makes one."""

    def __init__(self, world: _core.Group, folder: str, step: int, values: Callable[[], dict[str, Any]]):
        self.world = world
        self.id = _core.gather_texts(world, os.urandom(9).hex())[0]
        self.path = _core.gather_texts(world, _outside(os.path.join(folder, f"step-{step:08}"), self.id))[0]
        self._lock: int | None = None
        self._together("make", self._make)
        written: list[durable.Written] = []
        self._together("write to", lambda: written.append(durable.write(_file(self.path, world.rank), values())))
        self.extra = {KEY: self.id, SUMS: " ".join(_core.gather_texts(world, written[0].checksum))}
        self._together("sync", lambda: durable.sync(self.path) if world.rank == 0 else None)

    def _make(self) -> None:
        if self.world.rank != 0:
            return
        folder = os.path.dirname(self.path)
        os.makedirs(folder, exist_ok=True)
        _settle_dead(folder)
        os.mkdir(self.path)
        self._lock = durable.lock(self.path)

    def _together(self, what: str, part: Callable[[], None]) -> None:
        """What fails on one rank fails on all, and leaves nothing."""
        failed = durable.together(self.world, part)
        if failed is None:
            return
        self.settle()
        rank, why = failed
        remedy = "" if why.startswith("[") else ". Save to a disk that all hosts share."  # ours say what to do
        raise _core.Error(f"[save] rank {rank} could not {what} {self.path}: {why}{remedy}")

    def settle(self) -> None:
        """Whether the core has saved or not. Others wait for this rank, so nothing is raised: a folder that stays where it was
        written is found there, and the next save moves it."""
        if self._lock is None:
            return
        os.close(self._lock)
        self._lock = None
        try:
            _settle(self.path)
        except OSError as error:
            warnings.warn(f"[save] {self.path} stays where it is: {error}. The checkpoint is complete with it.")


def _settle(path: str) -> None:
    """Moves it into the checkpoint whose manifest names it; if none does, removes it."""
    folder, name = os.path.split(path)
    step, _, id = name.partition(f".{_NAME}")
    checkpoint = os.path.join(folder, step[1:])
    if id_in(checkpoint) == id:
        os.rename(path, _inside(checkpoint, id))
        durable.sync(checkpoint)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _settle_dead(folder: str) -> None:
    """What saves left that were killed."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.startswith(".step-") and f".{_NAME}" in name and not durable.is_alive(path):
            _settle(path)


def manifest_of(checkpoint: str) -> dict[str, Any]:
    with open(os.path.join(checkpoint, "manifest.json"), encoding="utf-8") as file:
        return json.load(file)


def id_in(checkpoint: str) -> str | None:
    """None: there is none, or no complete checkpoint."""
    try:
        return manifest_of(checkpoint)["extra"].get(KEY)
    except (OSError, ValueError, KeyError):
        return None


class Saved:
    """What the ranks saved beside a checkpoint."""

    def __init__(self, checkpoint: str, extra: dict[str, str], saved_world: int):
        id = extra[KEY]
        self.sums = extra.get(SUMS, "").split()  # earlier versions wrote none
        inside = _inside(checkpoint, id)
        self.path = inside if os.path.isdir(inside) else _outside(checkpoint, id)
        self.world = saved_world

    def of_rank(self, rank: int) -> dict[str, Any]:
        path = _file(self.path, rank)
        try:
            durable.check_regular(path, "load")
            damaged = durable.damage_in_archive(path)
            if damaged is None and self.sums and _core.digest_of_file(path)[1] != self.sums[rank]:
                damaged = "has another checksum than when it was saved"
            if damaged is not None:
                raise ValueError(f"it {damaged}")
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # noqa: BLE001
            reason = str(error).splitlines()[0]
            raise _core.Error(f"[load] {path} cannot be read: {reason}. Take another checkpoint.") from error

    def of_others(self, rank: int) -> Iterator[dict[str, Any]]:
        for other in range(1, self.world):
            yield self.of_rank((rank + other) % self.world)
