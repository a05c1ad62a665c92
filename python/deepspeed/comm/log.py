"""The log of collectives: how many, of which size, how long, how fast. deepspeed.comm writes its calls into it, and an engine
what its own channels carry."""

from __future__ import annotations

import datetime
import logging
import math
from typing import Any

import torch.distributed as dist

from deepspeed.comm.bandwidth import calc_bw_log, convert_size, trim_mean
from deepspeed.comm.ranks import get_rank, get_world_size, is_initialized

_NAN = float("nan")


class CommsLogger:
    """comms_dict: by name and size in bytes a list of the count, latencies in ms, and both bandwidths in Gbps. Where a time is not
    known, as of an engine's collectives on a GPU, the count alone grows."""

    def __init__(self) -> None:
        self.comms_dict: dict[str, dict[int, list[Any]]] = {}
        self.enabled = False
        self.prof_all = True
        self.prof_ops: list[str] = []
        self.verbose = False
        self.debug = False

    def configure(self, comms_config: Any) -> None:
        self.enabled = comms_config.comms_logger_enabled
        if self.enabled:
            for name in ("verbose", "debug", "prof_ops", "prof_all"):
                setattr(self, name, getattr(comms_config.comms_logger, name))

    def wants(self, name: str, asked: bool = False) -> bool:
        """Whether a call under the name is put down. asked: the call says so itself."""
        return self.enabled and (asked or self.prof_all or name in self.prof_ops)

    def start_profiling_comms(self) -> None:
        self.prof_all = True

    def stop_profiling_comms(self) -> None:
        self.prof_all = False

    def start_profiling_op(self, op_name_list: list[str]) -> None:
        self.prof_ops = sorted({*self.prof_ops, *op_name_list})

    def stop_profiling_op(self, op_name_list: list[str]) -> None:
        self.prof_ops = [name for name in self.prof_ops if name not in op_name_list]

    def append(self, raw_name: str, record_name: str, latency: float | None, msg_size: int) -> None:
        """latency: in milliseconds; None: not known."""
        entry = self.comms_dict.setdefault(record_name, {}).setdefault(msg_size, [0, [], [], []])
        entry[0] += 1
        said = "not known"
        if latency is not None:
            bandwidths = calc_bw_log(raw_name, msg_size, latency)
            for values, value in zip(entry[1:], (latency, *bandwidths)):
                values.append(value)
            said = f"{latency:.2f}"
        if self.verbose:
            text = f"comm op: {record_name} | time (ms): {said} | msg size: {convert_size(msg_size)}"
            if latency is not None:
                text += f" | algbw (Gbps): {bandwidths[0]:.2f} | busbw (Gbps): {bandwidths[1]:.2f}"
            if get_rank() == 0:
                logging.getLogger("DeepSpeed").info("[Rank 0] %s", text)

    def get_raw_data(self) -> dict[str, dict[int, list[Any]]]:
        return self.comms_dict.copy()

    def has_data(self) -> bool:
        return bool(self.comms_dict)

    def reset_data(self) -> None:
        self.comms_dict.clear()

    def get_operation_names(self) -> list[str]:
        return list(self.comms_dict)

    def get_total_operations(self) -> int:
        return sum(entry[0] for sizes in self.comms_dict.values() for entry in sizes.values())

    def get_operation_summary(self, operation_name: str) -> dict[int, dict[str, Any]] | None:
        sizes = self.comms_dict.get(operation_name)
        return None if sizes is None else {size: _summary_of(size, entry) for size, entry in sorted(sizes.items())}

    def log_all(self, print_log: bool = True, show_straggler: bool = False, return_dict: bool = False) -> dict[str, Any] | None:
        """The summary as text and as a dict. With show_straggler every rank calls it."""
        summary = {name: self.get_operation_summary(name) for name in list(self.comms_dict)}
        stragglers = self._stragglers() if show_straggler else None
        if print_log:
            print("\n".join(_text_of(summary) + (_straggler_text(stragglers) if stragglers is not None else [])), flush=True)
        if not return_dict:
            return None
        about = {"world_size": get_world_size(), "rank": get_rank(), "timestamp": datetime.datetime.now().isoformat()}
        return {"summary": summary, "straggler_analysis": stragglers, "metadata": about}

    def _stragglers(self) -> dict[str, dict[int, dict[str, Any]]]:
        """Of each collective the shortest time of any rank, and what this rank took longer. Ranks may hold unlike lists, of one more
        step say: what all have is compared."""
        own = {name: {size: entry[1] for size, entry in sizes.items()} for name, sizes in self.comms_dict.items()}
        everyone: list[Any] = [own]
        if is_initialized():
            everyone = [None] * get_world_size()
            dist.all_gather_object(everyone, own)
        found: dict[str, dict[int, dict[str, Any]]] = {}
        for name, sizes in own.items():
            for size, latencies in sorted(sizes.items()):
                lists = [each.get(name, {}).get(size, []) for each in everyone]
                count = min(len(each) for each in lists)
                least = [min(each[at] for each in lists) for at in range(count)]
                behind = [mine - fastest for mine, fastest in zip(latencies, least)]
                found.setdefault(name, {})[size] = {
                    "count": count,
                    "total_comm_lat_ms": sum(least),
                    "total_straggler_ms": sum(behind),
                    "avg_comm_lat_ms": trim_mean(least, 0.1) if count else _NAN,
                    "avg_straggler_ms": trim_mean(behind, 0.1) if count else _NAN,
                    "msg_size_bytes": size,
                    "msg_size_str": convert_size(size),
                }
        return found


def _summary_of(size: int, entry: list[Any]) -> dict[str, Any]:
    count, latencies, algorithm, bus = entry
    means = [trim_mean(values, 0.1) if values else _NAN for values in (latencies, algorithm, bus)]
    return {
        "count": count,
        "total_latency_ms": sum(latencies) if latencies else _NAN,
        "avg_latency_ms": means[0],
        "tput_avg_gbps": means[1],
        "busbw_avg_gbps": means[2],
        "msg_size_bytes": size,
        "msg_size_str": convert_size(size),
    }


def _columns(*values: Any) -> str:
    return "".join(f"{f'{value:.2f}' if isinstance(value, float) else value: <20}" for value in values)


def _text_of(summary: dict[str, Any]) -> list[str]:
    lines = [
        _columns("Comm. Op", "Message Size", "Count", "Total Latency(ms)", "Avg Latency(ms)", "tput_avg (Gbps)", "busbw_avg (Gbps)")
    ]
    for name, sizes in summary.items():
        lines.append(name)
        for each in sizes.values():
            numbers = [each[key] for key in ("total_latency_ms", "avg_latency_ms", "tput_avg_gbps", "busbw_avg_gbps")]
            shown = ["not known" if math.isnan(number) else float(number) for number in numbers]
            lines.append(_columns(" ", each["msg_size_str"], each["count"], *shown))
    return lines


def _straggler_text(stragglers: dict[str, Any]) -> list[str]:
    title = ("Comm. Op", "Message Size", "Count", "Total comm lat(ms)", "Total straggler(ms)", "Avg comm lat(ms)", "Avg straggler(ms)")
    lines = ["_" * 31, "Breakdown with straggler effect", "-" * 31, _columns(*title)]
    for name, sizes in stragglers.items():
        lines.append(name)
        for each in sizes.values():
            keys = ("total_comm_lat_ms", "total_straggler_ms", "avg_comm_lat_ms", "avg_straggler_ms")
            lines.append(_columns(" ", each["msg_size_str"], each["count"], *(float(each[key]) for key in keys)))
    return lines
