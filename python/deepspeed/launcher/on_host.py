"""One host of a start by ssh: runs the runner's part of this host, and ends it when whoever started it is gone, which closes
standard input, or says a signal's name there. What ranks leave behind is ended with them.

    python on_host.py --no_ssh --node_rank=1 ... script.py       by its path, so that it loads nothing
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

GRACE_SECONDS = 45  # torchrun gives its ranks 30 to end
SIGNALS = {b"INT": signal.SIGINT, b"TERM": signal.SIGTERM}


def _adopt_orphans() -> None:
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def _children() -> list[int]:
    found = []
    for task in Path("/proc/self/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


def end_what_is_left() -> None:
    """Processes of ours whose parents are gone come to this one, until none is left."""
    deadline = time.monotonic() + 10
    while (left := _children()) and time.monotonic() < deadline:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def watch(run: subprocess.Popen) -> int:
    """Its exit code; 128 + N where signal N ended it."""
    unread, deadline = b"", None
    open_inputs = [sys.stdin.fileno()]
    while run.poll() is None:
        ready, _, _ = select.select(open_inputs, [], [], 0.05)
        if ready:
            data = os.read(open_inputs[0], 4096)
            unread += data
            *words, unread = unread.split(b"\n")
            for word in words:
                run.send_signal(SIGNALS.get(word, signal.SIGTERM))
            if not data:
                open_inputs = []
                run.send_signal(signal.SIGTERM)
            if words or not data:
                deadline = deadline or time.monotonic() + GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            run.kill()
    return run.returncode if run.returncode >= 0 else 128 - run.returncode


def main() -> None:
    _adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # what shall end is said on standard input, or that is closed
    words = [sys.executable, "-u", "-m", "deepspeed.launcher.runner", *sys.argv[1:]]
    run = subprocess.Popen(words, stdin=subprocess.DEVNULL, restore_signals=True, preexec_fn=_as_usual)
    code = watch(run)
    end_what_is_left()
    sys.exit(code)


def _as_usual() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    main()
