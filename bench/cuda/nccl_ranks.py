"""Trains with several NCCL ranks that share one GPU, in turns: gradients by the exact fold, and by NCCL's own reduce-scatter.

    nccl_ranks.py --shoal 'build/release/apps/cli/shoal' [--ranks 2,4] [--model llama-33m] [--rounds 3] [--trace FILE]

The time is the median over rounds of the median step; beside it the share of a step that the GPU stood still for collectives.
Ranks talk over sockets on one host, so this compares the two sums and says nothing of NVLink. MPS is started where it can be:
without it ranks take turns on the GPU. --trace keeps the trace of rank 0 of an exact run at the first number of ranks. Ends with 1
if any run failed.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

SUMS = {"exact fold": [], "NCCL's own sum": ["--set", "shoal.reduce=nccl"]}


@contextmanager
def mps():
    """Whether MPS serves the programs started meanwhile."""
    control = shutil.which("nvidia-cuda-mps-control")
    folder = tempfile.mkdtemp()
    environment = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    serves = False
    if control:
        try:
            subprocess.run([control, "-d"], env=os.environ | environment, timeout=20, check=True)
            serves = True
        except (subprocess.SubprocessError, OSError) as error:
            print(f"without MPS: {error}", file=sys.stderr)
    if serves:
        os.environ.update(environment)
    try:
        yield serves
    finally:
        if serves:
            subprocess.run([control], input=b"quit\n", timeout=20)
            for name in environment:
                os.environ.pop(name)
        shutil.rmtree(folder, ignore_errors=True)


def train(args, ranks, extra, trace=None):
    """Medians over the steps after the first ones; what the run said if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*shlex.split(args.shoal), "train", "--model", args.model, "--data", "synthetic", "--sequence", "256",
                 "--steps", str(args.steps + args.warmup), "--device", "cuda", "--ranks", str(ranks), "--share-gpu",
                 "--log-every", "0", "--out", folder, "--no-final-save", "--set", "shoal.transport=nccl",
                 "--set", "zero_optimization.stage=3", "--set", "bf16.enabled=true", "--set", "gradient_clipping=1.0",
                 "--set", "train_micro_batch_size_per_gpu=2", *extra]  # fmt: skip
        if trace:
            words += ["--trace-steps", f"{args.warmup + 1}-{args.warmup + 3}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=args.limit)
        if done.returncode != 0:
            raise RuntimeError((done.stderr or done.stdout)[-800:])
        if trace:
            shutil.copy(next(Path(folder).glob("trace*.json")), trace)
        lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()][args.warmup :]
    return {key: statistics.median(line[key] for line in lines) for key in ("step_ms", "wait_comm_ms") if key in lines[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shoal", required=True, help="the command `shoal`, with words before it where it needs them")
    parser.add_argument("--model", default="llama-33m")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--limit", type=float, default=120, help="seconds for one run")
    parser.add_argument("--trace", help="keep a trace here")
    args = parser.parse_args()
    failed = False
    with mps() as serves:
        print(f"MPS: {'yes' if serves else 'no'}")
        print("| ranks | sum | step, ms | stood still, ms | rounds, ms |\n|---:|---|---:|---:|---|")
        for ranks in map(int, args.ranks.split(",")):
            found = {name: [] for name in SUMS}
            for turn in range(args.rounds):
                for name in SUMS if turn % 2 == 0 else reversed(SUMS):
                    try:
                        found[name].append(train(args, ranks, SUMS[name]))
                    except (RuntimeError, subprocess.TimeoutExpired) as error:
                        failed = True
                        print(f"{ranks} ranks, {name}: {error}", file=sys.stderr, flush=True)
            for name, rounds in found.items():
                if not rounds:
                    continue
                step, wait = (statistics.median(r.get(key, float("nan")) for r in rounds) for key in ("step_ms", "wait_comm_ms"))
                each = ", ".join(f"{r['step_ms']:.1f}" for r in rounds)
                print(f"| {ranks} | {name} | {step:.1f} | {wait:.1f} | {each} |", flush=True)
        if args.trace:
            train(args, int(args.ranks.split(",")[0]), [], args.trace)
            print(f"trace of rank 0: {args.trace}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
