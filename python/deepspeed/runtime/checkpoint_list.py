"""shoal_files.json: what a save wrote into a checkpoint's folder, so that a load knows every byte of it again.

    {"format": "shoal files", "version": 1, "id": ..., "step": ..., "world": ..., "accumulated": ...,
     "files": [{"name": ..., "rank": ..., "nbytes": ..., "checksum": ...}, ...],
     "list_checksum": ...}

id: of the save, drawn anew for each, in every file of states too (SAVE_KEY). accumulated: micro-steps that were accumulated
then and are in no file. checksum: XXH3, 64 bits, of the whole file; list_checksum: of the text before it. Files that others put
into the folder are not listed. A DeepSpeed passes over the list.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from shoal import Error, _core, durable

NAME = "shoal_files.json"
SAVE_KEY = "shoal_save"  # in a file of states: {"id", "step", "rank", "world"}
_SEAL = ',\n "list_checksum": "'


@dataclass(frozen=True)
class Entry:
    name: str  # in the folder; of universal checkpoints with slashes
    rank: int
    nbytes: int
    checksum: str


@dataclass(frozen=True)
class FileList:
    id: str
    step: int
    world: int
    accumulated: int = 0
    files: dict[str, Entry] = field(default_factory=dict)

    def text(self) -> str:
        entries = ",\n".join("  " + json.dumps(vars(entry)) for entry in self.files.values())
        head = {"format": "shoal files", "version": 1, "id": self.id, "step": self.step, "world": self.world}
        head |= {"accumulated": self.accumulated}
        return _sealed(json.dumps(head)[:-1] + f',\n "files": [\n{entries}\n ]')


def entries_of(texts: list[str]) -> dict[str, Entry]:
    """From what each rank told of its files."""
    return {entry["name"]: Entry(**entry) for text in texts for entry in json.loads(text)}


def to_text(entries: list[Entry]) -> str:
    return json.dumps([vars(entry) for entry in entries])


def _sealed(text: str) -> str:
    stream = _core.DigestStream()
    stream.add(text.encode())
    return f'{text}{_SEAL}{stream.text()}"}}\n'


def read(folder: str, place: str) -> FileList | None:
    """None: the folder has no list. Raises when it is damaged."""
    path = os.path.join(folder, NAME)
    if not os.path.lexists(path):
        return None
    try:
        text = durable.read_text(path, place)
        before, seal, _ = text.rpartition(_SEAL)
        whole = bool(seal) and _sealed(before) == text
        values: dict[str, Any] = json.loads(text) if whole else {}
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"[{place}] {path} cannot be read: {error}. Take another checkpoint.") from None
    if not whole:
        raise Error(f"[{place}] {path} is damaged: its text does not have the checksum that is written in it. Take another checkpoint.")
    if values["version"] != 1:
        raise Error(f"[{place}] {path} has version {values['version']}; this program reads 1. Use a later version of Shoal.")
    entries = {entry["name"]: Entry(**entry) for entry in values["files"]}
    return FileList(values["id"], values["step"], values["world"], values["accumulated"], entries)
