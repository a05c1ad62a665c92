"""Packed against padded conversations: tokens a second, the empty places of rows not counted.

    bench/packing.py SHOAL [--sequence 512] [--mean 100] [--batch 4] [--rounds 5] [--steps 5]

Conversations of random lengths (geometric, so that most are short), all of whose tokens are learned. The two runs of a round follow
each other, and rounds alternate which is first; the figure is the median over rounds of the median step but the first.
"""

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))
from token_file import TokenFile


def write_conversations(path, mean, longest, count):
    numbers = random.Random(1)
    file = TokenFile(str(path), 256, masked=True)
    for _ in range(count):
        length = min(longest, 2 + int(numbers.expovariate(1 / (mean - 2))))
        file.append([numbers.randrange(256) for _ in range(length)], b"\1" * length)
        file.end_document()
    file.finish()


def run(options, folder, flag, number):
    out = folder / f"run-{number}{flag}"
    words = [options.shoal, "train", "--model", options.model, "--data", folder / "chat.bin", "--sequence", options.sequence, "--steps", options.steps,
             "--threads", options.threads, "--set", f"train_batch_size={options.batch}", "--validation", 0, "--no-final-save", "--no-report", "--out", out, flag]
    said = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout
    full = float(re.search(r"([\d.]+) % full", said)[1]) / 100
    times = [json.loads(line)["step_ms"] for line in (out / "metrics.jsonl").read_text().splitlines()][1:]
    return full, options.batch * options.sequence * full / statistics.median(times) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shoal")
    for name, default in (("sequence", 512), ("mean", 100), ("batch", 4), ("rounds", 5), ("steps", 5), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model", default="llama-tiny")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_conversations(folder / "chat.bin", options.mean, options.sequence, 4000)
        speeds = {"--pack": [], "--no-pack": []}
        fulls = {}
        for number in range(options.rounds):
            for flag in sorted(speeds, reverse=number % 2 == 1):
                fulls[flag], speed = run(options, folder, flag, number)
                speeds[flag].append(speed)
        for flag, of in speeds.items():
            print(f"{flag:10} {100 * fulls[flag]:5.1f} % full  {statistics.median(of):8.0f} tokens/s  (rounds: {', '.join(f'{speed:.0f}' for speed in of)})")
        gain = statistics.median(a / b for a, b in zip(speeds["--pack"], speeds["--no-pack"]))
        print(f"packed / padded: {gain:.2f}; by the places alone: {fulls['--pack'] / fulls['--no-pack']:.2f}")


if __name__ == "__main__":
    main()
