"""Runs a Python program as a fork of a process that has torch loaded: importing it takes longer than most tests.

    warm.py serve SOCKET             loads torch, then serves forks until it is terminated; tools/run_tests.sh starts it
    warm.py run PROGRAM [ARG...]     runs the program in a fork of the server that $SHOAL_WARM names, or here without one

The fork gets the caller's arguments, folder, environment, input and output, a session of its own, and `__main__`; it ends as any
Python program does, but for torch (ending.py). When the caller dies, so does the fork with all that it has started.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import sys
from pathlib import Path

VARIABLE = "SHOAL_WARM"
LIMIT = 1 << 20  # bytes of a request


def request(program: list[str], files: tuple[int, int, int], environment: dict[str, str]) -> socket.socket | None:
    """A connection to the server, which will say the exit code on it; None where there is none."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
        words = json.dumps({"program": program, "folder": os.getcwd(), "environment": environment}).encode()
        socket.send_fds(connection, [len(words).to_bytes(8, "little")], list(files))
        connection.sendall(words)
    except OSError:
        connection.close()
        return None
    return connection


def exit_code(connection: socket.socket) -> int:
    """Waits for the program's end. As subprocess has it: below zero for a signal."""
    with connection, connection.makefile() as said:
        line = said.readline()
    return int(line) if line else -signal.SIGKILL


def become(asked: dict, files: list[int]) -> None:
    """In the fork: who asked decides what this process is."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = asked["program"]
    folders = [str(Path(sys.argv[0]).resolve().parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    own = str(Path(__file__).resolve().parent)
    sys.path[:] = folders + [folder for folder in sys.path if folder != own]
    if "PYTHONFAULTHANDLER" in os.environ:
        import faulthandler

        faulthandler.enable()


def watch(child: int, connection: socket.socket) -> None:
    """Says the child's exit code, or ends it and its session when nobody is there to hear it."""
    ended = os.pidfd_open(child)
    select.select([ended, connection], [], [])
    if not select.select([ended], [], [], 0)[0]:
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:  # before its session began
            os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        connection.sendall(f"{code}\n".encode())
    except OSError:
        pass


def receive(connection: socket.socket) -> tuple[dict, list[int]]:
    length, files, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as stream:
        return json.loads(stream.read(min(int.from_bytes(length, "little"), LIMIT))), files


def serve(path: str) -> bool:
    """True in a fork that is to run sys.argv."""
    import ending  # before torch
    import torch
    import torch._dynamo  # what torch.optim imports when an optimizer is made, seconds of it

    try:
        import datasets  # what a Trainer of transformers imports where it is installed, with pandas and pyarrow
    except ImportError:
        pass
    ending.spare_what_is_loaded()
    torch.set_num_threads(1)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # watchers are waited for by nobody
    while True:
        connection, _ = listener.accept()
        if os.fork() != 0:
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            asked, files = receive(connection)
        except (OSError, ValueError):
            os._exit(1)
        child = os.fork()
        if child == 0:
            connection.close()
            become(asked, files)
            torch.set_num_threads(1)  # see nursery.py
            return True
        for file in files:
            os.close(file)
        watch(child, connection)
        os._exit(0)


def main() -> None:
    verb, *words = sys.argv[1:]
    if verb == "run":
        connection = request(words, (0, 1, 2), dict(os.environ))
        if connection:
            code = exit_code(connection)
            if code < 0:
                os.kill(os.getpid(), -code)
            sys.exit(code)
        sys.argv = words
        sys.path[0] = str(Path(words[0]).resolve().parent)
    elif not serve(words[0]):
        return
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
