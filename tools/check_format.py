"""Checks that every C++ file is as clang-format leaves it, by the version that requirements.lock pins.

    check_format.py [repository]

Prints the files that `make format` would change and exits with 1 when there is one.
"""

import subprocess
import sys
from pathlib import Path

FOLDERS = ["include", "src", "apps", "bindings", "tests", "bench", "examples", "tools"]


def unformatted(root):
    files = sorted(p for f in FOLDERS for p in (root / f).rglob("*") if p.suffix in {".h", ".cpp"})
    program = Path(sys.executable).parent / "clang-format"
    if not program.exists():
        raise SystemExit(f"[check_format] no {program}. Run 'make setup'.")
    command = [str(program), "--dry-run", "-Werror", "--ferror-limit=1", *map(str, files)]
    report = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    names = {str(p): p.relative_to(root).as_posix() for p in files}
    return sorted({names[line.split(":")[0]] for line in report.splitlines() if line.split(":")[0] in names})


if __name__ == "__main__":
    found = unformatted(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve())
    for name in found:
        print(f"{name}: not formatted. Run 'make format'.")
    print(f"format: {len(found)} files to change")
    sys.exit(1 if found else 0)
