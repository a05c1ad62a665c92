"""Checks that the sources which our documents name are there: a map that is not true is worse than none.

    check_named_files.py [repository]

A name is a path in backquotes that ends like a source, `layout/cut.h`, `python/shoal/engine.py`, rooted at the repository, at
src/, tests/ or python/. Headers of torch and names with <...>, which stand for several files, are passed over. Prints each name that leads nowhere, and
exits with 1 when there is one.
"""

import re
import sys
from pathlib import Path

DOCUMENTS = ["*.md", "src/*.md", "docs/**/*.md"]
PASSED_OVER = {"CHANGELOG.md"}  # tells of what was
ROOTS = ["", "src", "tests", "python"]
TORCH = re.compile(r"^(ATen|c10|torch)/")
NAME = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:h|cpp|cu|cuh|py|cmake|txt|sh))`")


def check(root):
    breaches = []
    for path in sorted(p for pattern in DOCUMENTS for p in root.glob(pattern) if p.name not in PASSED_OVER):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for name in NAME.findall(line):
                if not TORCH.match(name) and not any((root / base / name).exists() for base in ROOTS):
                    breaches.append(f"{path.relative_to(root).as_posix()}:{number}: there is no {name}.")
    return breaches


if __name__ == "__main__":
    breaches = check(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve())
    print("\n".join(breaches) or "named files: all are there")
    sys.exit(1 if breaches else 0)
