"""Checks that the folders of src/ include each other one way only, and that the pure ones see no torch.

    check_layers.py [repository]

src/layers.txt gives the order: a file may include its own folder and those above it, and each folder with sources has a
line, sub-folders too. A pure folder sees no torch header, neither by itself nor through anything that it includes. Public
headers (include/shoal) may be included from anywhere, and include only each other, the standard library, and
ATen/core/Tensor.h and Generator.h. torch/csrc/distributed is for comm/ alone. Prints each breach as file:line and exits
with 1 when there is one.
"""

import re
import sys
from pathlib import Path, PurePosixPath

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
SOURCES = {".h", ".cpp", ".inc", ".cu", ".cuh"}
TORCH = re.compile(r"^(ATen|c10|torch|caffe2)/")
PUBLIC_TORCH = {"ATen/core/Generator.h", "ATen/core/Tensor.h"}
C10D = "torch/csrc/distributed/"
C10D_FOLDER = "comm"
STAND_INS = "comm/host/gloo_stubs"  # headers named as gloo names them; comm/host's


class Tree:
    """The sources of a repository: their layers and their includes."""

    def __init__(self, root):
        self.root = root
        self.layers = self._read_layers()  # {line: (position, is_pure)}
        self.tops = {line.split("/")[0] for line in self.layers}
        self._includes = {}

    def _read_layers(self):
        layers = {}
        for line in (self.root / "src/layers.txt").read_text().splitlines():
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or words[1] not in ("pure", "torch"):
                raise SystemExit(f"[src/layers.txt] '{line}' is not '<folder> pure' or '<folder> torch'.")
            layers[words[0]] = (len(layers), words[1] == "pure")
        return layers

    def layer_of(self, name):
        """The line of layers.txt that a file belongs to, by its path below src/; None: it has none."""
        path = PurePosixPath(name)
        if path.is_relative_to(STAND_INS):
            return str(PurePosixPath(STAND_INS).parent)
        for line in (str(path), str(path.parent)):
            if line in self.layers:
                return line
        return None

    def is_pure(self, name):
        line = self.layer_of(name)
        return line is not None and self.layers[line][1]

    def includes(self, path):
        """Each include of a file, as (line number, is_quoted, target)."""
        if path not in self._includes:
            text = path.read_text(errors="replace")
            self._includes[path] = [(text.count("\n", 0, match.start(2)) + 1, match[1] == '"', match[2])
                                    for match in INCLUDE.finditer(text)]
        return self._includes[path]

    def path_of(self, target):
        """The file of ours that an include names; None: it is not ours."""
        path = self.root / ("include" if target.startswith("shoal/") else "src") / target
        return path if path.is_file() else None

    def way_to_torch(self, target):
        """The includes from `target` to the first torch header that it brings along, itself first; None: it brings none."""
        ways, seen = [[target]], {target}
        for way in ways:  # grows meanwhile: the shortest come first
            if TORCH.match(way[-1]):
                return way
            path = self.path_of(way[-1])
            for _, _, further in self.includes(path) if path else []:
                if further not in seen:
                    seen.add(further)
                    ways.append([*way, further])
        return None

    def sources(self):
        """The files below src/, each as (path, its name below src/)."""
        for path in sorted((self.root / "src").rglob("*")):
            if path.suffix in SOURCES:
                yield path, path.relative_to(self.root / "src").as_posix()


def check_public(tree):
    for path in sorted((tree.root / "include/shoal").glob("*.h")):
        place = path.relative_to(tree.root)
        for number, quoted, target in tree.includes(path):
            if quoted:
                if not target.startswith("shoal/"):
                    yield f"{place}:{number}: a public header includes \"{target}\", which is not public."
                elif tree.path_of(target) is None:
                    yield f"{place}:{number}: \"{target}\" does not exist."
            elif "/" in target and target not in PUBLIC_TORCH:
                allowed = ", ".join(sorted(PUBLIC_TORCH))
                yield f"{place}:{number}: a public header includes <{target}>. Beside the standard library: {allowed}."


def check_torch(tree, name, target):
    """Breaches of one include as for torch. A way that leads through another pure file is that file's breach."""
    folder = tree.layer_of(name)
    if TORCH.match(target):
        if tree.is_pure(name):
            yield f"{folder}/ is pure and includes {target}."
        elif target.startswith(C10D) and name.split("/")[0] != C10D_FOLDER:
            yield f"{target} is c10d; only {C10D_FOLDER}/ may include it."
    elif tree.is_pure(name) and not tree.is_pure(target):
        way = tree.way_to_torch(target)
        if way:
            yield f"{folder}/ is pure, and {target} brings torch along: {' > '.join(way)}."


def check_order(tree, name, target):
    """Breaches of one quoted include as for the order of folders."""
    folder, other = tree.layer_of(name), tree.layer_of(target)
    if target.startswith("shoal/"):
        if tree.path_of(target) is None:
            yield f"\"{target}\" does not exist."
    elif "/" not in target or target.split("/")[0] not in tree.tops:
        yield f"\"{target}\" is not rooted at src/ (write \"<folder>/<file>\")."
    elif tree.path_of(target) is None:
        yield f"\"{target}\" does not exist."
    elif other is not None and tree.layers[other][0] > tree.layers[folder][0]:
        yield f"{folder}/ includes {target}, and {other} stands below it in src/layers.txt."


def check(root):
    tree = Tree(root)
    breaches = []
    used = set()
    for path, name in tree.sources():
        folder = tree.layer_of(name)
        if folder is None:
            breaches.append(f"src/{name}: its folder has no line in src/layers.txt.")
            continue
        used.add(folder)
        for number, quoted, target in tree.includes(path):
            found = [*check_torch(tree, name, target), *(check_order(tree, name, target) if quoted else [])]
            breaches += [f"src/{name}:{number}: {text}" for text in found]
    breaches += [f"src/layers.txt: {line} has no sources." for line in tree.layers if line not in used]
    breaches += check_public(tree)
    return breaches


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    breaches = check(root)
    print("\n".join(breaches) or "layers: no breach")
    sys.exit(1 if breaches else 0)
