"""A checkpoint's folder on its way: written beside the place that it gets, and put there in one step.

    <tag>/                     a checkpoint
    .<tag>.tmp-<id>/           being written, locked by its writer; after the step, what stood there before
    .<tag>.tmp-<id>-aside/     what stood there, on a file system that cannot exchange two folders, for a moment
    .latest.tmp-<id>           a text on its way

A kill at any moment leaves the old checkpoint or the new one, whole. What it leaves beside is removed by the next save; where
nothing stands in the place, that save puts the complete new folder there, or what was moved aside, and so does a load. What is
of a living save is left alone (durable.is_alive). One process has it: rank 0.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from typing import Callable, NamedTuple

from shoal import Error, _core, durable

from deepspeed.runtime import checkpoint_list as lists

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.tmp-(?P<id>[0-9a-f]{18})(?P<aside>-aside)?$")
OLD_SECONDS = 60  # of a text that is being written: its writer is dead


class PendingFolder:
    def __init__(self, folder: str, place: str, id: str):
        """folder: where it will stand. It may stand there already, and is replaced."""
        self.folder = os.path.realpath(folder)
        parent, name = os.path.split(self.folder)
        if os.path.lexists(self.folder) and not os.path.isdir(self.folder):
            raise Error(f"[{place}] {self.folder} is there and is no folder. Move it away, or take another name.")
        try:
            os.makedirs(parent, exist_ok=True)
        except OSError as error:
            raise Error(
                f"[{place}] the folder {parent} cannot be made: {error.strerror}. Give a folder on a disk that can be written."
            ) from None
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


class _Left(NamedTuple):
    """What a save has beside the place of its folder, now or since it was killed."""

    path: str
    place: str
    id: str
    is_aside: bool

    @property
    def new(self) -> str:
        """What the save writes."""
        return self.path.removesuffix("-aside")

    def is_alive(self) -> bool:
        """An aside has no lock: it is that of the folder that it made way for, which is on its way or in the place."""
        folders = [self.new, self.place] if self.is_aside else [self.path]
        return any(durable.is_alive(folder) for folder in folders if os.path.isdir(folder))

    def put_back(self) -> None:
        """Where nothing stands in the place: the new folder if it is complete, or else what stood there."""
        if os.path.lexists(self.place):
            return
        complete = _is_complete(self.new, self.id)
        if self.is_aside:  # without locks too: a living save is in this state for a moment
            is_due = not durable.is_locked(self.new)
        else:
            is_due = complete and not self.is_alive()
        try:
            if is_due:
                os.rename(self.new if complete else self.path, self.place)
        except OSError:
            if not os.path.lexists(self.place):  # else its save lives, and was faster
                raise


def _is_complete(folder: str, id: str) -> bool:
    """Whether the save of that id wrote all of a folder. One that stood in the place before is of another id."""
    try:
        listed = lists.read(folder, "checkpoint")
        sizes = {name: os.path.getsize(os.path.join(folder, name)) for name in listed.files} if listed is not None else {}
    except (Error, OSError):
        return False
    return listed is not None and listed.id == id and all(sizes[name] == entry.nbytes for name, entry in listed.files.items())


def _left_in(parent: str, only: str | None) -> list[_Left]:
    """Of each save the new folder before what it moved aside."""
    matches = [match for name in sorted(os.listdir(parent)) if (match := _TEMPORARY.fullmatch(name)) is not None]
    return [
        _Left(os.path.join(parent, match[0]), os.path.join(parent, match["name"]), match["id"], bool(match["aside"]))
        for match in matches
        if only in (None, match["name"])
    ]


def settle_dead(parent: str, only: str | None = None) -> None:
    """Removes what killed saves left in a folder, all or those of one name, once what they had not put in its place is there."""
    found = _left_in(parent, only)
    for left in found:
        left.put_back()
    for left in found:
        if os.path.isdir(left.path):
            if not left.is_alive():
                shutil.rmtree(left.path, ignore_errors=True)
            continue
        with contextlib.suppress(OSError):  # a text: it has no lock, and is written in a moment
            if time.time() - os.path.getmtime(left.path) > OLD_SECONDS:
                os.remove(left.path)


def put_back(folder: str) -> None:
    """Before a load: what a killed save had not put in its place. The folder that is there is left alone."""
    folder = os.path.realpath(folder)
    parent, name = os.path.split(folder)
    if not os.path.lexists(folder) and os.path.isdir(parent):
        with contextlib.suppress(OSError):  # may not be written: the load says what is missing
            settle_dead(parent, only=name)
