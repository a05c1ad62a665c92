"""Says on what a benchmark ran: processor, memory, system, versions and date. Names no host."""

import datetime
import os
import platform
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def today():
    return datetime.date.today().isoformat()


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def processor():
    fields = dict(re.findall(r"^(.+?):\s+(.+)$", output_of("lscpu"), re.MULTILINE))
    return fields.get("Model name", platform.machine())


def package_versions(python):
    code = ("import importlib.metadata as m\n"
            "for n in ('torch', 'deepspeed'):\n"
            "    try: print(n, m.version(n))\n"
            "    except m.PackageNotFoundError: pass")
    return ", ".join(output_of(str(python), "-c", code).splitlines())


def describe_machine(deepspeed_python=ROOT / ".venv-deepspeed/bin/python3"):
    memory = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) / 2**20
    lines = [
        f"Date: {today()}",
        f"Machine: {processor()} ({platform.machine()}), {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"Linux {platform.release().split('-')[0]}",
        f"Versions: {package_versions(ROOT / '.venv/bin/python3')}; for DeepSpeed: {package_versions(deepspeed_python) or 'absent'}; "
        f"Python {platform.python_version()}; {output_of('g++', '--version').splitlines()[0]}",
    ]
    commit = output_of("git", "-C", str(ROOT), "describe", "--always", "--dirty")
    if commit:
        lines.append(f"Commit: {commit}")
    return "\n".join(f"- {line}" for line in lines)
