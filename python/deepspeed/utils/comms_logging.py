"""deepspeed.utils.comms_logging: the names that DeepSpeed has there."""

from __future__ import annotations

import sys

from deepspeed import comm
from deepspeed.comm.bandwidth import calc_bw_log, convert_size
from deepspeed.comm.log import CommsLogger


def get_caller_func(frame: int = 3) -> str:
    """The name of the function that many frames up."""
    return sys._getframe(frame).f_code.co_name


def print_rank_0(message: str) -> None:
    if comm.get_rank() == 0:
        print(message)


__all__ = ["CommsLogger", "calc_bw_log", "convert_size", "get_caller_func", "print_rank_0"]
