"""Which rank this is and how many there are, also before torch.distributed is up."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from shoal.world import number_of


def is_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


def get_rank(group: Any = None) -> int:
    return dist.get_rank(group) if is_initialized() else number_of("RANK", 0)


def get_world_size(group: Any = None) -> int:
    return dist.get_world_size(group) if is_initialized() else number_of("WORLD_SIZE", 1, least=1)
