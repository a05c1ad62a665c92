"""Measures training steps of Shoal and of its peers side by side, in interleaved rounds, and writes a table.

    train_compare.py --build build/release                  everything; writes bench/results/train-<arch>-<date>.md
    train_compare.py --engines ddp,shoal-3 --rounds 2       a part; prints the table only

Each engine is a pool of processes that stays alive and blocks on a pipe while others run (the protocol is in
bench/README.md). A round runs a few steps of each engine in turn; the table shows medians over rounds.
The engines run in heats, since all at once would not fit into memory; DDP is in each heat, as the yardstick.
"""

import argparse
import contextlib
import os
import select
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import describe_machine, today

ROOT = Path(__file__).resolve().parent.parent
PEERS = ["ddp", "fsdp2", "fsdp2-noreshard", "deepspeed-1", "deepspeed-2", "deepspeed-3"]
SHOAL = [f"shoal-{stage}" for stage in range(4)]
SHOAL_GLOO = [f"shoal-{stage}-gloo" for stage in range(4)]
# Two worlds of one rank side by side: the floor, what the step costs when nobody talks. Its update is that of stage 0.
FLOOR = "shoal-alone"
HEATS = [PEERS + SHOAL + [FLOOR], ["ddp"] + SHOAL_GLOO]
YARDSTICK = "ddp"
READY_TIMEOUT = 900  # seconds; DeepSpeed compiles its optimizer on first use
RUN_TIMEOUT = 600


class Unable(Exception):
    """An engine that cannot run here, with the reason."""


def command_of(engine, args):
    if engine.startswith("shoal-"):
        stage = "0" if engine == FLOOR else engine.split("-")[1]
        transport = "none" if engine == FLOOR else "gloo" if engine.endswith("-gloo") else "shm"
        command = [str(Path(args.build) / "bench/bench_train"), "--stage", stage, "--transport", transport]
    else:
        venv = ".venv-deepspeed" if engine.startswith("deepspeed") else ".venv"
        command = [str(ROOT / venv / "bin/python3"), str(ROOT / "bench/peers/train.py"), "--engine", engine]
    return command + (["--layers", str(args.layers)] if args.layers else [])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Pool:
    """The ranks of one engine, alive until close()."""

    def __init__(self, engine, args):
        self.engine = engine
        self.log = tempfile.TemporaryFile("w+")
        command = args.command_of(engine, args)
        if not Path(command[0]).exists():
            raise Unable(f"{os.path.relpath(command[0], ROOT)} does not exist")
        environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), OMP_NUM_THREADS="1",
                           WORLD_SIZE=str(args.ranks), LOCAL_WORLD_SIZE=str(args.ranks))
        # DeepSpeed's compiled parts need the ninja of its own environment.
        environment["PATH"] = os.path.dirname(command[0]) + os.pathsep + environment["PATH"]
        self.ranks = [self.start(command, dict(environment, RANK=str(rank), LOCAL_RANK=str(rank)), args) for rank in range(args.ranks)]
        self.own_cpu = 0.0  # seconds of processor time inside run()
        for answer in self.read_all(READY_TIMEOUT):
            if answer != "ready":
                self.close()
                raise Unable(answer.removeprefix("unable "))

    def start(self, command, environment, args):
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, bufsize=1,
                                env=environment)

    def pid_of(self, process):
        """Of the rank itself, where what was started is something before it."""
        return process.pid

    def read_all(self, timeout):
        """One line of each rank."""
        deadline = time.monotonic() + timeout
        answers = []
        for rank, process in enumerate(self.ranks):
            readable, _, _ = select.select([process.stdout], [], [], max(0, deadline - time.monotonic()))
            line = process.stdout.readline().strip() if readable else ""
            if not line:
                self.close()
                self.log.seek(0)
                tail = " / ".join(self.log.read().strip().splitlines()[-3:])
                what = "ended" if readable else f"said nothing for {timeout} s"
                raise Unable(f"rank {rank} {what}: {tail[-400:]}")
            answers.append(line)
        return answers

    def run(self, steps):
        """Trains; the seconds a step took on the slowest rank, and the loss of rank 0."""
        before = self.cpu_seconds()
        for process in self.ranks:
            process.stdin.write(f"run {steps}\n")
            process.stdin.flush()
        answers = [answer.split() for answer in self.read_all(RUN_TIMEOUT)]
        self.own_cpu += self.cpu_seconds() - before
        for answer in answers:
            if len(answer) != 3 or answer[0] != str(steps):
                raise Unable(f"answered '{' '.join(answer)}' to 'run {steps}'")
        return max(float(answer[1]) for answer in answers) / steps, float(answers[0][2])

    def cpu_seconds(self):
        ticks = 0
        for process in self.ranks:
            with contextlib.suppress(FileNotFoundError):
                fields = Path(f"/proc/{self.pid_of(process)}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def resident_gib(self):
        pages = 0
        for process in self.ranks:
            with contextlib.suppress(FileNotFoundError):
                pages += int(Path(f"/proc/{self.pid_of(process)}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**30

    def close(self):
        for process in self.ranks:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self.ranks:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def say(text):
    print(text, file=sys.stderr, flush=True)


def run_heat(engines, args):
    """Rounds of each engine in turn: {engine: {"seconds": [...], "loss": x}} and {engine: reason it could not run}."""
    pools, results, unable = {}, {}, {}
    try:
        for engine in engines:
            try:
                pools[engine] = getattr(args, "pool", Pool)(engine, args)
                pools[engine].run(args.warmup)
                results[engine] = {"seconds": [], "loss": None}
                say(f"  {engine}: ready, {pools[engine].resident_gib():.1f} GiB resident")
            except Unable as error:
                pools.pop(engine, None)
                unable[engine] = str(error)
                say(f"  {engine}: cannot run: {error}")
        begin = time.monotonic()
        warm_cpu = {engine: pool.own_cpu for engine, pool in pools.items()}
        idle_before = {engine: pool.cpu_seconds() - pool.own_cpu for engine, pool in pools.items()}
        for number in range(args.rounds):
            # Another engine begins each round, so that none always follows the same one.
            order = list(pools)
            order = order[number % len(order):] + order[:number % len(order)]
            for engine in order:
                try:
                    seconds, loss = pools[engine].run(args.steps)
                except Unable as error:
                    pools.pop(engine).close()
                    results.pop(engine)
                    unable[engine] = f"failed in round {number + 1}: {error}"
                    say(f"  {engine}: {unable[engine]}")
                    continue
                results[engine]["seconds"].append(seconds)
                results[engine]["loss"] = loss
            say(f"  round {number + 1}: " + ", ".join(f"{e} {results[e]['seconds'][-1] * 1e3:.0f}" for e in pools))
        for engine, pool in pools.items():
            results[engine]["cpu"] = (pool.own_cpu - warm_cpu[engine]) / (args.rounds * args.steps)
            idle = (pool.cpu_seconds() - pool.own_cpu - idle_before[engine]) / max(1e-9, time.monotonic() - begin)
            if idle > 0.02:
                say(f"  WARNING: {engine} used {idle:.0%} of a core while it should have been idle; the others suffered.")
    finally:
        for pool in pools.values():
            pool.close()
    return results, unable


def table_of(engines, results, unable):
    reference = results.get(YARDSTICK)
    lines = ["| engine | median step, ms | ratio to DDP | min | max | processor time, all ranks, ms | rounds | loss at the end |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for engine in engines:
        if engine in unable:
            lines.append(f"| {engine} | cannot run here: {unable[engine]} | | | | | | |")
            continue
        seconds = results[engine]["seconds"]
        median = statistics.median(seconds)
        ratio = f"{median / statistics.median(reference['seconds']):.3f}" if reference else ""
        lines.append(f"| {engine} | {median * 1e3:.1f} | {ratio} | {min(seconds) * 1e3:.1f} | {max(seconds) * 1e3:.1f} "
                     f"| {results[engine]['cpu'] * 1e3:.0f} | {len(seconds)} | {results[engine]['loss']:.4f} |")
    return "\n".join(lines)


def check_losses(results):
    """Each engine trained the same function from the same start, so the losses agree but for rounding."""
    reference = results.get(YARDSTICK)
    if not reference:
        return []
    return [f"{engine} ended at loss {result['loss']:.4f}, DDP at {reference['loss']:.4f}: not the same training."
            for engine, result in results.items() if engine != FLOOR and abs(result["loss"] - reference["loss"]) > 0.02]


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    parser.add_argument("--engines", help="comma-separated, one heat; default: all, in two heats, with a result file")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3, help="steps of one engine in one round")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, help="another number of layers, for quick trials")
    parser.set_defaults(command_of=command_of)
    return parser.parse_args()


def main():
    args = parse_args()
    heats = [args.engines.split(",")] if args.engines else HEATS
    parts, warnings = [], []
    for number, engines in enumerate(heats, 1):
        say(f"heat {number} of {len(heats)}: {', '.join(engines)}")
        results, unable = run_heat(engines, args)
        parts.append(table_of(engines, results, unable))
        warnings += check_losses(results)
    text = "\n\n".join(parts + warnings)
    print(text)
    if not args.engines:
        path = ROOT / f"bench/results/train-{os.uname().machine}-{today()}.md"
        head = (f"# Training step, {args.ranks} ranks on one host\n\n"
                "Llama: hidden 512, 8 layers, 8 heads, ffn 1376, vocabulary 8192; 2 x 256 tokens a rank; fp32; AdamW; "
                "clip 1.0; 1 thread a rank.\n"
                f"{args.steps} steps of each engine in turn, {args.rounds} rounds; a rank's slowest time counts. "
                "`-gloo`: Gloo forced, others of Shoal: shared memory. `shoal-alone`: two worlds of one rank, the floor. "
                "One table a heat.\n\n"
                f"Command: `{shlex.join([os.path.relpath(sys.argv[0], ROOT)] + sys.argv[1:])}`\n\n{describe_machine()}\n")
        path.write_text(f"{head}\n{text}\n")
        say(f"written: {path.relative_to(ROOT)}")
    return 1 if warnings else 0


if __name__ == "__main__":
    sys.exit(main())
