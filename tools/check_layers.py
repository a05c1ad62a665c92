"""Checks that the folders of src/ include each other one way only, and that the pure ones stay free of torch.

    check_layers.py [repository]

src/layers.txt gives the order: a file may include its own folder and those above it. A folder's line may go on with its
sub-folders: then every file of it lies in one of those, and the same holds among them. Public headers (include/shoal) may
be included from anywhere, and include only each other, the standard library, and ATen/core/Tensor.h and Generator.h.
torch/csrc/distributed is for comm/ alone. Prints each breach as file:line and exits with 1 when there is one.
"""

import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
SOURCES = {".h", ".cpp", ".inc", ".cu", ".cuh"}
TORCH = re.compile(r"^(ATen|c10|torch|caffe2)/")
PUBLIC_TORCH = {"ATen/core/Generator.h", "ATen/core/Tensor.h"}
C10D = "torch/csrc/distributed/"
C10D_FOLDER = "comm"
PURE_LIST = re.compile(r"^set\(pure_folders ([\w ]+)\)", re.MULTILINE)


def read_layers(root):
    """The order of the folders, as {folder: (position, is_pure, sub-folders in order)}."""
    layers = {}
    for line in (root / "src/layers.txt").read_text().splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) < 2 or words[1] not in ("pure", "torch"):
            raise SystemExit(f"[src/layers.txt] '{line}' is not '<folder> pure' or '<folder> torch', then sub-folders.")
        layers[words[0]] = (len(layers), words[1] == "pure", words[2:])
    return layers


def includes(path):
    """Each include of a file, as (line number, is_quoted, target)."""
    found = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            found.append((number, match[1] == '"', match[2]))
    return found


def headers_with_torch(root):
    """The public headers that bring torch along, directly or through another public header."""
    public = root / "include/shoal"
    targets = {f"shoal/{path.name}": [t for _, _, t in includes(path)] for path in sorted(public.glob("*.h"))}
    tainted = set()
    while True:
        more = {h for h, ts in targets.items() if h not in tainted and any(TORCH.match(t) or t in tainted for t in ts)}
        if not more:
            return tainted
        tainted |= more


def check_public(root):
    for path in sorted((root / "include/shoal").glob("*.h")):
        place = path.relative_to(root)
        for number, quoted, target in includes(path):
            if quoted:
                if not target.startswith("shoal/"):
                    yield f"{place}:{number}: a public header includes \"{target}\", which is not public."
                elif not (root / "include" / target).exists():
                    yield f"{place}:{number}: \"{target}\" does not exist."
            elif "/" in target and target not in PUBLIC_TORCH:
                allowed = ", ".join(sorted(PUBLIC_TORCH))
                yield f"{place}:{number}: a public header includes <{target}>. Beside the standard library: {allowed}."


def check_folder(root, folder, layers, tainted):
    position, pure, _ = layers[folder]
    for path in sorted(p for p in (root / "src" / folder).rglob("*") if p.suffix in SOURCES):
        place = path.relative_to(root)
        for number, quoted, target in includes(path):
            top = target.split("/")[0]
            if TORCH.match(target):
                if pure:
                    yield f"{place}:{number}: {folder}/ is pure and includes {target}."
                elif target.startswith(C10D) and folder != C10D_FOLDER:
                    yield f"{place}:{number}: {target} is c10d; only {C10D_FOLDER}/ may include it."
            elif pure and target in tainted:
                yield f"{place}:{number}: {folder}/ is pure, and {target} brings torch along."
            if not quoted:
                continue
            if top == "shoal":
                if not (root / "include" / target).exists():
                    yield f"{place}:{number}: \"{target}\" does not exist."
            elif "/" not in target or top not in layers:
                yield f"{place}:{number}: \"{target}\" is not rooted at src/ (write \"<folder>/<file>\")."
            elif not (root / "src" / target).exists():
                yield f"{place}:{number}: \"{target}\" does not exist."
            elif layers[top][0] > position:
                yield f"{place}:{number}: {folder}/ includes {target}, and {top}/ stands below it in src/layers.txt."


def check_sub_folders(root, folder, order):
    """The sub-folders of a folder include each other one way only."""
    for path in sorted(p for p in (root / "src" / folder).rglob("*") if p.suffix in SOURCES):
        place = path.relative_to(root)
        own = place.parts[2]  # src/<folder>/<sub-folder>/...
        if own not in order:
            yield f"{place}: it lies in no sub-folder of {folder}/ that src/layers.txt names."
            continue
        for number, quoted, target in includes(path):
            parts = target.split("/")
            if not quoted or parts[0] != folder or len(parts) < 3 or parts[1] not in order:
                continue
            if order.index(parts[1]) > order.index(own):
                yield (f"{place}:{number}: {folder}/{own}/ includes {target}, and {parts[1]}/ stands behind it in "
                       "src/layers.txt.")


def check_cmake(root, layers):
    """The build's own list of pure folders must say the same as layers.txt."""
    pure = [folder for folder, (_, is_pure, _) in layers.items() if is_pure]
    for name in ("src/CMakeLists.txt", "tests/CMakeLists.txt"):
        path = root / name
        for match in PURE_LIST.finditer(path.read_text() if path.exists() else ""):
            if match[1].split() != pure:
                yield f"{name}: pure_folders is '{match[1]}', src/layers.txt says '{' '.join(pure)}'."


def check(root):
    layers = read_layers(root)
    tainted = headers_with_torch(root)
    breaches = []
    for path in sorted((root / "src").iterdir()):
        if path.is_dir() and path.name not in layers and any(p.suffix in SOURCES for p in path.rglob("*")):
            breaches.append(f"src/{path.name}: this folder has no line in src/layers.txt.")
    for folder in layers:
        breaches += check_folder(root, folder, layers, tainted)
        if layers[folder][2]:
            breaches += check_sub_folders(root, folder, layers[folder][2])
    breaches += check_public(root)
    breaches += check_cmake(root, layers)
    return breaches


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    breaches = check(root)
    print("\n".join(breaches) or "layers: no breach")
    sys.exit(1 if breaches else 0)
