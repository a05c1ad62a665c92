"""Barriers of ranks that share GPUs: what a library gives as a GPU's number is a rank's on its host, and may be no GPU's."""

from __future__ import annotations

from unittest import mock

import torch
import torch.distributed as dist
from deepspeed.comm import shared_gpus

from ranks import main


def barrier_calls(gpus: int, local_size: int, *calls: dict) -> list[dict]:
    """What reaches torch's barrier."""
    seen: list[dict] = []

    def barrier(group=None, async_op=False, device_ids=None):
        seen.append({"async_op": async_op, "device_ids": device_ids})

    with (
        mock.patch.object(dist, "barrier", barrier),
        mock.patch.object(torch.cuda, "is_available", lambda: gpus > 0),
        mock.patch.object(torch.cuda, "device_count", lambda: gpus),
        mock.patch.object(torch.cuda, "current_device", lambda: 0),
        mock.patch.object(shared_gpus, "local_size", lambda: local_size),
    ):
        for _ in range(2):  # two engines
            shared_gpus.let_barriers_name_ranks()
        for call in calls:
            dist.barrier(**call)
    return seen


def test_a_barrier_on_a_gpu_that_is_not_there_takes_the_rank_s_own():
    calls = [{"device_ids": [1]}, {"device_ids": [0], "async_op": True}, {}]
    wanted = [{"async_op": False, "device_ids": [0]}, {"async_op": True, "device_ids": [0]}, {"async_op": False, "device_ids": None}]
    assert barrier_calls(1, 2, *calls) == wanted


def test_barriers_of_ranks_that_share_no_gpu_stay_as_they_are():
    for gpus in (0, 2):
        assert barrier_calls(gpus, 2, {"device_ids": [5]}) == [{"async_op": False, "device_ids": [5]}]


if __name__ == "__main__":
    main(globals())
