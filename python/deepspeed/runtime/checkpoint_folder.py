"""A checkpoint's folder on its way: written beside the place that it gets, and put there in one step.

    <tag>/                     a checkpoint
    .<tag>.tmp-<id>/           being written, locked by its writer; after the step, what stood there before
    .<tag>.tmp-<id>-aside/     what stood there, on a file system that cannot exchange two folders, for a moment
    .latest.tmp-<id>           a text on its way

A kill at any moment leaves the old checkpoint or the new one, whole. What it leaves beside is removed by the next save, which
also puts back what a kill between the two renames left aside; a load does that too. One process has it: rank 0.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from typing import Callable

from shoal import Error, _core, durable

from deepspeed.runtime import checkpoint_list as lists

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.tmp-[0-9a-f]{18}(?P<aside>-aside)?$")
OLD_SECONDS = 60  # of a text that is being written: its writer is dead


class PendingFolder:
    def __init__(self, folder: str, place: str, id: str):
        """folder: where it will stand. It may stand there already, and is replaced."""
        self.folder = os.path.realpath(folder)
        parent, name = os.path.split(self.folder)
        if os.path.lexists(self.folder) and not os.path.isdir(self.folder):
            raise Error(f"[{place}] {self.folder} is there and is no folder. Move it away, or take another name.")
        os.makedirs(parent, exist_ok=True)
        settle_dead(parent)
        self.path = os.path.join(parent, f".{name}.tmp-{id}")
        os.mkdir(self.path)
        self._lock: int | None = durable.lock(self.path)

    def carry_over(self, is_ours: Callable[[str], bool]) -> None:
        """Takes over what others put into the folder that is replaced; is_ours: by its name there, what is not."""
        if not os.path.isdir(self.folder):
            return
        with contextlib.suppress(OSError):
            shutil.copymode(self.folder, self.path)
        for name in os.listdir(self.folder):
            source, target = os.path.join(self.folder, name), os.path.join(self.path, name)
            if is_ours(name) or os.path.lexists(target):
                continue
            if os.path.isdir(source) and not os.path.islink(source):
                shutil.copytree(source, target, symlinks=True, copy_function=_link)
            else:
                _link(source, target)

    def publish(self, files: lists.FileList) -> None:
        """Lists what was written, and puts the folder in its place. What stood there is at `path` then."""
        with open(os.path.join(self.path, lists.NAME), "w", encoding="utf-8") as file:
            file.write(files.text())
            file.flush()
            os.fsync(file.fileno())
        for folder, _, _ in os.walk(self.path, topdown=False):
            durable.sync(folder)
        _core.replace_path(self.path, self.folder)
        durable.sync(os.path.dirname(self.folder))

    def remove(self) -> None:
        """What was replaced, or what was never put in its place."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None


def _link(source: str, target: str) -> None:
    """The same file under both names; a copy where that cannot be."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def settle_dead(parent: str, only: str | None = None) -> None:
    """Removes what killed saves left in a folder, all or those of one name, and puts back what they had moved aside."""
    found = [(name, match) for name in sorted(os.listdir(parent)) if (match := _TEMPORARY.fullmatch(name)) is not None]
    dead = [(name, match) for name, match in found if only in (None, match["name"])]
    dead = [(name, match) for name, match in dead if not durable.is_alive(os.path.join(parent, name))]
    for name, match in dead:
        place, aside = os.path.join(parent, match["name"]), os.path.join(parent, name)
        new = aside.removesuffix("-aside")
        if match["aside"] and not os.path.lexists(place) and not durable.is_locked(new):
            os.rename(new if os.path.isdir(new) else aside, place)  # it was complete before anything was moved
    for name, _ in dead:
        path = os.path.join(parent, name)
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
            continue
        with contextlib.suppress(OSError):  # a text: it has no lock, and is written in a moment
            if time.time() - os.path.getmtime(path) > OLD_SECONDS:
                os.remove(path)


def put_back(folder: str) -> None:
    """Before a load: what a killed save had moved aside. The folder that is there is left alone."""
    folder = os.path.realpath(folder)
    parent, name = os.path.split(folder)
    if not os.path.lexists(folder) and os.path.isdir(parent):
        with contextlib.suppress(OSError):  # may not be written: the load says what is missing
            if any(match["name"] == name and match["aside"] for match in map(_TEMPORARY.fullmatch, os.listdir(parent)) if match):
                settle_dead(parent, only=name)
