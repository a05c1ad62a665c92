"""Measures training steps, and collectives alone, between hosts that are namespaces of this machine, with links of a given rate:
Shoal, FSDP2 and DeepSpeed side by side, in interleaved rounds.

    hosts.py --build build/release                              everything; writes bench/results/hosts-<arch>-<date>.md
    hosts.py --engines shoal-3,fsdp2 --rounds 2 --layers 2      a part; prints the table only
    hosts.py --collectives 8,32                                 all-gather and reduce-scatter of so many MiB, and torch's

Needs root. Bytes are those that the interfaces of the hosts have counted (/sys/class/net/*/statistics), headers of Ethernet, IP and
TCP with them. A delay needs netem in the kernel; where it is not there, the links have the rate alone and the result says so.
"""

import argparse
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

from machine import describe_machine, today
from train_compare import Pool, Unable, free_port, run_heat, say

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))
from hosts_lab import Absent, Lab

ZERO = "zero_optimization."
# Shoal's ways over hosts; what a build does not know it refuses, and the table says so. {local}: the ranks of a host.
SHOAL = {
    "shoal-3": [],
    "shoal-hpz": [ZERO + "zero_hpz_partition_size={local}"],
    "shoal-mics": [ZERO + "mics_shard_size={local}"],
    "shoal-qwz": [ZERO + "zero_quantized_weights=true"],
    "shoal-qgz": [ZERO + "zero_quantized_gradients=true"],
    "shoal-zeropp": [ZERO + "zero_hpz_partition_size={local}", ZERO + "zero_quantized_weights=true",
                     ZERO + "zero_quantized_gradients=true"],
}
PEERS = ["fsdp2", "hsdp", "deepspeed-3", "deepspeed-hpz", "deepspeed-mics", "deepspeed-zeropp"]
YARDSTICK = "shoal-3"
BANDWIDTH_NBYTES = 1e6 / 8  # a second, of a link of one Mb/s


def command_of(engine, args):
    layers = ["--layers", str(args.layers)] if args.layers else []
    if engine in SHOAL:
        settings = [word for each in SHOAL[engine] for word in ("--set", each.format(local=args.local))]
        return [str(Path(args.build) / "bench/bench_train"), "--stage", "3", "--transport", "auto", *layers, *settings]
    venv = ".venv-deepspeed" if engine.startswith("deepspeed") else ".venv"
    return [str(ROOT / venv / "bin/python3"), str(ROOT / "bench/peers/train.py"), "--engine", engine, *layers]


def child_of(pid):
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


class HostPool(Pool):
    """The ranks of one engine on the hosts of the lab, as many on each; counts what crosses between them."""

    def __init__(self, engine, args):
        self.args, self.sent, self.steps = args, [0] * args.hosts, 0
        super().__init__(engine, args)

    def start(self, command, environment, args):
        rank = int(environment["RANK"])
        host = rank // args.local
        own = dict(environment, LOCAL_RANK=str(rank % args.local), LOCAL_WORLD_SIZE=str(args.local), MASTER_ADDR=args.lab.address(0),
                   GLOO_SOCKET_IFNAME="eth0")
        return super().start([*args.lab.prefix(host, str(ROOT)), *command], own, args)

    def pid_of(self, process):
        return child_of(process.pid)

    def run(self, steps):
        before = [self.args.lab.sent_nbytes(host) for host in range(self.args.hosts)]
        answer = super().run(steps)
        for host in range(self.args.hosts):
            self.sent[host] += self.args.lab.sent_nbytes(host) - before[host]
        self.steps += steps
        self.args.sent[self.engine] = [nbytes / self.steps for nbytes in self.sent]
        return answer


def table_of(engines, results, unable, args):
    reference = statistics.median(results[YARDSTICK]["seconds"]) if YARDSTICK in results else None
    lines = ["| engine | median step, ms | min | max | against shoal-3 | sent a step by each host, MiB | of shoal-3 | share of the link | "
             "processor time, all ranks, ms | rounds | loss at the end |", "|---|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|"]
    for engine in engines:
        if engine not in results:
            lines.append(f"| {engine} | cannot run here: {unable.get(engine, 'not tried')} |" + " |" * 9)
            continue
        seconds, sent = results[engine]["seconds"], args.sent[engine]
        median, most = statistics.median(seconds), max(sent)
        ratio = f"{reference / median:.2f} x as fast" if reference else ""
        part = f"{sum(sent) / sum(args.sent[YARDSTICK]):.3f}" if reference else ""
        share = f"{most / median / (args.mbit * BANDWIDTH_NBYTES):.0%}"
        lines.append(f"| {engine} | {median * 1e3:.0f} | {min(seconds) * 1e3:.0f} | {max(seconds) * 1e3:.0f} | {ratio} "
                     f"| {', '.join(f'{nbytes / 2**20:.1f}' for nbytes in sent)} | {part} | {share} "
                     f"| {results[engine]['cpu'] * 1e3:.0f} | {len(seconds)} | {results[engine]['loss']:.4f} |")
    return "\n".join(lines)


def start_collectives(program, args, megabytes):
    """One rank of each place; the lines of rank 0, and the bytes that each host sent."""
    environment = dict(os.environ, WORLD_SIZE=str(args.hosts * args.local), LOCAL_WORLD_SIZE=str(args.local), OMP_NUM_THREADS="1",
                       MASTER_ADDR=args.lab.address(0), MASTER_PORT=str(free_port()), GLOO_SOCKET_IFNAME="eth0", PYTHONWARNINGS="ignore")
    ranks = []
    for rank in range(args.hosts * args.local):
        own = dict(environment, RANK=str(rank), LOCAL_RANK=str(rank % args.local))
        command = [*args.lab.prefix(rank // args.local, str(ROOT)), *program, *map(str, megabytes)]
        ranks.append(subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True))
    texts = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"{program[-1]} ended with {[rank.returncode for rank in ranks]}")
    return texts[0]


def measure_collectives(args):
    """Rounds of Shoal's and torch's in turns. Share: of what the least possible bytes would take at the link's rate."""
    sizes = [int(text) for text in args.collectives.split(",")]
    programs = {"shoal": [str(Path(args.build) / "bench/bench_collectives")],
                "torch": [str(ROOT / ".venv/bin/python3"), str(ROOT / "bench/peers/collectives.py")]}
    found = {}
    for _ in range(args.rounds):
        for name, program in programs.items():
            for line in start_collectives(program, args, sizes).splitlines():
                words = line.split()
                if "MiB" not in words:
                    continue
                size = int(words[words.index("MiB") - 1])
                for verb in ("reduce_scatter", "all_gather"):
                    found.setdefault((verb, size, name), []).append(float(words[words.index(verb) + 1]) / 1e3)
    lines = ["| collective | whole, MiB | engine | median of the fastest, ms | share of the link |", "|---|---:|---|---:|---:|"]
    for (verb, size, name), seconds in sorted(found.items()):
        median = statistics.median(seconds)
        # What a host must send: a gather its own part to each other host; a sum of leaves those of all its ranks.
        nbytes = size * 2**20 * (args.hosts - 1) / args.hosts * (1 if verb == "all_gather" else args.local)
        lines.append(f"| {verb} | {size} | {name} | {median * 1e3:.1f} | {nbytes / median / (args.mbit * BANDWIDTH_NBYTES):.0%} |")
    return "\n".join(lines)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    parser.add_argument("--engines", help="comma-separated; default: all, with a result file")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--local", type=int, default=2, help="ranks of a host")
    parser.add_argument("--mbit", type=int, default=1000, help="the rate of each host's link, in each direction, Mb/s")
    parser.add_argument("--delay-ms", type=float, default=0.2, help="from host to host")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=2, help="steps of one engine in one round")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--layers", type=int, help="another number of layers, for quick trials")
    parser.add_argument("--collectives", help="MiB of whole buffers, comma-separated: collectives alone")
    args = parser.parse_args()
    args.ranks, args.command_of, args.pool, args.sent = args.hosts * args.local, command_of, HostPool, {}
    return args


def make_lab(args):
    try:
        return Lab(args.hosts, args.mbit, args.delay_ms), f"{args.delay_ms} ms from host to host"
    except Absent as reason:
        say(f"without a delay: {reason}")
        return Lab(args.hosts, args.mbit), "no delay: this kernel has no netem"


def main():
    args = parse_args()
    engines = args.engines.split(",") if args.engines else [*SHOAL, *PEERS]
    args.lab, delay = make_lab(args)
    with args.lab:
        if args.collectives:
            text = measure_collectives(args)
        else:
            results, unable = run_heat(engines, args)
            text = table_of(engines, results, unable, args)
    print(text)
    if args.engines or args.collectives:
        return 0
    path = ROOT / f"bench/results/hosts-{os.uname().machine}-{today()}.md"
    words = shlex.join([os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]])
    path.write_text(
        f"# Training step, {args.hosts} hosts of {args.local} ranks\n\nHosts are namespaces of one machine, joined by a switch; each has "
        f"a link of {args.mbit} Mb/s in each direction, {delay}. The model of bench/README.md"
        f"{f', {args.layers} layers' if args.layers else ''}; 1 thread a rank; {args.steps} steps of each engine in turn, {args.rounds} "
        "rounds; a rank's slowest time counts. Bytes by the counters of the hosts' interfaces.\n\n"
        f"Command: `{words}`\n\n{describe_machine()}\n\n{text}\n"
    )
    say(f"written: {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Absent, Unable) as error:
        raise SystemExit(f"bench/hosts.py: {error}") from None
