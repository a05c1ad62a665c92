"""One ssh a host: starts them, passes on what the hosts say with their names before it, and sees all to their end when one
fails, when a signal comes, when nobody reads what they say, or when this process dies: then their standard input closes, which
on_host.py reads."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO

GRACE_SECONDS = 15  # for other hosts to end by themselves, once one has failed; ranks that notice say why
END_SECONDS = 60  # from the signal to the end by force
SSH_FAILED = 255
CHECK_SECONDS = 60


def ask_all(commands: dict[str, list[str]], script: str) -> dict[str, str]:
    """What a short script says on each host; ends with a message that names the hosts where it cannot run."""
    asked = {
        host: subprocess.Popen([*words, script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for host, words in commands.items()
    }
    said, faults = {}, []
    deadline = time.monotonic() + CHECK_SECONDS
    for host, process in asked.items():
        try:
            said[host], problem = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            faults.append(f"{host}: no answer within {CHECK_SECONDS} s")
            continue
        last = (problem.strip().splitlines() or [f"ended with {process.returncode}"])[-1]
        if process.returncode == SSH_FAILED:
            faults.append(f"{host} cannot be reached by ssh: {last}")
        elif process.returncode != 0:
            faults.append(f"{host}: {last}")
    if faults:
        raise SystemExit(f"deepspeed: {'; '.join(faults)}. `ssh {faults[0].split(':')[0].split()[0]} true` must work without a "
                         "password, and each host needs this folder and this Python at the same place.")  # fmt: skip
    return said


class SshLoop:
    def __init__(self, commands: dict[str, list[str]], first: bytes = b""):
        """`first` is what each command reads first on its standard input."""
        self.signal: int | None = None
        self.unwritten: OSError | None = None  # why what a host said could not be passed on
        self.sessions: dict[str, subprocess.Popen] = {}
        self.readers: list[threading.Thread] = []
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._take(number))
        for host, words in commands.items():
            # In a session of its own: Ctrl-C of the terminal shall reach the ranks through on_host, not end ssh.
            session = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       start_new_session=True)  # fmt: skip
            self.sessions[host] = session
            for source, target in ((session.stdout, sys.stdout), (session.stderr, sys.stderr)):
                self.readers.append(threading.Thread(target=self._pass_on, args=(host, source, target), daemon=True))
                self.readers[-1].start()
        self._say_to_all(first)

    def _take(self, number: int) -> None:
        if self.signal is not None:
            self._end_by_force()  # a second time: at once
        self.signal = number

    def _say_to_all(self, words: bytes) -> None:
        for session in self.sessions.values():
            try:
                session.stdin.write(words)
                session.stdin.flush()
            except ValueError:
                pass  # it was closed below
            except BrokenPipeError:  # it has ended
                with contextlib.suppress(BrokenPipeError):
                    session.stdin.close()  # now, or what it holds fails again when Python ends

    def _end_by_force(self) -> None:
        for session in self.sessions.values():
            if session.poll() is None:
                session.kill()  # sshd closes the standard input of what it ran

    def wait(self) -> int:
        """The exit code of the host that failed first; 128 + signal; 0."""
        failed: tuple[str, int] | None = None
        said_signal = said_end = False
        deadline = None
        while any(session.poll() is None for session in self.sessions.values()):
            time.sleep(0.05)
            now = time.monotonic()
            if self.signal is not None and not said_signal:
                said_signal, deadline = True, now + END_SECONDS
                self._say_to_all(b"INT\n" if self.signal == signal.SIGINT else b"TERM\n")
            if failed is None:
                failed = self._first_failure()
                if failed is not None and self.signal is None and not said_end:
                    _say_failure(*failed)
                    deadline = now + GRACE_SECONDS
            if self.unwritten is not None and self.signal is None and not said_end:
                said_end, deadline = True, now + END_SECONDS
                _say(f"deepspeed: what the hosts say cannot be written: {self.unwritten.strerror}. All hosts are ended.")
                self._say_to_all(b"TERM\n")
            if deadline is not None and now > deadline:
                if said_end or said_signal:
                    self._end_by_force()
                else:
                    said_end, deadline = True, now + END_SECONDS
                    self._say_to_all(b"TERM\n")
        for reader in self.readers:
            reader.join(5)
        failed = failed or self._first_failure()
        if self.signal is not None:
            return 128 + self.signal
        return failed[1] if failed else int(self.unwritten is not None)

    def _pass_on(self, host: str, source: IO[bytes], target: IO[str] | None) -> None:
        """To the end of what the host says, also where nobody reads it: a rank that cannot print would wait for ever."""
        for line in source:
            if target is None:  # it was closed when this command began
                continue
            try:
                target.buffer.write(f"{host}: ".encode() + line)
                target.buffer.flush()
            except OSError as error:
                self.unwritten = self.unwritten or error
                _write_nowhere(target)

    def _first_failure(self) -> tuple[str, int] | None:
        for host, session in self.sessions.items():
            if session.poll() not in (None, 0):
                return host, session.returncode if session.returncode > 0 else 128 - session.returncode
        return None


def _say_failure(host: str, code: int) -> None:
    how = "cannot be reached any more, or ssh to it failed" if code == SSH_FAILED else f"ended with {code}"
    _say(f"deepspeed: {host} {how}. The other hosts have {GRACE_SECONDS} s to end by themselves.")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # its reader may be gone too
        print(text, file=sys.stderr, flush=True)


def _write_nowhere(target: IO[str]) -> None:
    """From now on; what it still holds goes there too, instead of failing when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, target.fileno())
    os.close(nowhere)
