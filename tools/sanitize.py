"""Builds and runs tests under one sanitizer after the other: the most valuable first, and within a time where one is given.

    sanitize.py [--seconds N] [address] [thread]

address: unit and ranks tests under AddressSanitizer and UBSan; thread: those with threads of ours under ThreadSanitizer. Both
where none is named. Programs are built and run in two batches a sanitizer, so that a short time reaches what matters most. What
was not reached is printed by name and is no failure; without --seconds everything runs. The process tests stay out: they wait for
real time to pass, and what runs in a rank runs in the ranks tests too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRESETS = {"address": ("asan", ("unit", "ranks")), "thread": ("tsan", ("threads",))}
# Where memory is shared, lent and freed, and threads meet; the rest follows by name.
FIRST = ["ranks", "unit_engine", "unit_shard", "unit_comm", "unit_optim"]
LEAST_SECONDS = 20.0  # with less left, nothing new is begun


@dataclass
class Test:
    name: str
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    limit_seconds: float = 1200.0

    @property
    def program(self) -> str:
        return "ranks" if self.name == "ranks_more" else self.name


class Clock:
    def __init__(self, seconds: float | None):
        self.end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float:
        return float("inf") if self.end is None else self.end - time.monotonic()

    def limit(self) -> float | None:
        return None if self.end is None else max(self.left(), 0.1)


def in_order_of_value(tests: list[Test]) -> list[Test]:
    def place(test: Test) -> tuple[int, str]:
        return (FIRST.index(test.program) if test.program in FIRST else len(FIRST), test.name)

    return sorted(tests, key=place)


def batches(tests: list[Test]) -> list[list[Test]]:
    ordered = in_order_of_value(tests)
    first = [test for test in ordered if test.program in FIRST]
    return [batch for batch in (first, ordered[len(first) :]) if batch]


def run_one(test: Test, clock: Clock, environment: dict[str, str], prefix: list[str]) -> str:
    """"passed", "failed" or "not reached"."""
    if clock.left() < LEAST_SECONDS:
        return "not reached"
    begin = time.monotonic()
    process = subprocess.Popen(
        [*prefix, *test.command], env=environment | test.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        output = process.communicate(timeout=min(test.limit_seconds, clock.limit() or test.limit_seconds))[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output = process.communicate()[0]
        if clock.left() <= 0:
            return "not reached"
        output += f"\nkilled after {test.limit_seconds:.0f} s\n".encode()
    passed = process.returncode == 0
    seconds = time.monotonic() - begin
    said = "" if passed else output.decode(errors="replace")
    print(f"[sanitize] {test.name} {'passed' if passed else 'FAILED'} in {seconds:.0f} s\n{said}", end="", flush=True)
    return "passed" if passed else "failed"


def run_batch(tests: list[Test], clock: Clock, environment: dict[str, str], prefix: list[str], jobs: int) -> dict[str, str]:
    """How each ended, by name. They begin in the order that they have."""
    with ThreadPoolExecutor(jobs) as pool:
        ends = list(pool.map(lambda test: run_one(test, clock, environment, prefix), tests))
    return {test.name: end for test, end in zip(tests, ends)}


def listed(preset: str, labels: tuple[str, ...]) -> list[Test]:
    """The programs of ours among ctest's tests; commands are there once they are built."""
    text = subprocess.run(
        ["ctest", "--preset", preset, "--show-only=json-v1", "-L", "|".join(f"^{label}$" for label in labels)],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    tests = []
    for entry in json.loads(text[text.index("{") :])["tests"]:
        if not (entry["name"].startswith("unit_") or entry["name"] in ("ranks", "ranks_more")):
            continue  # checks of the repository
        test = Test(entry["name"], entry.get("command", []))
        for setting in entry.get("properties", []):
            if setting["name"] == "ENVIRONMENT":
                test.environment = dict(line.split("=", 1) for line in setting["value"])
            if setting["name"] == "TIMEOUT":
                test.limit_seconds = float(setting["value"])
        tests.append(test)
    return tests


def environment_of(preset: str) -> dict[str, str]:
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]
    settings = next(each for each in presets if each["name"] == preset).get("environment", {})
    results = ROOT / "build" / preset / "test-results"
    settings = settings | {"GTEST_OUTPUT": f"xml:{results}/"}
    return os.environ | {name: value.replace("${sourceDir}", str(ROOT)) for name, value in settings.items()}


def build(preset: str, programs: list[str], clock: Clock, jobs: int) -> str:
    """"built", "failed" or "not reached"."""
    if clock.left() < LEAST_SECONDS:
        return "not reached"
    command = ["cmake", "--build", "--preset", preset, "-j", str(jobs), "--target", *programs]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        return "built" if process.wait(clock.limit()) == 0 else "failed"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # ninja leaves no half objects behind
        process.wait()
        return "not reached"


def sanitize(kind: str, clock: Clock, jobs: int) -> dict[str, str]:
    preset, labels = PRESETS[kind]
    prefix = ["setarch", platform.machine(), "--addr-no-randomize"] if preset == "tsan" else []
    if prefix and subprocess.run([*prefix, "true"]).returncode != 0:
        sys.exit("[sanitize] this system does not let a program fix its addresses (setarch -R).")
    results = ROOT / "build" / preset / "test-results"
    results.mkdir(parents=True, exist_ok=True)
    for old in results.glob("*.xml"):
        old.unlink()
    ends: dict[str, str] = {}
    for batch in batches(listed(preset, labels)):
        begin = time.monotonic()
        built = build(preset, list(dict.fromkeys(test.program for test in batch)), clock, jobs)
        print(f"[sanitize] {kind}: {built} in {time.monotonic() - begin:.0f} s: {' '.join(test.name for test in batch)}", flush=True)
        if built != "built":
            ends |= {test.name: built for test in batch}
            continue
        by_name = {test.name: test for test in listed(preset, labels)}
        ends |= run_batch([by_name[test.name] for test in batch], clock, environment_of(preset), prefix, jobs + 1)
    subprocess.run([sys.executable, ROOT / "tools/count_tests.py", results])
    return ends


def summary(kind: str, ends: dict[str, str]) -> str:
    lines = [f"[sanitize] {kind}: {sum(end == 'passed' for end in ends.values())} of {len(ends)} programs passed"]
    for end in ("failed", "not reached"):
        if names := [name for name, how in ends.items() if how == end]:
            lines.append(f"[sanitize] {kind}, {end}: {' '.join(names)}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, help="what is not done by then is not begun, or ended, and printed by name")
    parser.add_argument("kinds", nargs="*", default=list(PRESETS), metavar="kind", help=f"of {' and '.join(PRESETS)}")
    options = parser.parse_args()
    if unknown := [kind for kind in options.kinds if kind not in PRESETS]:
        parser.error(f"{unknown[0]} is no sanitizer of ours. Use {' or '.join(PRESETS)}.")
    clock = Clock(options.seconds)
    jobs = int(os.environ.get("JOBS") or subprocess.run([ROOT / "tools/jobs.sh"], check=True, capture_output=True).stdout)
    texts, failed = [], False
    for kind in options.kinds:
        preset = PRESETS[kind][0]
        if clock.left() < LEAST_SECONDS:
            texts.append(f"[sanitize] {kind}, not reached: all of it")
            continue
        subprocess.run(["make", "--no-print-directory", f"build/{preset}/build.ninja"], cwd=ROOT, check=True)
        ends = sanitize(kind, clock, jobs)
        failed = failed or "failed" in ends.values()
        texts.append(summary(kind, ends))
    print("\n".join(texts), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
