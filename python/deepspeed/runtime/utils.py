"""deepspeed.runtime.utils: what scripts print about memory."""

from __future__ import annotations

import resource

from deepspeed import comm
from deepspeed.utils.logging import logger


def see_memory_usage(message: str, force: bool = False) -> None:
    """Logs the peak of this process on rank 0; only when forced, as DeepSpeed does."""
    if force and comm.get_rank() == 0:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        logger.info("%s: peak of this process %.2f GiB", message, peak)
