"""The ranks of this run. One group serves all engines of the process: each takes channels of its own from it."""

from __future__ import annotations

import os

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
            return int(os.environ[name])
    return 1
