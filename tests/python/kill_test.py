"""Kills and stops processes of `shoal train --restarts` at random moments, until its runs have had enough of them, and
compares what came of each run with one that was left alone: each step once, the same characters in its numbers, the same
digests of weights and moments, a last checkpoint that is whole, no process left.

    kill_test.py                  some kills, as `make test` has them
    SHOAL_KILLS=200 kill_test.py  as `make kill-test`; prints how long it took from each failure to the next step

What is asserted does not depend on when a kill comes. SHOAL_KILL_SEED draws other moments; SHOAL_KILL_MINUTES: no further run
begins after them.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from ranks import main

RANKS = 4
KILLS = int(os.environ.get("SHOAL_KILLS", "3"))
STEPS = 400 if KILLS > 10 else 100
SAVE_EVERY = STEPS // 20
TIMEOUT_SECONDS = 5  # until ranks give up one that hangs
# When a failure comes: in this share of the starts while ranks load and join, else after up to so many steps of theirs, in
# the midst of one, or of a save.
EARLY, MOST_STEPS = 0.25, STEPS // 8
LIMIT_SECONDS = 300  # for what must happen; reached only when the test fails
COMPARED = ("step", "loss", "grad_norm", "lr", "loss_scale", "skipped", "tokens", "digest")
# What is done to whom, and how often of 10.
KINDS = {"kill a rank": 5, "stop a rank": 2, "kill all ranks": 1, "kill the launcher": 1, "kill the guard": 1}

CONFIG = {"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4,
          "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}  # fmt: skip


STEP = re.compile(r"step \d+/\d+ \| loss")
AGAIN = "The ranks are started again"


class Run:
    """One `shoal train`, and when it said what."""

    def __init__(self, folder: Path, out: str, restarts: int) -> None:
        self.out = folder / out
        command = [os.environ["SHOAL_COMMAND"], "train", "--model", str(folder / "model"), "--data", "synthetic:tokens=40000",
                   "--sequence", "32", "--steps", str(STEPS), "--threads", "1", "--log-every", "1", "--lr", "0.01",
                   "--set", "train_batch_size=8", "--set", "train_micro_batch_size_per_gpu=1",
                   "--set", f"shoal.timeout_seconds={TIMEOUT_SECONDS if restarts else 600}",
                   "--ranks", str(RANKS), "--save-every", str(SAVE_EVERY), "--keep-last", "3", "--digest-every", "10", "--resume", "auto",
                   "--no-report", "--out", str(self.out)]  # fmt: skip
        self.command = command + (["--restarts", str(restarts)] if restarts else [])
        self.lines: list[tuple[float, str]] = []
        self.steps = 0  # since the ranks were started last
        self.start()

    def start(self) -> None:
        self.lines.append((time.monotonic(), "started"))
        self.steps = 0
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        self.reader = threading.Thread(target=self.read, args=[self.process.stdout], daemon=True)
        self.reader.start()

    def read(self, output) -> None:
        for line in output:
            self.lines.append((time.monotonic(), line.rstrip("\n")))
            if STEP.search(line):
                self.steps += 1
            elif AGAIN in line:
                self.steps = 0

    def ended(self) -> bool:
        return self.process.poll() is not None

    def first(self, pattern: str, after: float) -> float | None:
        """When a line with it came, first after that time."""
        return next((when for when, line in list(self.lines) if when > after and re.search(pattern, line)), None)

    def first_step(self, after: float) -> float | None:
        return self.first(STEP.pattern, after)

    def members(self) -> dict[int | None, list[int]]:
        """Its processes by rank; None: those without one."""
        found: dict[int | None, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if str(self.out).encode() not in (entry / "cmdline").read_bytes():
                    continue
                if (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX":
                    continue
                rank = re.search(rb"(?:^|\0)RANK=(\d+)\0", (entry / "environ").read_bytes())
            except OSError:
                continue  # it has just ended
            found.setdefault(int(rank[1]) if rank else None, []).append(int(entry.name))
        return found


def send(process: int, number: int) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass


def await_that(condition, what: str) -> None:
    until = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.01)


def disturb(run: Run, kind: str, rng: random.Random) -> bool:
    """False when there is nobody to do it to."""
    members = run.members()
    ranks = sorted(rank for rank in members if rank is not None)
    if kind == "kill the launcher":
        send(run.process.pid, signal.SIGKILL)
    elif kind == "kill the guard":
        guards = [each for each in members.get(None, []) if each != run.process.pid]
        if not guards:
            return False
        send(guards[0], signal.SIGKILL)
    elif not ranks:
        return False
    elif kind == "kill all ranks":
        for rank in ranks:
            for process in members[rank]:
                send(process, signal.SIGKILL)
    else:
        for process in members[rng.choice(ranks)]:
            send(process, signal.SIGKILL if kind == "kill a rank" else signal.SIGSTOP)
    return True


class Failure:
    def __init__(self, kind: str, at: float) -> None:
        self.kind, self.at = kind, at
        self.again: float | None = None  # when ranks were started again
        self.step: float | None = None  # when the next step was taken, if no other failure came before


def await_moment(run: Run, start_seconds: float, rng: random.Random, may_be_early: bool) -> None:
    """The one for the next failure, or the run's end."""
    if may_be_early and rng.random() < EARLY:
        until = time.monotonic() + rng.uniform(0, start_seconds)
    else:
        steps = rng.randint(1, MOST_STEPS)
        while not run.ended() and run.steps < steps:
            time.sleep(0.002)
        until = time.monotonic() + rng.uniform(0, 0.1)
    while not run.ended() and time.monotonic() < until:
        time.sleep(0.002)


def survive(folder: Path, name: str, kills: int, start_seconds: float, rng: random.Random) -> list[Failure]:
    """One run to its end, with at most so many failures in it."""
    run = Run(folder, name, restarts=1_000_000)
    failures: list[Failure] = []
    while len(failures) < kills:
        # A stop is a failure with exit code 1, and three of those at one step end a run.
        await_moment(run, start_seconds, rng, not failures or failures[-1].kind != "stop a rank")
        if failures and failures[-1].again is not None:
            failures[-1].step = run.first_step(failures[-1].again)
        if run.ended():
            break
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        at = time.monotonic()
        if not disturb(run, kind, rng):
            continue
        failures.append(Failure(kind, at))
        if kind == "kill the guard":
            pass  # the run goes on without it
        elif kind == "kill the launcher":
            run.process.wait()
            await_that(lambda: not run.members(), f"ranks outlive their launcher: {run.members()}")
            run.reader.join()
            failures[-1].again = time.monotonic()
            run.start()
        else:
            await_that(lambda: run.first(AGAIN, at) is not None or run.ended(), f"nothing came of it: {kind}\n{tail(run)}")
            failures[-1].again = run.first(AGAIN, at)
            if failures[-1].again is None:  # it came when the last step was taken
                break
    code = run.process.wait(timeout=LIMIT_SECONDS * 2)
    run.reader.join()
    if failures and failures[-1].again is not None:
        failures[-1].step = run.first_step(failures[-1].again)
    assert code == 0, f"exit code {code} after {[each.kind for each in failures]}\n{tail(run)}"
    await_that(lambda: not run.members(), f"processes are left: {run.members()}")
    return failures


def tail(run: Run) -> str:
    return "\n".join(line for _, line in run.lines[-40:])


def numbers(out: Path) -> list[tuple[str, ...]]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [tuple(json.dumps(json.loads(line).get(key)) for key in COMPARED) for line in lines]


def expect_same(run: Path, whole: Path) -> None:
    mine, wanted = numbers(run), numbers(whole)
    assert [each[0] for each in mine] == [str(step) for step in range(1, STEPS + 1)], "steps are missing, or stand twice"
    for one, other in zip(mine, wanted):
        assert one == other, f"not the bits of the run that was left alone: {one} {other}"
    assert (run / "digests.jsonl").read_bytes() == (whole / "digests.jsonl").read_bytes()
    last = run / "checkpoints" / f"step-{STEPS:08}"
    verified = subprocess.run([os.environ["SHOAL_COMMAND"], "checkpoint", "verify", str(last)], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def line_of(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]  # noqa: E731
    return f"{min(ordered):6.2f} {at(0.1):6.2f} {statistics.median(ordered):6.2f} {at(0.9):6.2f} {max(ordered):6.2f}"


def report(failures: list[Failure], runs: int, start_seconds: float) -> None:
    print(f"\n{len(failures)} failures in {runs} runs of {STEPS} steps on {RANKS} ranks, {os.cpu_count()} cores with a load of {os.getloadavg()[2]:.0f} processes; every run ended with the bits "
          f"of the one that was left alone. An undisturbed start took {start_seconds:.2f} s to its first step.")  # fmt: skip
    print("\nseconds from the failure to                                 n    min    10%    50%    90%    max")
    for kind in KINDS:
        own = [each for each in failures if each.kind == kind and each.again is not None]
        if kind == "kill the guard":
            print(f"{kind:<30} the run goes on       {sum(each.kind == kind for each in failures):4}")
        if not own:
            continue
        print(f"{kind:<30} ranks started again   {len(own):4} {line_of([each.again - each.at for each in own])}")
        stepped = [each for each in own if each.step is not None]
        if stepped:
            print(f"{'':<30} the next step         {len(stepped):4} {line_of([each.step - each.at for each in stepped])}")
    every = [each for each in failures if each.step is not None]
    if every:
        print(f"{'all':<30} the next step         {len(every):4} {line_of([each.step - each.at for each in every])}")
        print(f"{'':<30} without the start-up  {len(every):4} {line_of([each.again - each.at for each in every])}", flush=True)


def test_no_kill_shows_in_a_run():
    rng = random.Random(int(os.environ.get("SHOAL_KILL_SEED", "1")))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(json.dumps(CONFIG))
        whole = Run(folder, "whole", restarts=0)
        assert whole.process.wait(timeout=LIMIT_SECONDS * 4) == 0, tail(whole)
        whole.reader.join()
        start_seconds = whole.first_step(0) - whole.lines[0][0]
        failures: list[Failure] = []
        runs = 0
        until = time.monotonic() + 60 * float(os.environ.get("SHOAL_KILL_MINUTES", "inf"))
        while len(failures) < KILLS and time.monotonic() < until:
            runs += 1
            failures += survive(folder, f"run-{runs}", KILLS - len(failures), start_seconds, rng)
            expect_same(folder / f"run-{runs}", folder / "whole")
            if KILLS > 10:
                print(f"run {runs}: {len(failures)} of {KILLS} failures", flush=True)
        report(failures, runs, start_seconds)


if __name__ == "__main__":
    main(globals())
