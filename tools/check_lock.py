"""Says whether the running Python environment holds exactly the versions that a lock file names.

Called by tools/setup.sh before and after it installs. Exit code 0: yes; 1: no, and each difference is printed.
Understands the lock's own small language: `name==version`, optionally `; python_version < "3.11"` or `>=`.
"""

import importlib.metadata
import re
import sys

LINE = re.compile(r'^(?P<name>[\w.-]+)==(?P<version>[\w.+]+)(?:\s*;\s*python_version\s*(?P<op><|>=)\s*"3\.(?P<minor>\d+)")?$')


def wanted(text, minor=sys.version_info.minor):
    """The versions that a lock file asks for on Python 3.<minor>, as {name: version}."""
    result = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#")[0].strip()
        if not line:
            continue
        match = LINE.match(line)
        if not match:
            raise SystemExit(f"[lock line {number}] '{line}' is not of the form name==version.")
        if match["op"] == "<" and not minor < int(match["minor"]):
            continue
        if match["op"] == ">=" and not minor >= int(match["minor"]):
            continue
        result[match["name"]] = match["version"]
    return result


def differences(versions):
    found = []
    for name, version in versions.items():
        try:
            # A wheel for one kind of machine may add a local label: 2.11.0+cpu.
            have = importlib.metadata.version(name).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            have = "absent"
        if have != version:
            found.append(f"{name}: {version} is locked, {have} is installed")
    return found


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        found = differences(wanted(file.read()))
    print("\n".join(found) or "all as locked")
    sys.exit(1 if found else 0)
