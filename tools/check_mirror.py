"""Checks that unit tests mirror sources, both ways.

    check_mirror.py [repository]

src/<folder>/<x>.cpp is tested by tests/unit/<folder>/<x>_test.cpp. The versions of a kernel family, one file an
instruction set (<x>_reference, _neon, _x86, _avx2, _avx512, and the stand-ins no_neon_<x>, no_x86_<x>), are tested
together by <x>_test.cpp. What needs a GPU, src/<folder>/cuda/<x>.cu, is tested by tests/cuda/<folder>/<x>_test.cpp, and a
.cpp there by that or by its unit test; the stand-ins in src/<folder>/no_cuda/ need no test. A source without a unit test
is named in tests/unmirrored.txt with the reason: `src/a/b.cpp  why`.
Prints each breach and exits with 1 when there is one.
"""

import re
import sys
from pathlib import Path

VERSION = re.compile(r"^no_(neon|x86)_|_(reference|neon|x86|avx2|avx512|no_neon|no_x86)$")


def read_excuses(path):
    """{source: reason} of tests/unmirrored.txt."""
    excuses = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        line = line.split("#")[0].strip()
        if line:
            source, _, reason = line.partition(" ")
            excuses[source] = reason.strip()
    return excuses


def sources(root):
    found = [path for suffix in (".cpp", ".cu") for path in (root / "src").rglob(f"*{suffix}")]
    return sorted(path for path in found if path.parent.name != "no_cuda")


def tests_for(root, source):
    """The tests that may stand for a source: its own, its family's, or the one that needs a GPU. The last is wanted."""
    folder = source.parent.relative_to(root / "src")
    on_gpu = [root / "tests/cuda" / folder.parent / f"{source.stem}_test.cpp"] if folder.name == "cuda" else []
    if source.suffix == ".cu":
        return on_gpu
    stems = dict.fromkeys([source.stem, VERSION.sub("", source.stem)])
    return [root / "tests/unit" / folder / f"{stem}_test.cpp" for stem in stems] + on_gpu


def check(root):
    breaches = []
    excuses = read_excuses(root / "tests/unmirrored.txt")
    mirrored = set()
    for source in sources(root):
        name = source.relative_to(root).as_posix()
        candidates = tests_for(root, source)
        mirrored.update(candidates)
        tested = any(test.exists() for test in candidates)
        if tested and name in excuses:
            breaches.append(f"tests/unmirrored.txt: {name} has a unit test by now; take its line away.")
        elif not tested and name not in excuses:
            wanted = candidates[-1].relative_to(root).as_posix()
            breaches.append(f"{name}: no {wanted}, and no line in tests/unmirrored.txt.")
    for name, reason in excuses.items():
        if not (root / name).exists():
            breaches.append(f"tests/unmirrored.txt: {name} does not exist.")
        elif not reason:
            breaches.append(f"tests/unmirrored.txt: {name} has no reason.")
    for test in sorted((root / "tests/unit").rglob("*.cpp")):
        # A header whose code is all inline has no .cpp, and may have a test.
        header = test.stem.removesuffix("_test") + ".h"
        homes = [root / "src" / test.parent.relative_to(root / "tests/unit"), root / "include/shoal"]
        if test.stem.endswith("_test") and test not in mirrored and not any((home / header).exists() for home in homes):
            breaches.append(f"{test.relative_to(root).as_posix()}: there is no source that it tests.")
    return breaches


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    breaches = check(root)
    print("\n".join(breaches) or "mirror: no breach")
    sys.exit(1 if breaches else 0)
