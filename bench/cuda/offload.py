"""Trains Llama shapes on one GPU with the optimizer's states on it, and in host memory, in turns; prints the table of
bench/results.

    offload.py --shoal 'build/release/apps/cli/shoal' [--models llama-1b,llama-3b] [--rows resident,host] [--rounds 2]

"host, 24 GiB" lets Shoal place states within that much of the GPU. Steps are of 8 x 2048 tokens, bf16, recompute on, clip 1.0; a row's
time is the median over rounds of the median step. Rows named deepspeed run bench/cuda/deepspeed_llama.py in the Python that
--deepspeed-python names, which has the real DeepSpeed; the row fsdp2 runs bench/cuda/fsdp_llama.py.
"""

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SEQUENCE = 2048
GIB = 2**30
HOST = '{"device": "cpu"}'
FP16 = ["--set", "bf16.enabled=false", "--set", "fp16.enabled=true"]
ROWS = {
    "resident": [],
    "host": ["--set", f"zero_optimization.offload_optimizer={HOST}"],
    "resident, fp16": FP16,
    "host, fp16": [*FP16, "--set", f"zero_optimization.offload_optimizer={HOST}"],
    "host, ring 1 GiB": ["--set", f"zero_optimization.offload_optimizer={HOST}", "--set", f"shoal.offload_ring_size={GIB}"],
    "host, 24 GiB": ["--set", "shoal.placement=auto", "--set", f"shoal.device_budget={24 * GIB}"],
    "host, 24 GiB, GPU updates": ["--set", "shoal.placement=auto", "--set", f"shoal.device_budget={24 * GIB}",
                                  "--set", "shoal.offload_update=gpu"],
    "host, weights too": ["--set", f"zero_optimization.offload_optimizer={HOST}",
                          "--set", f"zero_optimization.offload_param={HOST}"],
    "host, weights too, GPU updates": ["--set", f"zero_optimization.offload_optimizer={HOST}",
                                       "--set", f"zero_optimization.offload_param={HOST}", "--set", "shoal.offload_update=gpu"],
    "host, half the weights too": ["--set", f"zero_optimization.offload_optimizer={HOST}",
                                   "--set", 'zero_optimization.offload_param={"device": "cpu", "ratio": 0.5}'],
    "host, 14 GiB": ["--set", "shoal.placement=auto", "--set", f"shoal.device_budget={14 * GIB}", "--set", "shoal.offload_update=gpu"],
    "deepspeed, zero 2": ["--stage", "2"],
    "deepspeed, zero 3": ["--stage", "3"],
    "deepspeed, twin-flow": ["--stage", "3", "--ratio", "0.5"],
    "fsdp2": [],
    "host updates": ["--set", f"zero_optimization.offload_optimizer={HOST}", "--set", "shoal.offload_update=cpu"],
    "host updates, gradients on the GPU": ["--set", f"zero_optimization.offload_optimizer={HOST}",
                                           "--set", "shoal.offload_update=cpu", "--set", "shoal.offload_gradients=off"],
    "host updates, nothing clipped": ["--set", f"zero_optimization.offload_optimizer={HOST}",
                                      "--set", "shoal.offload_update=cpu", "--set", "gradient_clipping=0"],
    "host updates ahead, nothing clipped": ["--set", f"zero_optimization.offload_optimizer={HOST}",
                                            "--set", "shoal.offload_update=cpu", "--set", "gradient_clipping=0",
                                            "--set", "shoal.speculative_update=true"],
    "host updates ahead, all clipped": ["--set", f"zero_optimization.offload_optimizer={HOST}", "--set", "shoal.offload_update=cpu",
                                        "--set", "gradient_clipping=1e-3", "--set", "shoal.speculative_update=true"],
    "host updates, weights too": ["--set", f"zero_optimization.offload_optimizer={HOST}",
                                  "--set", f"zero_optimization.offload_param={HOST}", "--set", "shoal.offload_update=cpu"],
}

PEERS = ("deepspeed", "fsdp2")


def run(command, model, extra, steps, warmup):
    """The median step, and what the run says of its memory."""
    with tempfile.TemporaryDirectory() as folder:
        words = shlex.split(command) + ["train", "--model", model, "--data", "synthetic", "--config", str(HERE / "llama.json")]
        words += ["--sequence", str(SEQUENCE), "--steps", str(steps + warmup), "--device", "cuda", "--log-every", "0"]
        words += ["--recompute", "full", "--out", folder, "--no-final-save", *extra]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        if status != 0:
            return {"error": output[-800:]}
        lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()][warmup:]
    said = re.search(r"GPU memory (\S+ \S+) at most", output)
    traffic = re.search(r"states of the host: (.*)", output) or re.search(r"(\S+ billion of them before .*)", output)
    return {
        "median_s": statistics.median(line["step_ms"] for line in lines) / 1e3,
        "wait_host_ms": statistics.median(line["wait_host_ms"] for line in lines),
        "loss": lines[-1]["loss"],
        "gpu": said.group(1) if said else "",
        "traffic": traffic.group(1) if traffic else "",
        "host_gib": usage.ru_maxrss / 2**20,
    }


def run_peer(python, script, model, extra, steps, warmup):
    """The same of a peer's row."""
    words = shlex.split(python) + [str(HERE / script), "--model", model, "--steps", str(steps), "--warmup", str(warmup)]
    child = subprocess.Popen([*words, *extra], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    found = re.search(r"^figures (.*)$", output, re.MULTILINE)
    if status != 0 or not found:
        return {"error": output[-800:]}
    return {"wait_host_ms": 0, "traffic": "", "host_gib": usage.ru_maxrss / 2**20, **json.loads(found.group(1))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shoal", required=True, help="the command `shoal`, with words before it where it needs them")
    parser.add_argument("--models", default="llama-1b,llama-3b")
    parser.add_argument("--deepspeed-python", help="a Python that has the real DeepSpeed; words before it are possible")
    parser.add_argument("--rows", default=";".join(row for row in ROWS if not row.startswith(PEERS)), help="of: " + "; ".join(ROWS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], dest="more", help="passed on to every run")
    parser.add_argument("--json", help="write the figures here too")
    args = parser.parse_args()

    figures = []
    for model in args.models.split(","):
        rounds = {row: [] for row in args.rows.split(";")}
        for _ in range(args.rounds):
            for row, runs in rounds.items():
                if row.startswith("deepspeed"):
                    python, script = args.deepspeed_python, "deepspeed_llama.py"
                    runs.append(run_peer(python, script, model, ROWS[row], args.steps, args.warmup))
                elif row == "fsdp2":
                    runs.append(run_peer(sys.executable, "fsdp_llama.py", model, ROWS[row], args.steps, args.warmup))
                else:
                    more = [word for setting in args.more for word in ("--set", setting)]
                    runs.append(run(args.shoal, model, ROWS[row] + more, args.steps, args.warmup))
                one = runs[-1]
                words = f"{one['median_s']:.3f} s, waits {one['wait_host_ms']:.0f} ms" if "error" not in one else one["error"]
                print(f"  {model} {row}: {words}", flush=True)
        base = None
        for row, runs in rounds.items():
            good = [one for one in runs if "error" not in one]
            if not good:
                print(f"{model:<10} {row:<18} failed: {runs[0]['error']}", flush=True)
                continue
            median = statistics.median(one["median_s"] for one in good)
            base = median if row == "resident" else base
            last = good[-1]
            times = f"{median / base:5.2f} x" if base else ""
            print(f"{model:<10} {row:<18} {median:7.3f} s {times}  waits {last['wait_host_ms']:6.1f} ms  GPU {last['gpu']:>10}  "
                  f"host {last['host_gib']:5.1f} GiB  loss {last['loss']:.6f}  {last['traffic']}", flush=True)  # fmt: skip
            figures.append({"model": model, "row": row, "median_s": median, **last})
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
