"""Hosts of a cluster as namespaces of this machine, for tests and benchmarks: each has a network, processes, a name, a boot id
and a /run of its own, and a cable to a switch; cables may be shaped and cut. All share this machine's disk.

    with Lab(2) as lab:                          # raises Absent, with the reason, where this machine cannot
        rank = lab.start(1, ["python3", "train.py"], RANK="1", MASTER_ADDR=lab.address(0))

Nothing has a name outside: hosts are processes that die with this one, whatever happens to it, and with each all that ran on it,
what became a daemon too. So labs do not meet, and nothing is left behind.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from ranks import Skipped

LIMIT_SECONDS = 300
TOOLS = ("unshare", "nsenter", "ip", "tc", "mount")
_libc = ctypes.CDLL(None)


class Absent(Skipped):
    """What a lab needs and this machine does not have."""


def _die_with_parent() -> None:
    PR_SET_PDEATHSIG = 1
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


_FOLDERS = "shoal-hosts-"  # and the process that has made it


def _sweep() -> None:
    """Takes away the folders of processes that were killed; all else of theirs has ended with them."""
    for left in Path(tempfile.gettempdir()).glob(f"{_FOLDERS}*-*"):
        maker = left.name.removeprefix(_FOLDERS).split("-")[0]
        if maker.isdecimal() and not Path("/proc", maker).exists():
            shutil.rmtree(left, ignore_errors=True)


class Running:
    """A command on a host."""

    def __init__(self, words: list[str], environment: dict[str, str]):
        self.output_file = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=self.output_file, stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent,
        )  # fmt: skip
        self.began = time.monotonic()

    def output(self) -> str:
        with open(f"/proc/self/fd/{self.output_file.fileno()}", errors="replace") as file:  # a place in it of our own
            return file.read()

    def signal(self, number: int) -> None:
        """To the command itself, not to what entered the host for it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        os.kill(int(children[0]) if children else self.process.pid, number)

    def wait(self, limit: float = LIMIT_SECONDS) -> int:
        """Its exit code; -N where signal N ended it. Ends it at the limit."""
        try:
            return self.process.wait(max(0.1, self.began + limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"not over within {limit} s:\n{self.output()[-6000:]}") from None

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def wait_for(self, text: str, limit: float = LIMIT_SECONDS) -> None:
        while text not in self.output():
            if self.process.poll() is not None and text not in self.output():
                raise AssertionError(f"ended with {self.process.returncode} without {text!r}:\n{self.output()[-6000:]}")
            if self.seconds() > limit:
                raise AssertionError(f"{text!r} did not come within {limit} s:\n{self.output()[-6000:]}")
            time.sleep(0.02)

    def end(self) -> None:
        if self.process.poll() is None:
            try:
                self.signal(signal.SIGKILL)
            except OSError:
                pass
            self.process.kill()
            self.process.wait()


class Lab:
    """`count` hosts named worker-0, worker-1, ... at 10.77.0.1, 10.77.0.2, ...; `mbit`: the rate of each cable, in each
    direction; `delay_ms`: from host to host, where the kernel has netem."""

    def __init__(self, count: int, mbit: int | None = None, delay_ms: float | None = None):
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if missing:
            raise Absent(f"no {', '.join(missing)} here")
        if os.geteuid() != 0:
            raise Absent("namespaces of networks need root")
        self.count = count
        _sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDERS}{os.getpid()}-"))
        self.holders: list[subprocess.Popen] = []
        self.running: list[Running] = []
        atexit.register(self.close)  # where nobody does
        try:
            self._make(mbit, delay_ms)
        except BaseException:
            self.close()
            raise

    def _make(self, mbit: int | None, delay_ms: float | None) -> None:
        lines = [f"{self.address(host)} {self.name(host)}\n" for host in range(self.count)]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        own = ("--mount", "--pid", "--fork", "--mount-proc", "--kill-child")  # its processes end with it
        self._hold("ip link set lo up && ip link add br0 type bridge && ip link set br0 up", "--net", *own)  # the switch
        for host in range(self.count):
            (self.folder / f"boot_id.{host}").write_text(f"{uuid.uuid4()}\n")
            self._hold(
                f"mount -t sysfs sysfs /sys; mount -t tmpfs tmpfs /run && mkdir /run/sshd /run/munge && "
                f"mount --bind {self.folder}/boot_id.{host} /proc/sys/kernel/random/boot_id && "
                f"mount --bind {self.folder}/hosts /etc/hosts && hostname {self.name(host)} && ip link set lo up",
                "--net", "--uts", "--ipc", *own,
            )  # fmt: skip
            self.do(-1, f"ip link add p{host} type veth peer name eth0 netns {self._inner(host)}")
            self.do(-1, f"ip link set p{host} master br0 up")
            self.do(host, f"ip addr add {self.address(host)}/24 dev eth0 && ip link set eth0 up")
            for place, end in ((-1, f"p{host}"), (host, "eth0")):
                self._shape(place, end, mbit, delay_ms)

    def _hold(self, script: str, *flags: str) -> None:
        """A process in namespaces of its own that has run the script. As the first of its processes it buries the dead."""
        ready = self.folder / f"ready.{len(self.holders)}"
        whole = f"{script} && : > {ready}; while :; do sleep 1000; done"
        log = open(self.folder / "log", "a+")
        self.holders.append(
            subprocess.Popen(["unshare", *flags, "--", "sh", "-c", whole], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                             preexec_fn=_die_with_parent, start_new_session=True)
        )  # fmt: skip
        deadline = time.monotonic() + 20
        while not ready.exists():
            if self.holders[-1].poll() is not None or time.monotonic() > deadline:
                raise Absent(f"no host can be made of namespaces here: {(self.folder / 'log').read_text().strip()[-300:]}")
            time.sleep(0.005)

    def _inner(self, host: int) -> int:
        """The first process of the host."""
        pid = self.holders[host + 1].pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def _prefix(self, host: int) -> list[str]:
        kinds = ["--net"] if host < 0 else ["--net", "--mount", "--pid", "--uts", "--ipc"]
        return ["nsenter", f"--target={self._inner(host)}", *kinds, "--"]

    def prefix(self, host: int, folder: str) -> list[str]:
        """What stands before the words of a command that is to run on the host, in this folder."""
        return [*self._prefix(host)[:-1], f"--wdns={folder}", "--"]

    def _shape(self, host: int, end: str, mbit: int | None, delay_ms: float | None) -> None:
        if delay_ms is not None:  # half at each end
            rate = f"rate {mbit}mbit" if mbit else ""
            text = f"tc qdisc add dev {end} root netem delay {delay_ms * 500:.0f}us {rate} limit 10000"
        elif mbit is not None:
            text = f"tc qdisc add dev {end} root tbf rate {mbit}mbit burst 256kb latency 100ms"
        else:
            return
        try:
            self.do(host, text)
        except subprocess.CalledProcessError as error:
            raise Absent(f"this kernel cannot shape a link ({text.split(' root ')[1]}): {error.output.strip()[-200:]}") from None

    @staticmethod
    def name(host: int) -> str:
        return f"worker-{host}"

    @staticmethod
    def address(host: int) -> str:
        return f"10.77.0.{host + 1}"

    def do(self, host: int, script: str) -> str:
        """What a short script says on the host (-1: the switch); raises when it fails."""
        return subprocess.run([*self._prefix(host), "sh", "-c", script], check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, preexec_fn=_die_with_parent).stdout  # fmt: skip

    def start(self, host: int, words: list[str], folder: str | None = None, **variables: str) -> Running:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_", "PMIX_"))}
        inside = [*self.prefix(host, folder or os.getcwd()), *words]
        own = Running(inside, environment | {name: str(value) for name, value in variables.items()})
        self.running.append(own)
        return own

    def start_rank(self, rank: int, host: int, world: int, words: list[str], **variables: str) -> Running:
        """With the variables that torchrun gives, and rank 0 on the first host."""
        own = {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": self.address(0), "MASTER_PORT": 29500}
        return self.start(host, words, **(own | variables))

    def cut(self, host: int) -> None:
        """What is sent to or from the host is lost; no connection is closed."""
        self.do(-1, f"ip link set p{host} down")

    def mend(self, host: int) -> None:
        self.do(-1, f"ip link set p{host} up")

    def drop(self, host: int, rule: str) -> None:
        """A firewall on the host that drops what comes in and matches: "tcp dport 29500"."""
        if shutil.which("nft") is None:
            raise Absent("no nft here: install nftables")
        try:
            self.do(host, "nft add table inet lab && "
                    "nft 'add chain inet lab in { type filter hook input priority 0; }' && "
                    f"nft 'add rule inet lab in iifname eth0 {rule} drop'")  # fmt: skip
        except subprocess.CalledProcessError as error:
            raise Absent(f"this kernel has no firewall that nft can set: {error.output.strip()[-200:]}") from None

    def sent_nbytes(self, host: int) -> int:
        """What the host has given to its cable, by the counter of its interface."""
        return int(self.do(host, "cat /sys/class/net/eth0/statistics/tx_bytes"))

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        for own in self.running:
            own.end()
        for holder in reversed(self.holders):  # all that ran in its namespaces ends with it
            holder.kill()
            holder.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)


def with_ssh(lab: Lab, port: int = 22) -> str:
    """A server of ssh on each host, and keys; returns a folder with an `ssh` that uses them, to stand first in PATH."""
    server = next((path for path in ("/usr/sbin/sshd", shutil.which("sshd")) if path and os.path.exists(path)), None)
    if server is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        raise Absent("no sshd here: install openssh-server and openssh-client")
    for name in ("user", "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", lab.folder / name], check=True)
    public = (lab.folder / "host.pub").read_text().split()[:2]
    names = [word for host in range(lab.count) for word in (lab.name(host), lab.address(host))]
    (lab.folder / "known").write_text("".join(f"{name} {' '.join(public)}\n" for name in names)
                                      + "".join(f"[{name}]:{port} {' '.join(public)}\n" for name in names))  # fmt: skip
    (lab.folder / "sshd_config").write_text(
        f"HostKey {lab.folder}/host\nAuthorizedKeysFile {lab.folder}/user.pub\nPermitRootLogin yes\nStrictModes no\n"
        "UsePAM no\nPidFile none\nPasswordAuthentication no\nMaxStartups 100\n"
    )
    (lab.folder / "ssh_config").write_text(
        f"Host *\n  IdentityFile {lab.folder}/user\n  IdentitiesOnly yes\n  UserKnownHostsFile {lab.folder}/known\n"
        "  BatchMode yes\n  LogLevel ERROR\n"
    )
    programs = lab.folder / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {lab.folder}/ssh_config "$@"\n')
    (programs / "ssh").chmod(0o755)
    for host in range(lab.count):
        daemon = lab.start(host, [server, "-D", "-e", "-f", str(lab.folder / "sshd_config"), "-p", str(port)])
        daemon.wait_for("Server listening", 30)
    return str(programs)
