"""DeepSpeed's logger."""

import logging
import sys

from deepspeed import comm

logger = logging.getLogger("DeepSpeed")
if not logger.handlers:
    _handler = logging.StreamHandler(sys.stdout)
    _handler.setFormatter(logging.Formatter("[%(asctime)s] [%(levelname)s] %(message)s"))
    logger.addHandler(_handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def log_dist(message: str, ranks: list[int] | None = None, level: int = logging.INFO) -> None:
    """Logs on the given ranks; [-1] or nothing means all."""
    if not ranks or -1 in ranks or comm.get_rank() in ranks:
        logger.log(level, "[Rank %s] %s", comm.get_rank(), message)


_warned: set[str] = set()


def warning_once(message: str) -> None:
    """Warns on rank 0, once a process."""
    if message not in _warned and comm.get_rank() == 0:
        _warned.add(message)
        logger.warning(message)


def print_dist(message: str, ranks: list[int] | None = None) -> None:
    """Prints on the given ranks, whatever the level of the logger; [-1] or nothing means all."""
    if not ranks or -1 in ranks or comm.get_rank() in ranks:
        print(f"[Rank {comm.get_rank()}] {message}", flush=True)
