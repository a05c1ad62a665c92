"""The hosts and slots of a job, from a hostfile and --include or --exclude: parsing only.

    worker-0 slots=4                     a line of a hostfile
    worker-0@worker-1:0,2                --include and --exclude: hosts apart by @, slots after a colon, all without
"""

from __future__ import annotations

import os

Hosts = dict[str, list[int]]  # in the order of the file: the first holds rank 0
MOST_SLOTS = 1024  # of a host: more is a slip of the pen, and would be started
MOST_CORES = 65536  # the largest number of a core


MOST_SHOWN = 2000  # characters of a message: it quotes what is in files


def _refusal(text: str) -> SystemExit:
    """With what a terminal would act on as an escape, and not without end."""
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
    if len(shown) > MOST_SHOWN:
        shown = f"{shown[: MOST_SHOWN // 2]}[... {len(shown) - MOST_SHOWN} characters]{shown[-MOST_SHOWN // 2 :]}"
    return SystemExit(f"deepspeed: {shown}")


def read_hostfile(path: str) -> Hosts:
    """The hosts of a file; none if there is no such file."""
    if not os.path.isfile(path):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise _refusal(f"the hostfile {path} cannot be read: {error}. Give a text file.") from None
    return parse_hostfile(text.splitlines(), path)


def _number(text: str, most: int) -> int | None:
    """A number from 0 to `most` in plain digits; None where it is none."""
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text.lstrip("0")) <= len(str(most))):
        return None
    return int(text) if int(text) <= most else None


def _refuse_option(host: str, place: str) -> None:
    """ssh would take it for one: -oProxyCommand=... runs a command here."""
    if host.startswith("-"):
        raise _refusal(f"{place} names a host {host}, which begins with -. Write the name or address of one.")


def parse_hostfile(lines: list[str], path: str = "hostfile") -> Hosts:
    hosts: Hosts = {}
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        _refuse_option(words[0], f"{path}:{number}")
        count = words[1].removeprefix("slots=") if len(words) == 2 else ""
        slots = _number(count, MOST_SLOTS)
        if slots is None and count.isascii() and count.isdigit():
            raise _refusal(f"{path}:{number} gives {words[0]} more than {MOST_SLOTS} slots. Write how many ranks it takes.")
        if not slots:
            raise _refusal(f"{path}:{number} is {line.strip()!r}. Write a host and its slots: worker-0 slots=4.")
        if words[0] in hosts:
            raise _refusal(f"{path}:{number} names {words[0]} a second time. Give each host one line.")
        hosts[words[0]] = list(range(slots))
    return hosts


def parse_spec(text: str) -> dict[str, list[int] | None]:
    """--include or --exclude, as slots a host; None: all of them."""
    found: dict[str, list[int] | None] = {}
    for part in text.split("@"):
        host, colon, slots = part.strip().partition(":")
        numbers = slots.split(",") if colon else []
        if not host or any(_number(number, MOST_SLOTS) is None for number in numbers):
            raise _refusal(f'{text!r} does not say which slots. Write "worker-0@worker-1:0,2".')
        _refuse_option(host, repr(text))
        found[host] = sorted({int(number) for number in numbers}) if colon else None
    return found


def select(hosts: Hosts, include: str, exclude: str) -> Hosts:
    """What --include or --exclude leaves of the hosts."""
    if include and exclude:
        raise SystemExit("deepspeed: --include and --exclude contradict each other. Give one of them.")
    if not include and not exclude:
        return hosts
    spec = parse_spec(include or exclude)
    for host, slots in spec.items():
        if host not in hosts:
            raise _refusal(f"{host} is not among the hosts {', '.join(hosts)}. Name one of them.")
        outside = [slot for slot in slots or [] if slot not in hosts[host]]
        if outside:
            raise _refusal(f"{host} has no slot {outside[0]}: it has {len(hosts[host])}. Name one that it has.")
    chosen: Hosts = {}
    for host, slots in hosts.items():
        if include:
            kept = (slots if spec[host] is None else spec[host]) if host in spec else []
        else:
            dropped = (slots if spec[host] is None else spec[host]) if host in spec else []
            kept = [slot for slot in slots if slot not in dropped]
        if kept:
            chosen[host] = list(kept)
    if not chosen:
        raise SystemExit("deepspeed: --include and --exclude leave no slot. Name fewer in --exclude.")
    return chosen


def limit(hosts: Hosts, num_nodes: int, num_gpus: int) -> Hosts:
    """The first hosts, and their first slots."""
    if num_nodes > len(hosts):
        raise _refusal(f"--num_nodes is {num_nodes} and the hostfile has {len(hosts)}. Add hosts to it.")
    chosen = dict(list(hosts.items())[: num_nodes if num_nodes > 0 else None])
    return {host: slots[:num_gpus] if num_gpus > 0 else slots for host, slots in chosen.items()}


def parse_cores(text: str) -> list[int]:
    """ "0,2-4" as [0, 2, 3, 4]."""
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        low, high = _number(first, MOST_CORES), _number(last if dash else first, MOST_CORES)
        if low is None or high is None or high < low:
            raise _refusal(f"--bind_core_list is {text!r}. Write numbers and ranges: 0,2-4.")
        cores += range(low, high + 1)
    return cores
