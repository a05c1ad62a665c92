"""What goes wrong between hosts ends every rank within the timeout, with a message that names the host and the port. The hosts
are namespaces of this machine (hosts_lab.py); ranks are `shoal train`, started by hand. Cases wait side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).parent))
from hosts_lab import Lab, Running
from hosts_runs import QUIET, losses, losses_on_one_host, train_words
from ranks import main

TIMEOUT = 8
GRACE = 30  # what a busy machine may need for loading and ending
MEET = "10.77.0.1:29500"


class Case:
    """Ranks in a lab of their own, which begin at once; what each says is looked at later."""

    def __init__(self, hosts: tuple[int, ...] = (0, 1), before: Callable[[Lab], None] | None = None, each: dict | None = None, **variables):
        self.lab = Lab(max(hosts) + 1)
        if before:
            before(self.lab)
        words = train_words(self.lab, "run", 2, "--set", f"shoal.timeout_seconds={TIMEOUT}")
        words[words.index("train_batch_size=8")] = "train_micro_batch_size_per_gpu=1"
        self.ranks = [
            self.lab.start_rank(rank, host, len(hosts), words, **(QUIET | variables | (each or {}).get(rank, {})))
            for rank, host in enumerate(hosts)
        ]

    def expect(self, *texts: str | tuple[str, ...]) -> None:
        """That each rank fails in time, and says this, or one of these."""
        try:
            for rank, (run, text) in enumerate(zip(self.ranks, texts, strict=True)):
                code, choice = run.wait(), (text,) if isinstance(text, str) else text
                assert code != 0, f"rank {rank} ended well:\n{run.output()[-3000:]}"
                assert any(each in run.output() for each in choice), f"rank {rank} does not say {text!r}:\n{run.output()[-3000:]}"
                assert run.seconds() < 3 * TIMEOUT + GRACE, f"rank {rank} took {run.seconds():.0f} s:\n{run.output()[-3000:]}"
        finally:
            self.lab.close()


def end_of(run: Running) -> str:
    run.wait()
    return run.output()


def test_addresses_and_interfaces_are_said_at_start_and_ranks_of_uneven_hosts_train_as_on_one():
    with Lab(3) as lab:
        ranks = [lab.start_rank(rank, host, 4, train_words(lab, "run"), **QUIET) for rank, host in enumerate((0, 1, 1, 2))]
        said = [end_of(rank) for rank in ranks]
        assert [rank.wait() for rank in ranks] == [0] * 4, said
        line = (
            f"shoal: 4 ranks on 3 hosts, over gloo, meeting at {MEET}: rank 0 on worker-0 at 10.77.0.1 (eth0); "
            "ranks 1, 2 on worker-1 at 10.77.0.2 (eth0); rank 3 on worker-2 at 10.77.0.3 (eth0)\n"
        )
        assert line in said[0], said[0]
        assert not any("meeting at" in text for text in said[1:])
        assert losses(lab, "run") == losses_on_one_host(lab, 4)


def networks_of_their_own(lab: Lab) -> None:
    """Of the second and the third host, each of which nobody else is on."""
    for host, network in ((1, "10.98.0"), (2, "10.99.0")):
        lab.do(host, f"ip link add far type bridge && ip addr add {network}.2/24 dev far && ip link set far up")


def test_hosts_that_cannot_be_reached_are_named_with_the_port():
    cut = Case(before=lambda lab: lab.cut(1))
    nobody = Case(MASTER_ADDR="10.77.0.99")
    unknown = Case(MASTER_ADDR="worker-9")
    port = Case(each={1: {"MASTER_PORT": "29501"}})
    missing = f"joining the world: rank 1 did not arrive within {TIMEOUT} s at {MEET}, where ranks meet"
    cut.expect(missing, f"no rendezvous store at {MEET}")
    nobody.expect(*["no rendezvous store at 10.77.0.99:29500"] * 2)
    unknown.expect(*["MASTER_ADDR=worker-9 cannot be resolved"] * 2)
    port.expect(missing, "no rendezvous store at 10.77.0.1:29501")


def test_a_firewall_is_found_at_the_port_where_it_drops():
    at_store = Case(before=lambda lab: lab.drop(0, "tcp dport 29500"))
    try:
        behind = Case(before=lambda lab: [lab.drop(host, "tcp dport != 29500 tcp flags syn / syn,ack") for host in (0, 1)] and None)
    except BaseException:
        at_store.lab.close()
        raise
    at_store.expect(f"rank 1 did not arrive within {TIMEOUT} s at {MEET}", f"no rendezvous store at {MEET}")
    either = ("rank 1 cannot be reached at 10.77.0.2:", "rank 0 cannot be reached at 10.77.0.1:")  # whoever finds out first
    behind.expect(either, either)


def test_interfaces_that_lead_nowhere_are_named():
    absent = Case(each={1: {"GLOO_SOCKET_IFNAME": "eth7"}})
    loopback = Case(GLOO_SOCKET_IFNAME="lo")
    one = Case(each={1: {"GLOO_SOCKET_IFNAME": "lo"}})
    master = Case(each={0: {"MASTER_ADDR": "127.0.0.1"}})
    wrong = Case((0, 1, 2), before=networks_of_their_own, each={rank: {"GLOO_SOCKET_IFNAME": "far"} for rank in (1, 2)})
    absent.expect(f"joining the world: rank 1 did not arrive within {TIMEOUT} s at {MEET}",
                  "[environment GLOO_SOCKET_IFNAME] eth7 is no interface of worker-1 that is up. It has lo (127.0.0.1), eth0 (10.77.0.2)")  # fmt: skip
    loopback.expect(*["rank 0 is to be reached at 127.0.0.1 (lo), which is no address for rank 1"] * 2)
    one.expect(*["rank 1 is to be reached at 127.0.0.1 (lo), which is no address for rank 0 (worker-0, 10.77.0.1)"] * 2)
    master.expect(*["rank 0 is to be reached at 127.0.0.1 (lo), which is no address for rank 1 (worker-1, 10.77.0.2)"] * 2)
    wrong.expect(*[("rank 1 cannot be reached at 10.98.0.2:", "rank 2 cannot be reached at 10.99.0.2:", "rank 0 cannot be reached at 10.77")] * 3)


def test_two_runs_on_one_port_do_not_mix():
    with Lab(2) as lab:
        words = train_words(lab, "first", 200, "--set", "shoal.timeout_seconds=20")
        first = [lab.start_rank(rank, rank, 2, words, **QUIET, SLURM_JOB_ID="7") for rank in (0, 1)]
        other = train_words(lab, "second", 2, "--set", "shoal.timeout_seconds=20")
        first[0].wait_for("step 2/200")
        second = [lab.start_rank(rank, rank, 2, other, **QUIET, SLURM_JOB_ID="8") for rank in (0, 1)]
        assert "cannot serve the rendezvous store at 10.77.0.1:29500" in end_of(second[0]), second[0].output()
        text = "[comm rank 1] the rendezvous store at 10.77.0.1:29500 is of another run, SLURM_JOB_ID=7, and this rank of SLURM_JOB_ID=8."
        assert text in end_of(second[1]), second[1].output()
        assert [rank.process.poll() for rank in first] == [None, None], "the first run goes on"
    # A rank of another run that comes before the own one: nobody trains with it.
    mixed = Case(each={0: {"SHOAL_RUN_ID": "a"}, 1: {"SHOAL_RUN_ID": "b"}})
    mixed.expect(f"joining the world: rank 1 did not arrive within {TIMEOUT} s at {MEET}",
                 f"the rendezvous store at {MEET} is of another run, SHOAL_RUN_ID=a, and this rank of SHOAL_RUN_ID=b")  # fmt: skip


def test_ranks_that_were_numbered_or_counted_wrongly_are_named():
    twice = Case((0, 1, 1), each={2: {"RANK": "1"}})
    larger = Case(each={1: {"WORLD_SIZE": "3"}})
    smaller = Case((0, 1, 1), each={0: {"WORLD_SIZE": "2"}})
    already = f"another process has joined as rank 1 already at {MEET}: "
    missing = "joining the world: rank 2 did not arrive within"
    twice.expect(missing, (already, missing), (already, missing))
    first, second = "rank 0 (worker-0, 10.77.0.1) {} of 2", "rank 1 (worker-1, 10.77.0.2) {} of 3"
    either = (f"{first} and {second}".format("was started for a world", "for one"), f"{second} and {first}".format("was started for a world", "for one"))
    larger.expect(either, either)
    # A rank that comes when the others have ended finds no store.
    said = ("was started for a world of", "and with it the rendezvous store", "and the output of rank 0")
    smaller.expect("was started for a world of", said, said)


if __name__ == "__main__":
    main(globals())
