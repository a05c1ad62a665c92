"""Measures two builds of Shoal against each other, in interleaved rounds: did a change make something slower?

    before_after.py --before ../other/build/release --after build/release                 what CPU ranks do
    before_after.py --before ../other/build/release --after build/release --gpu llama-1b  steps of these models on a GPU too

Prints a table of medians and their ratio, and how far rounds of one build lie from each other: a ratio inside that says nothing.
Ends with 1 when a row is slower than --limit.
"""

import argparse
import re
import statistics
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from machine import describe_machine
from train_compare import run_heat, say

sys.path.insert(0, str(Path(__file__).parent / "cuda"))
SIDES = ("before", "after")


def train_rows(builds, args):
    """Seconds of a step on 2 ranks, at each stage and over each transport."""
    rows = {}
    for transport in ("shm", "gloo"):
        for stage in range(4):
            def command_of(side, _, stage=stage, transport=transport):
                return [str(builds[side] / "bench/bench_train"), "--stage", str(stage), "--transport", transport,
                        *(["--layers", str(args.layers)] if args.layers else [])]

            heat = SimpleNamespace(command_of=command_of, ranks=2, rounds=args.rounds, steps=args.steps, warmup=2)
            results, unable = run_heat(list(SIDES), heat)
            if unable:
                raise SystemExit(f"stage {stage} over {transport}: {unable}")
            rows[f"step, stage {stage}, {transport}"] = {side: results[side]["seconds"] for side in SIDES}
    return rows


def printed_rows(builds, args, program, arguments, read):
    """Of a program that prints its figures: those that `read` finds, from each build in turn."""
    rows = {}
    for number in range(args.rounds):
        for side in SIDES if number % 2 == 0 else reversed(SIDES):
            out = subprocess.run([str(builds[side] / f"bench/{program}"), *arguments], capture_output=True, text=True, check=True)
            for name, seconds in read(out.stdout):
                rows.setdefault(name, {each: [] for each in SIDES})[side].append(seconds)
    return rows


def read_collectives(text):
    for line in text.splitlines():
        if found := re.match(r"(\S.*?)\s+(\d+) MiB\s+reduce_scatter\s+([\d.]+) ms.*all_gather\s+([\d.]+) ms", line):
            transport, size, reduce, gather = found.groups()
            yield f"reduce_scatter, {size} MiB, {transport}", float(reduce) / 1e3
            yield f"all_gather, {size} MiB, {transport}", float(gather) / 1e3


def read_adamw(text):
    """| form | elements | threads | ... | M elements/s |, as seconds of 2**20 elements."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[-1].isdigit():
            yield f"AdamW, {cells[0]}, {cells[1]} elements, a Mi of them", 2**20 / (float(cells[-1]) * 1e6)


def gpu_rows(builds, args):
    from run import run_shoal

    rows = {}
    for model in args.gpu.split(","):
        for name, extra in (("", []), (", states in host memory", ["--set", "zero_optimization.offload_optimizer.device=cpu"])):
            row = rows[f"step, {model}{name}"] = {side: [] for side in SIDES}
            for number in range(args.gpu_rounds):
                for side in SIDES if number % 2 == 0 else reversed(SIDES):
                    result = run_shoal(str(builds[side] / "apps/cli/shoal"), model, extra, 12, 5)
                    if "error" in result:
                        raise SystemExit(f"{model}{name}, {side}: {result['error']}")
                    row[side].append(result["median_s"])
    return rows


def spread(seconds):
    """Half of what the middle half of the rounds covers, of their median."""
    if len(seconds) < 4:
        return 0.5 * (max(seconds) - min(seconds)) / statistics.median(seconds)
    low, middle, high = statistics.quantiles(seconds, n=4)
    return 0.5 * (high - low) / middle


def table_of(rows):
    lines = ["| row | before, ms | after, ms | after / before | spread of rounds |", "|---|---:|---:|---:|---:|"]
    for name, row in rows.items():
        before, after = (statistics.median(row[side]) for side in SIDES)
        noise = max(spread(row[side]) for side in SIDES)
        lines.append(f"| {name} | {before * 1e3:.3f} | {after * 1e3:.3f} | {after / before:.3f} | {100 * noise:.1f} % |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, type=Path, help="a build folder")
    parser.add_argument("--after", required=True, type=Path, help="another")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3, help="training steps of a build in one round")
    parser.add_argument("--layers", type=int, help="of the model that CPU ranks train; fewer: less computing beside communication")
    parser.add_argument("--megabytes", nargs="+", default=[], help="sizes of what collectives move; left out: those of the program")
    parser.add_argument("--gpu", help="models to train on a GPU, comma-separated")
    parser.add_argument("--gpu-rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=1.02)
    parser.add_argument("--only", default="train,collectives,adamw", help="of these, comma-separated")
    args = parser.parse_args()
    builds = {"before": args.before.resolve(), "after": args.after.resolve()}
    parts = {
        "train": lambda: train_rows(builds, args),
        "collectives": lambda: printed_rows(builds, args, "bench_collectives", args.megabytes, read_collectives),
        "adamw": lambda: printed_rows(builds, args, "bench_adamw", ["--rounds", "3", "--threads", "1"], read_adamw),
        "gpu": lambda: gpu_rows(builds, args),
    }
    print(describe_machine(), flush=True)
    slower = []
    for part in [*filter(None, args.only.split(",")), *(["gpu"] if args.gpu else [])]:
        say(f"== {part}")
        rows = parts[part]()
        print(f"\n{table_of(rows)}", flush=True)
        slower += [name for name, row in rows.items()
                   if statistics.median(row["after"]) > args.limit * statistics.median(row["before"])]
    if slower:
        print(f"\nSlower than {args.limit}: {'; '.join(slower)}.")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
