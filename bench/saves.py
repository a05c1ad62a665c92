"""What saves cost a run of `shoal train` on CPU ranks: no save, a save every K steps behind training, and one that is waited for
(--save-and-wait), in turns, medians over rounds. Prints a table; run by hand.

    saves.py --shoal build/release/apps/cli/shoal --folder /disk/bench [--model llama-33m] [--ranks 2] [--steps 8] [--every 1] [--rounds 3]

A round is a run from the beginning. The time of a step is what the run's clock says from the end of the first step to the end of
the last, the end of the last save included, divided by the steps between: so nothing that saves cost is left out. The processor's
time is that of all the run's processes, divided by its steps: what a busy machine distorts least. How long a save blocks is `ms` of
its event in events.jsonl. dd writes as many bytes as a save, with O_DIRECT, once a round.
"""

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import machine

MODES = {"none": [], "behind": ["--save-every"], "waited for": ["--save-and-wait", "--save-every"]}


def train(arguments, folder, mode):
    shutil.rmtree(folder, ignore_errors=True)
    command = [arguments.shoal, "train", "--model", arguments.model, "--data", "synthetic:tokens=200000", "--ranks", str(arguments.ranks),
               "--sequence", str(arguments.sequence), "--steps", str(arguments.steps), "--out", str(folder), "--no-report",
               "--no-final-save", "--log-every", "1", *arguments.more]
    if MODES[mode]:
        command += [*MODES[mode], str(arguments.every), "--keep-last", "2"]
    before = cpu_seconds()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return (cpu_seconds() - before) / arguments.steps


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def numbers_of(folder):
    """(seconds a step with its share of the saves, milliseconds that each save blocked)"""
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    end = next(event["time"] for event in events if event["event"] == "end")
    start = next(event["time"] for event in events if event["event"] == "start")
    # The first step, which starts everything, and all that comes before it are taken away.
    first = sum(steps[0][key] for key in ("step_ms", "save_ms")) / 1e3
    blocked = [event["ms"] for event in events if event["event"] == "save"]
    return (end - start - first) / (len(steps) - 1), blocked


def dd_seconds(path, nbytes):
    done = subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=4M", f"count={max(1, nbytes >> 22)}", "oflag=direct", "conv=fsync"],
                          capture_output=True, text=True, check=True, env=os.environ | {"LC_ALL": "C"})
    return float(re.search(r"([\d.]+) s,", done.stderr)[1])


def spread(values, form="{:.0f}"):
    return f"{form.format(statistics.median(values))} ({form.format(min(values))} to {form.format(max(values))})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shoal", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--model", default="llama-33m")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    arguments, arguments.more = parser.parse_known_args()  # the rest goes to the command
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    seconds = {mode: [] for mode in MODES}
    blocked = {mode: [] for mode in MODES}
    cpu = {mode: [] for mode in MODES}
    loads, dd = [], []
    saved_nbytes = 0
    for round_ in range(arguments.rounds):
        for mode in sorted(MODES, key=lambda mode: (list(MODES).index(mode) + round_) % len(MODES)):
            cpu[mode].append(train(arguments, folder / "run", mode))
            step, saves = numbers_of(folder / "run")
            seconds[mode].append(step)
            blocked[mode] += saves
            loads.append(os.getloadavg()[0])
            checkpoints = sorted((folder / "run" / "checkpoints").glob("step-*")) if MODES[mode] else []
            if checkpoints:
                saved_nbytes = sum(file.stat().st_size for file in checkpoints[-1].iterdir())
        dd.append(saved_nbytes / dd_seconds(folder / "dd.bin", saved_nbytes) / 1e9)
    shutil.rmtree(folder / "run", ignore_errors=True)
    (folder / "dd.bin").unlink(missing_ok=True)
    print(f"Command: `bench/saves.py {' '.join(sys.argv[1:])}`\n\n{machine.describe_machine()}")
    print(f"- Load (1 minute) at the end of runs: {spread(loads, '{:.1f}')}\n- A save: {saved_nbytes / 1e6:.0f} MB, by all ranks; "
          f"dd with O_DIRECT: {spread(dd, '{:.2f}')} GB/s\n")
    print("| a save every " + (f"{arguments.every} steps" if arguments.every > 1 else "step") +
          " | a step, ms | of a run without | processor, s a step | a save blocks, ms |\n|---|---|---|---|---|")
    base = statistics.median(seconds["none"])
    for mode in MODES:
        share = [step / base for step in seconds[mode]]
        print(f"| {mode} | {spread([1e3 * step for step in seconds[mode]])} | {spread(share, '{:.2f}')} | "
              f"{spread(cpu[mode], '{:.2f}')} | "
              f"{spread(blocked[mode]) if blocked[mode] else ''} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
