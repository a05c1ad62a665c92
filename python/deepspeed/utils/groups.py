"""Groups of ranks: all ranks are data-parallel ranks."""

import torch.distributed as dist

from deepspeed import comm


def _get_sequence_parallel_world_size() -> int:
    return 1


def _get_sequence_parallel_rank() -> int:
    return 0


def _get_sequence_parallel_group():
    raise KeyError("[deepspeed.utils.groups] there is no sequence-parallel group. Shoal trains data-parallel ranks.")


def _get_data_parallel_group():
    return dist.group.WORLD


def _get_data_parallel_world_size() -> int:
    return comm.get_world_size()


def _get_data_parallel_rank() -> int:
    return comm.get_rank()
