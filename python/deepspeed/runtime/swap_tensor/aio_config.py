"""The section aio as a dict with every key."""

from __future__ import annotations

from typing import Any, Mapping

AIO_DEFAULT_DICT = {
    "block_size": 1048576,
    "queue_depth": 8,
    "intra_op_parallelism": 1,
    "single_submit": False,
    "overlap_events": True,
    "use_gds": False,
}


def get_aio_config(param_dict: Mapping[str, Any]) -> dict[str, Any]:
    section = param_dict.get("aio") or {}
    return {key: section.get(key, value) for key, value in AIO_DEFAULT_DICT.items()}
