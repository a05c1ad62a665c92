"""Runs every benchmark, one after the other, and leaves the results in bench/results/. Called by `make bench`.

    run.py --build build/release
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from machine import describe_machine, today

ROOT = Path(__file__).resolve().parent.parent
PYTHON = str(ROOT / ".venv/bin/python3")
PEERS_PYTHON = str(ROOT / ".venv-deepspeed/bin/python3")


def run(title, command):
    """Runs one benchmark with its output passed on; true when it ended well."""
    print(f"== {title}", file=sys.stderr, flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def run_and_keep(title, name, command):
    """The same for a program that only prints: its output becomes bench/results/<name>-<arch>-<date>.md."""
    print(f"== {title}", file=sys.stderr, flush=True)
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(result.stdout)
    if result.returncode == 0:
        shown = " ".join(os.path.relpath(word, ROOT) if word.startswith("/") else word for word in command)
        path = ROOT / f"bench/results/{name}-{os.uname().machine}-{today()}.md"
        path.write_text(f"# {title}\n\nCommand: `{shown}`\n\n{describe_machine()}\n\n{result.stdout}")
    return result.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    build = Path(parser.parse_args().build).resolve()
    programs = build / "bench"
    done = [
        run("training step", [PYTHON, "bench/train_compare.py", "--build", str(build)]),
        run("fused AdamW", [PEERS_PYTHON, "bench/adamw_peers.py", "--program", str(programs / "bench_adamw"),
                            "--out", "bench/results"]),
        run_and_keep("Collectives of two ranks", "collectives", [str(programs / "bench_collectives")]),
    ]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
