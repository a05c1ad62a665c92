"""The log of collectives: calls of deepspeed.comm and what an engine's own channels carry, by name and size, on 2 CPU ranks."""

from __future__ import annotations

import io
import math
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from ranks import main, message, run


def calls() -> dict:
    """By torch's names, on 2 ranks."""
    import deepspeed
    import deepspeed.comm as dist

    deepspeed.init_distributed("gloo")
    ones = torch.ones(10)
    dist.all_reduce(ones)  # before it is on: not in the log
    assert not dist.has_comm_data()
    dist.configure(enabled=True)
    for _ in range(3):
        dist.all_reduce(ones)
    work = dist.all_reduce(ones, async_op=True)
    work.wait()
    dist.broadcast(tensor=torch.ones(4, dtype=torch.int64), src=0)
    whole = torch.empty(2 * 3)
    dist.all_gather_into_tensor(whole, torch.full((3,), float(dist.get_rank())))
    assert whole.tolist() == [0, 0, 0, 1, 1, 1]
    parts = [torch.empty(3), torch.empty(3)]
    dist.all_gather(parts, torch.ones(3), log_name="mine", prof=True)
    if dist.get_rank() == 0:
        dist.send(torch.ones(2), dst=1)
    else:
        dist.recv(torch.ones(2), src=0)
    dist.barrier()
    with redirect_stdout(io.StringIO()) as printed:
        found = dist.log_summary(show_straggler=True, return_dict=True)
    names, count = dist.get_logged_comm_ops(), dist.get_comm_operation_count()
    dist.configure(prof_all=False, prof_ops=["broadcast"])
    dist.reset_log()
    dist.all_reduce(ones)
    dist.broadcast(ones, 0)
    dist.all_reduce(ones, prof=True)
    chosen = dist.get_logged_comm_ops()
    dist.configure(debug=True, prof_all=True)
    dist.reset_log()
    dist.all_reduce(ones)
    named = dist.get_logged_comm_ops()
    dist.configure(enabled=False)
    dist.all_reduce(ones)
    return {"summary": found["summary"], "stragglers": found["straggler_analysis"], "about": found["metadata"], "names": names,
            "count": count, "chosen": chosen, "named": named, "printed": printed.getvalue(), "off": dist.get_comm_operation_count()}  # fmt: skip


def test_calls_are_counted_by_name_and_size():
    for rank, found in enumerate(run(__file__, "calls", 2)):
        summary = found["summary"]
        sizes = {name: {size: entry["count"] for size, entry in sizes.items()} for name, sizes in summary.items()}
        send = {"send": {"8": 1}} if rank == 0 else {"recv": {"8": 1}}
        expected = {"all_reduce": {"40": 4}, "broadcast": {"32": 1}, "all_gather_into_tensor": {"12": 1}, "mine": {"12": 1}, "barrier": {"0": 1}}
        assert sizes == expected | send, sizes
        entry = summary["all_reduce"]["40"]
        assert entry["msg_size_str"] == "40.0 B" and entry["total_latency_ms"] >= entry["avg_latency_ms"] > 0, entry
        assert math.isclose(entry["busbw_avg_gbps"], entry["tput_avg_gbps"] / 2), "2 ranks: half of what the caller sees"
        assert set(found["names"]) == set(sizes) and found["count"] == 9
        least = found["stragglers"]["all_reduce"]["40"]
        assert least["count"] == 4 and least["total_comm_lat_ms"] <= entry["total_latency_ms"] and least["total_straggler_ms"] >= 0
        assert found["about"]["world_size"] == 2 and found["about"]["rank"] == rank
        assert sorted(found["chosen"]) == ["all_reduce", "broadcast"] and found["named"] == ["all_reduce | [Caller Func: calls]"]
        assert found["off"] == 1, "nothing more once it is off"
        assert (found["printed"].startswith("Comm. Op            Message Size        Count ")) == (rank == 0)
        assert ("Breakdown with straggler effect" in found["printed"]) == (rank == 0)


def engine_log(stage: int) -> dict:
    import deepspeed
    import deepspeed.comm as dist

    torch.manual_seed(0)
    settings = {
        "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "Adam", "params": {"lr": 0.01}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}, "comms_logger": {"enabled": True, "prof_all": True},
    }  # fmt: skip
    engine = deepspeed.initialize(model=nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)), config=settings)[0]
    dist.reset_log()
    for step in range(3):
        engine.backward(engine(torch.ones(2, 64)).pow(2).mean())
        engine.step()
    with redirect_stdout(io.StringIO()) as printed:
        found = dist.log_summary(return_dict=True)["summary"]
    counts = {name: sum(entry["count"] for entry in sizes.values()) for name, sizes in found.items()}
    nbytes = {name: sum(int(size) * entry["count"] for size, entry in sizes.items()) for name, sizes in found.items()}
    times = all(entry["total_latency_ms"] >= 0 for sizes in found.values() for entry in sizes.values())
    engine.destroy()
    dist.configure(enabled=False)
    dist.reset_log()
    return {"counts": counts, "nbytes": nbytes, "times": times, "printed": printed.getvalue()}


def test_what_an_engine_carries_is_in_it():
    shard = 4 * 2 * (64 * 64 + 64) // 2  # bytes of fp32 gradients or weights that a rank owns, without padding
    for stage in (1, 2, 3):
        found = run(__file__, "engine_log", 2, stage=stage)
        assert found[0]["counts"] == found[1]["counts"], found
        for each in found:
            assert each["times"], each
            assert each["nbytes"]["reduce_scatter_tensor"] >= 3 * shard, (stage, each)
            assert each["nbytes"]["reduce_scatter_tensor"] <= 3 * (shard + 2048), (stage, each, "padding is small")
            passes = 6 if stage == 3 else 3  # forward and backward gather, or the publish after each update
            assert each["nbytes"]["all_gather_into_tensor"] >= passes * shard * (0.6 if stage == 3 else 1), (stage, each)
        assert "reduce_scatter_tensor" in found[0]["printed"] and found[1]["printed"] == ""


def test_speeds_and_sizes_as_text():
    from deepspeed.utils.comms_logging import CommsLogger, calc_bw_log, convert_size

    assert [convert_size(size) for size in (0, 1, 1023, 1024, 3 * 2**20)] == ["0B", "1.0 B", "1023.0 B", "1.0 KB", "3.0 MB"]
    assert calc_bw_log("broadcast", 1e6, 8) == (1.0, 1.0), "1e6 bytes in 8 ms are 1 Gbps"
    assert calc_bw_log("all_reduce", 1e6, 8) == (2.0, 0.0), "one rank sends nothing"
    assert calc_bw_log("barrier", 0, 0) == (0.0, 0.0)
    assert "no collective that is known" in message(lambda: calc_bw_log("reduce_all", 1, 1))
    log = CommsLogger()
    log.append("all_reduce", "all_reduce", None, 8)
    with redirect_stdout(io.StringIO()) as printed:
        log.log_all()
    assert printed.getvalue().count("not known") == 4, printed.getvalue()
    assert log.get_operation_summary("all_reduce")[8]["count"] == 1 and log.get_operation_summary("none") is None


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))
