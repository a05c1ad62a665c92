"""Trains the same model from the same weights on the same data, exactly and with each form of ZeRO++, and puts the losses side by side.

    quantized_losses.py --build build/release                   writes bench/results/quantized-losses-<arch>-<date>.md
    quantized_losses.py --forms exact,int4 --steps 20           a part; prints the table only

Four ranks on this machine, two of which count as one host and two as another (SHOAL_HOSTS): gradients cross between them in few bits.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import describe_machine, today

ROOT = Path(__file__).resolve().parent.parent
ZERO = "zero_optimization."
WEIGHTS = [ZERO + "zero_quantized_weights=true"]
GRADIENTS = [ZERO + "zero_quantized_gradients=true"]
FORMS = {
    "exact": ("stage 3, exact", []),
    "qwz": ("weights int8", WEIGHTS),
    "int8": ("gradients int8", [*GRADIENTS, "shoal.quantized_gradient_bits=8"]),
    "int4": ("gradients int4", GRADIENTS),
    "loco": ("gradients int4, error feedback", [*GRADIENTS, ZERO + "zeropp_loco_param.err_beta=0.8"]),
    "all": ("all: hpZ, weights int8, gradients int4", [ZERO + "zero_hpz_partition_size=2", *WEIGHTS, *GRADIENTS]),
}
MARKS = 6  # losses in a row of the table


def command_of(form, args, out):
    settings = [f"train_batch_size={args.batch}", f"train_micro_batch_size_per_gpu={args.batch // 4}", "bf16.enabled=true",
                ZERO + "stage=3", ZERO + "stage3_param_persistence_threshold=1000", "optimizer.type=AdamW",
                f"optimizer.params.lr={args.lr}", *FORMS[form][1]]
    return [str(Path(args.build) / "apps/cli/shoal"), "train", "--model", args.model, "--data", args.data,
            "--sequence", str(args.sequence), "--steps", str(args.steps), "--ranks", "4", "--threads", "1", "--seed", "1",
            "--no-report", "--out", str(out), *(word for each in settings for word in ("--set", each))]


def train(form, args, folder):
    out = Path(folder) / form
    done = subprocess.run(command_of(form, args, out), env={**os.environ, "SHOAL_HOSTS": "0,0,1,1"}, cwd=ROOT,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{form}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def row_of(form, lines, exact):
    losses = [line["loss"] for line in lines]
    tenth = max(1, len(losses) // MARKS)
    means = [statistics.mean(losses[max(0, end - tenth):end]) for end in range(tenth, tenth * MARKS + 1, tenth) if end <= len(losses)]
    sent = lines[-1].get("sent_between_hosts_bytes", 0)
    reference = statistics.mean([line["loss"] for line in exact][-tenth:])
    cells = [f"{mean:.4f}" for mean in means] + [f"{means[-1] - reference:+.4f}", f"{sent:,}"]
    return f"| {FORMS[form][0]} | " + " | ".join(cells) + " |"


def table_of(results, args):
    exact = results.get("exact") or next(iter(results.values()))
    tenth = max(1, args.steps // MARKS)
    ends = [end for end in range(tenth, tenth * MARKS + 1, tenth) if end <= args.steps]
    head = "| | " + " | ".join(f"{end - tenth + 1} to {end}" for end in ends) + " | last, against exact | bytes between hosts, rank 0, last step |"
    return "\n".join([head, "|---|" + "---:|" * (len(ends) + 2), *(row_of(form, lines, exact) for form, lines in results.items())])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--model", default="llama-33m")
    parser.add_argument("--data", default="synthetic")
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--write", action="store_true", help="write the result though some settings are not the defaults")
    args = parser.parse_args()
    forms = args.forms.split(",")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for form in forms:
            results[form] = train(form, args, folder)
            print(row_of(form, results[form], results[forms[0]]), flush=True)
    table = table_of(results, args)
    print(table)
    if not args.write and sys.argv[1:] not in ([], ["--build", args.build]):
        return
    text = f"""# Losses of quantized runs beside the exact one

{describe_machine()}
- Command: `bench/quantized_losses.py {" ".join(sys.argv[1:])}`
- {args.model}, bf16, stage 3, 4 ranks that count as 2 hosts of 2, {args.batch} samples of {args.sequence} tokens a step, {args.steps} steps of AdamW at
  {args.lr}, data `{args.data}`. Means of training losses over the steps named; all forms begin with the same weights and see the same samples.

{table}
"""
    path = ROOT / f"bench/results/quantized-losses-{platform.machine()}-{today()}.md"
    path.write_text(text)
    print(path)


if __name__ == "__main__":
    main()
