"""deepspeed.runtime.utils: what scripts print about memory."""

from __future__ import annotations

import resource

from deepspeed import comm
from deepspeed.accelerator import get_accelerator
from deepspeed.utils.logging import logger


def see_memory_usage(message: str, force: bool = False) -> None:
    """Logs on rank 0 what the GPU holds, torch's part of it, and the peak of this process; only when forced, as DeepSpeed
    does. Model states are CUDA's own memory, not torch's."""
    if not force or comm.get_rank() != 0:
        return
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    text = f"{message}: peak of this process {peak:.2f} GiB"
    accelerator = get_accelerator()
    if accelerator.device_name() == "cuda":
        used = (accelerator.total_memory() - accelerator.available_memory()) / 2**30
        text += f"; in use on the GPU {used:.2f} GiB, by torch {accelerator.memory_allocated() / 2**30:.2f} GiB"
        text += f", at most {accelerator.max_memory_allocated() / 2**30:.2f} GiB"
    logger.info(text)
