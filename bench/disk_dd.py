"""GB/s of DiskFile against dd with O_DIRECT on one folder: interleaved rounds, medians. Nothing else should use the disk.

    disk_dd.py --program build/release/bench/bench_disk --folder /nvme [--mib 4096] [--rounds 5]

Both overwrite files that were written once before, as a run does from its second step on.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

DD_BLOCKS = ("1M", "16M")
VARIANTS = {
    "shoal, io_uring": ["--io", "uring"],
    "shoal, io_uring, registered": ["--io", "uring", "--register"],
    "shoal, threads": ["--io", "threads"],
    "shoal, io_uring, checksums": ["--io", "uring", "--checksum"],
}


class Shoal:
    """One bench_disk, which keeps its file and waits between passes."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.description = self.process.stdout.readline().strip()
        if not self.description:
            raise SystemExit(f"{command[0]} did not start.")

    def seconds(self, way):
        self.process.stdin.write(way + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.description}: the pass '{way}' failed.")
        return float(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Dd:
    """dd on a file of its own. Its own start-up is counted, some milliseconds."""

    def __init__(self, path, mib, block):
        self.path, self.mib, self.block = path, mib, block
        self.description = f"dd bs={block}, O_DIRECT"

    def seconds(self, way):
        count = self.mib // int(self.block[:-1])
        ends = {"write": [f"of={self.path}", "if=/dev/zero", "oflag=direct", "conv=notrunc"],
                "read": [f"if={self.path}", "of=/dev/null", "iflag=direct"]}[way]
        begun = time.perf_counter()
        subprocess.run(["dd", f"bs={self.block}", f"count={count}", *ends], check=True, stderr=subprocess.DEVNULL)
        return time.perf_counter() - begun

    def close(self):
        pass


def measure(runners, ways, rounds, gigabytes):
    """{name: {way: [GB/s, ...]}}; the first round is not counted."""
    speeds = {name: {way: [] for way in ways} for name in runners}
    for round_ in range(rounds + 1):
        for way in ways:
            for name, runner in runners.items():
                if way == "both" and isinstance(runner, Dd):
                    continue
                seconds = runner.seconds(way)
                if round_ > 0:
                    speeds[name][way].append(gigabytes / seconds)
    return speeds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--mib", type=int, default=4096, help="size of each file, a multiple of 16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="variants whose name contains this")
    arguments, more = parser.parse_known_args()  # the rest goes to the program: --block-kib, --depth, --threads
    path = Path(arguments.folder) / f"dd-{os.getpid()}.bin"
    runners = {f"dd bs={block}": Dd(path, arguments.mib, block) for block in DD_BLOCKS}
    try:
        for name, options in VARIANTS.items():
            if not arguments.only or arguments.only in name:
                runners[name] = Shoal([arguments.program, "--folder", arguments.folder, "--mib", str(arguments.mib),
                                       *options, *more])
        speeds = measure(runners, ("write", "read", "both"), arguments.rounds, arguments.mib * 2**20 / 1e9)
    finally:
        for runner in runners.values():
            runner.close()
        path.unlink(missing_ok=True)

    print(f"{arguments.mib} MiB a pass, median of {arguments.rounds} interleaved rounds (least to most), GB/s; "
          "'both' is half read, half written at once\n")
    print("| | write | read | both | write / dd | read / dd |\n|---|---|---|---|---|---|")
    best = {way: max(statistics.median(speeds[name][way]) for name in runners if isinstance(runners[name], Dd))
            for way in ("write", "read")}
    for name in runners:
        cells = [f"{statistics.median(v):.2f} ({min(v):.2f} to {max(v):.2f})" if v else "" for v in speeds[name].values()]
        shares = [f"{statistics.median(speeds[name][way]) / best[way]:.0%}" for way in best]
        print(f"| {name} | {' | '.join(cells + shares)} |")
    print()
    for name, runner in runners.items():
        print(f"- {name}: {runner.description}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
