"""Whether the files of a checkpoint are what one save wrote: every byte by the list of checkpoint_list, and where a DeepSpeed
wrote them, by the archives' own checksums. The ranks share the reading, and refuse together. Nothing is unpickled before.

What a DeepSpeed wrote over a checkpoint of ours is known by its files, which do not name a save (SAVE_KEY).
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Iterator

from shoal import Error, _core, durable

from deepspeed.runtime import checkpoint_files as files
from deepspeed.runtime import checkpoint_folder as folders
from deepspeed.runtime import checkpoint_list as lists
from deepspeed.utils.logging import warning_once

_FOREIGN = "foreign"  # whole, and not written by this save nor by another of ours
_ON_PURPOSE = f"if on purpose, remove {lists.NAME}"
_REMEDY = "Take another checkpoint, or a copy of this file."


def check_files(folder: str, world: _core.Group, place: str, needs_states: bool = True) -> lists.FileList | None:
    """Raises on every rank, naming the file, unless all is as it was saved. The list of the save; None where another program
    wrote the files. needs_states: False for who does without the files of the optimizer, which may have been removed."""
    found: list[tuple[lists.FileList | None, dict[str, str]]] = []
    durable.act_together(world, place, lambda: folders.put_back(folder) if world.rank == 0 else None)
    durable.act_together(world, place, lambda: found.append(_look(folder, world, place)))
    listed, own = found[0]
    said: dict[str, str] = {}
    for text in _core.gather_texts(world, json.dumps(own)):
        said |= json.loads(text)
    foreign = sorted(name for name, what in said.items() if what == _FOREIGN)
    if listed is not None:
        missing = [name for name in listed.files if not os.path.lexists(os.path.join(folder, name))]
        durable.act_together(world, place, lambda: _check_missing(folder, place, listed, missing, needs_states))
    for name, what in sorted(said.items()):
        if what != _FOREIGN:
            raise Error(f"[{place}] {os.path.join(folder, name)} {what}. {_REMEDY}")
    if not foreign or listed is None:
        return listed
    ours = sorted(name for name in listed.files if name not in foreign)
    if ours:
        raise Error(f"[{place}] {os.path.join(folder, foreign[0])} was written by another program than {ours[0]} beside it. "
                    f"A checkpoint is of one save: take another one ({_ON_PURPOSE}).")
    if world.rank == 0:
        warning_once(f"[{place}] {folder} was written anew by another program: its {lists.NAME} is not of these files. Only "
                     "the archives' own checksums were compared.")
    return None


@contextlib.contextmanager
def naming(folder: str, place: str) -> Iterator[None]:
    """Around the reading of a checkpoint: values that no save writes are an error that says so, and no key or type alone."""
    try:
        yield
    except Error:
        raise
    except Exception as error:  # noqa: BLE001  files of others may hold anything
        what = f"it has no {error.args[0]!r:.60}" if isinstance(error, KeyError) and error.args else f"{type(error).__name__}: {error!s:.300}"
        raise Error(f"[{place}] {folder} does not hold what a save writes ({what}). Take another checkpoint.") from error


def _look(folder: str, world: _core.Group, place: str) -> tuple[lists.FileList | None, dict[str, str]]:
    """The list, and what is wrong with this rank's share of the files."""
    if not os.path.isdir(folder):
        raise Error(f"[{place}] {folder} holds no model states: there is no such folder. Give the folder and tag of a checkpoint.")
    listed = lists.read(folder, place)
    names = {each.name for each in files.state_files(folder)} | _universal_files(folder)
    names |= set(listed.files) if listed is not None else set()
    said = {}
    for name in sorted(names)[world.rank :: world.size]:
        what = _wrong_with(os.path.join(folder, name), listed, name)
        if what is not None:
            said[name] = what
    return listed, said


def _universal_files(folder: str) -> set[str]:
    found = set()
    for path, _, names in os.walk(os.path.join(folder, "zero")):
        found |= {os.path.relpath(os.path.join(path, name), folder) for name in names if name.endswith(".pt")}
    return found


def _wrong_with(path: str, listed: lists.FileList | None, name: str) -> str | None:
    if not os.path.lexists(path):
        return None  # missing: see _check_missing
    if not os.path.isfile(path):
        return "is not a regular file"
    entry = listed.files.get(name) if listed is not None else None
    if entry is not None and _core.digest_of_file(path) == (entry.nbytes, entry.checksum):
        return None
    damaged = durable.damage_in_archive(path)
    if damaged is not None or listed is None:
        return damaged
    # Whole, and not what the list has: another save's, or one of another program.
    try:
        record = _record_in(path)
    except Exception:  # noqa: BLE001  torch and its pickles have many
        return "is damaged: it has another checksum than when it was saved, and cannot be read"
    if record is None:
        return _FOREIGN
    if record["id"] != listed.id:
        return f"is of another save (step {record['step']}, rank {record['rank']} of {record['world']}) than its folder's {lists.NAME}"
    return f"has another checksum than when it was saved: it is damaged, or was changed ({_ON_PURPOSE})"


def _record_in(path: str) -> dict[str, Any] | None:
    values = files.read(path)
    return values.get(lists.SAVE_KEY) if isinstance(values, dict) else None


def _check_missing(folder: str, place: str, listed: lists.FileList, missing: list[str], needs_states: bool) -> None:
    states = {name for name in listed.files if (found := files.state_file(name)) is not None and not found.is_model}
    if not needs_states and set(missing) == states:
        return
    if missing:
        hint = " The weights alone load with load_module_only=True." if set(missing) == states else f" {_REMEDY}"
        raise Error(f"[{place}] {os.path.join(folder, missing[0])} is missing ({len(missing)} of {len(listed.files)} files).{hint}")


class Opened:
    """A file of states that was read: what it says of the save that wrote it."""

    def __init__(self, path: str, values: dict[str, Any]):
        self.path = path
        self.file = file = files.state_file(os.path.basename(path))
        record = values.get(lists.SAVE_KEY)
        self.id = record["id"] if record is not None else None
        self.rank = record["rank"] if record is not None else None
        self.step, self.world = (record["step"], record["world"]) if record is not None else _told_by(file, values)

    def describe(self) -> str:
        return f"step {self.step}, {self.world} ranks" + (f", save {self.id[:8]}" if self.id is not None else "")


def _told_by(file: files.StateFile, values: dict[str, Any]) -> tuple[int | None, int | None]:
    """The step and the number of ranks in a DeepSpeed's own file. Those of the optimizer say neither."""
    if not file.is_model:
        return None, None
    step, world = values.get("global_steps"), values.get("dp_world_size")
    return (int(step) if step is not None else None), (int(world) if world is not None else None)


def check_agreement(folder: str, place: str, opened: list[Opened]) -> None:
    """Raises unless the files are of one save, one step, and all ranks."""
    first = opened[0]
    for each in opened[1:]:
        same = each.id == first.id and all(
            a is None or b is None or a == b for a, b in ((each.step, first.step), (each.world, first.world))
        )
        if not same:
            raise Error(f"[{place}] {each.path} is of another save ({each.describe()}) than {first.path} ({first.describe()}). "
                        "A checkpoint is of one save: take another one.")
    for each in opened:
        if each.rank is not None and each.rank != (each.file.rank or 0):
            raise Error(f"[{place}] {each.path} was saved by rank {each.rank}. Give the files the names that they had.")
    kinds = {(each.file.is_model, each.file.bf16) for each in opened if each.file.rank is not None}
    for kind in sorted(kinds):
        there = [each for each in files.state_files(folder) if (each.is_model, each.bf16) == kind and each.rank is not None]
        ranks = sorted(each.rank for each in there)
        wanted = list(range(first.world if first.world is not None else len(ranks)))
        if ranks != wanted:
            raise Error(f"[{place}] {folder} was saved by {len(wanted)} ranks and has files such as {there[0].name} of the ranks "
                        f"{ranks}. Bring the files of all ranks and no others, or take another checkpoint.")
