"""The ranks of this run. One group serves all engines of the process: each takes channels of its own from it."""

from __future__ import annotations

import os
import re

from shoal import _core

_LAUNCHERS = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_world: _core.Group | None = None


def world(config: _core.Config | None = None) -> _core.Group:
    """The group of all ranks, joined on the first call: every rank calls it. Without a launcher it is a world of one, and a
    rank that was launched alone meets nobody either. What the first call's config says of transport and timeout holds for
    all."""
    global _world
    if _world is None:
        launched = any(name in os.environ for name in _LAUNCHERS) and world_size() > 1
        _world = _core.make_process_group(config) if launched else _core.make_single_group()
    return _world


def world_size() -> int:
    """The number of ranks, without joining them."""
    for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"):
        if name in os.environ:
            return number_of(name, 1, least=1)
    return 1


def first_host(nodelist: str) -> str:
    """Of Slurm's list: node003 of node[003-005,7],gpu1, rack0node1 of rack[0-1]node[1-3]. The same as rendezvous.cpp's."""
    first = re.match(r"(?:[^\[,]|\[[^\]]*\]?)*", nodelist)[0]
    return re.sub(r"\[([^\],-]*)[^\]]*\]?", r"\1", first)


def number_of(name: str, default: int, least: int = 0) -> int:
    """The number that a launcher wrote into a variable of the environment."""
    text = os.environ.get(name, "")
    if not text:
        return default
    if not re.fullmatch("[0-9]{1,7}", text) or int(text) < least:
        raise _core.Error(f"[environment {name}] {text!r} is not a number from {least}. Correct it.")
    return int(text)


def local_size() -> int:
    """The number of ranks on this host, as the launcher says; 1 where it does not. Slurm's tasks a node are a list,
    "2(x3),1": the number of this node counts, or the largest where it is not known which node this is."""
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"):
        if os.environ.get(name):
            return number_of(name, 1, least=1)
    for name in ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"):
        text = os.environ.get(name, "")
        if not text:
            continue
        items = [re.fullmatch(r"([1-9][0-9]{0,6})(?:\(x([1-9][0-9]{0,6})\))?", item) for item in text.split(",")]
        if None in items:
            raise _core.Error(f"[environment {name}] {text!r} is not a list of tasks a node, as in 2(x3),1. Correct it.")
        node = number_of("SLURM_NODEID", -1)
        for item in items:
            if 0 <= node < int(item[2] or 1):
                return int(item[1])
            node -= int(item[2] or 1)
        return max(int(item[1]) for item in items)
    return 1
