"""The port at which ranks meet: looked at before anything is started, and kept from others until it is used."""

from __future__ import annotations

import errno
import socket

DEFAULT_PORT = 29500


def hold(port: int) -> socket.socket | None:
    """A socket that keeps the port (0: any free one) for this process, which may still listen on it; None: it is taken."""
    for family, host in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            held = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # no IPv6 here
            continue
        try:
            if family == socket.AF_INET6:
                held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # of IPv4 too
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind((host, port))
            return held
        except PermissionError:
            held.close()
            raise SystemExit(f"deepspeed: port {port} needs more rights than this user has. Give --master_port above 1023.") from None
        except OSError as error:
            held.close()
            if error.errno == errno.EADDRINUSE:
                return None
    return None


def meeting_port(named: int | None, nodes: int) -> tuple[int, socket.socket]:
    """The port for the ranks of rank 0's host, and what keeps it. One that nobody named may be another than the default,
    where all ranks are on this host."""
    held = hold(named or DEFAULT_PORT)
    if held is None and named is None and nodes == 1:
        held = hold(0)
    if held is None:
        which = f"--master_port {named}" if named else f"the default port {DEFAULT_PORT}"
        where = "" if nodes == 1 else " on every host"
        raise SystemExit(f"deepspeed: {which} is in use on this host. Give a free one with --master_port{where}, or end who uses it.")
    return held.getsockname()[1], held
