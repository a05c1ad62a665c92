"""Trains Llama shapes with Shoal and with plain PyTorch on one GPU, in turns, and prints the table of bench/results.

    run.py --shoal 'build/release/apps/cli/shoal' [--models llama-1b,llama-3b] [--rounds 2] [--json FILE]

A row is a program and a model; its time is the median over rounds of the median step. 8 x 2048 tokens a step, bf16, clip 1.0.
Model FLOPs a token: 6 N, N without the embedding, and 12 * layers * hidden * sequence / 2 for causal attention.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from shapes import SHAPES

HERE = Path(__file__).parent
SEQUENCE, BATCH = 2048, 8
PEAK = 989e12  # bf16, dense, by the vendor


def flops_a_token(model):
    hidden, layers, heads, kv_heads, ffn, vocab = SHAPES[model]
    dim = hidden // heads
    block = hidden * dim * (2 * heads + 2 * kv_heads) + 3 * hidden * ffn
    matmul = layers * block + vocab * hidden
    return 6 * matmul + 12 * layers * hidden * SEQUENCE // 2


def run_shoal(command, model, extra, steps, warmup):
    with tempfile.TemporaryDirectory() as folder:
        words = shlex.split(command) + ["train", "--model", model, "--data", "synthetic", "--config", str(HERE / "llama.json")]
        words += ["--sequence", str(SEQUENCE), "--steps", str(steps + warmup), "--device", "cuda", "--log-every", "0"]
        words += ["--out", folder, "--no-final-save", *extra]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            return {"error": (done.stderr or done.stdout)[-600:]}
        lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return {"median_s": statistics.median(line["step_ms"] for line in lines[warmup:]) / 1e3}


def run_torch(model, extra, steps, warmup):
    words = [sys.executable, str(HERE / "torch_llama.py"), "--model", model, "--steps", str(steps), "--warmup", str(warmup)]
    done = subprocess.run(words + ["--json", *extra], capture_output=True, text=True)
    if done.returncode != 0:
        return {"error": done.stderr[-600:]}
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shoal", required=True, help="the command `shoal`, with words before it where it needs them")
    parser.add_argument("--models", default="llama-1b,llama-3b")
    parser.add_argument("--programs", default="shoal,torch compiled", help="of: shoal, shoal stage 0, shoal selective, "
                        "shoal recompute, shoal deterministic, shoal auto, shoal inputs on host, shoal fp8, shoal fp8 selective, shoal fp8 recompute, "
                        "shoal fp8 auto, torch, torch compiled, torch recompute")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--json", help="write the figures here too")
    args = parser.parse_args()

    flags = {
        "shoal": [],
        "shoal stage 0": ["--set", "zero_optimization.stage=0"],
        "shoal selective": ["--recompute", "selective"],
        "shoal recompute": ["--recompute", "full"],
        "shoal deterministic": ["--deterministic"],
        "shoal auto": ["--recompute", "auto"],
        "shoal inputs on host": ["--recompute", "full", "--set", "activation_checkpointing.cpu_checkpointing=true"],
        "shoal fp8": ["--set", "fp8.enabled=true"],
        "shoal fp8 selective": ["--set", "fp8.enabled=true", "--recompute", "selective"],
        "shoal fp8 recompute": ["--set", "fp8.enabled=true", "--recompute", "full"],
        "shoal fp8 auto": ["--set", "fp8.enabled=true", "--recompute", "auto"],
        "torch": [],
        "torch compiled": ["--compile"],
        "torch recompute": ["--recompute"],
    }
    rows = []
    for model in args.models.split(","):
        times = {program: [] for program in args.programs.split(",")}
        for _ in range(args.rounds):
            for program in times:
                run = run_shoal if program.startswith("shoal") else run_torch
                first = (args.shoal,) if program.startswith("shoal") else ()
                result = run(*first, model, flags[program], args.steps, args.warmup)
                if "error" in result:
                    print(f"{program} {model}: {result['error']}", file=sys.stderr, flush=True)
                else:
                    times[program].append(result["median_s"])
        for program, seconds in times.items():
            if not seconds:
                continue
            median = statistics.median(seconds)
            tokens = BATCH * SEQUENCE / median
            rate = tokens * flops_a_token(model)
            rows.append({"model": model, "program": program, "seconds": median, "rounds": seconds, "tokens_per_s": tokens,
                         "model_tflops": rate / 1e12, "mfu": rate / PEAK})
            print(f"| {model} | {program} | {median:.4f} | {tokens:,.0f} | {rate / 1e12:.0f} | {100 * rate / PEAK:.1f} % |", flush=True)
            if args.json:
                Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
