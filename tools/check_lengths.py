"""Checks that no C++ source is longer than 500 lines: past that, there is a second thing inside. Tests may be longer.

    check_lengths.py [repository]

Prints each file that is, and exits with 1 when there is one. For modules of Python see check_python.py.
"""

import sys
from pathlib import Path

FOLDERS = ["include", "src", "apps", "bindings", "bench", "examples", "tools"]
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".inc"}
LIMIT_LINES = 500


def check(root):
    breaches = []
    for path in sorted(p for folder in FOLDERS for p in (root / folder).rglob("*") if p.suffix in SUFFIXES):
        count = len(path.read_text(errors="replace").splitlines())
        if count > LIMIT_LINES:
            breaches.append(f"{path.relative_to(root).as_posix()}: {count} lines, and {LIMIT_LINES} are the most. "
                            "Give the second thing in it a file of its own.")
    return breaches


if __name__ == "__main__":
    breaches = check(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve())
    print("\n".join(breaches) or "lengths: no breach")
    sys.exit(1 if breaches else 0)
