"""Checks that the Python packages are built in layers: no circle of imports, and no module over 500 lines.

    check_python.py [repository]

Every import counts, at the top of a module, inside a function, under TYPE_CHECKING, and importlib.import_module of a name that
is written out: one that is put off only hides a circle. `from a import b` is an import of the module a.b where there is one,
else of a. Whoever imports a.b from outside the package a imports a too, whose __init__ runs first. A module's own packages
are there before it, and count where it names them. Prints each breach and exits with 1 when there is one.
"""

import ast
import sys
from pathlib import Path

PACKAGES = ("shoal", "deepspeed", "shoal_command")
LIMIT_LINES = 500


def find_modules(root):
    """{name: path} of all modules; a stub (.pyi) stands for a module that is compiled."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / "python" / package).rglob("*.py*")):
            if path.suffix in (".py", ".pyi"):
                parts = path.relative_to(root / "python").with_suffix("").parts
                found.setdefault(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path)
    return found


def parents(name):
    """"a.b.c": ["a.b", "a"]."""
    words = name.split(".")
    return [".".join(words[:count]) for count in range(len(words) - 1, 0, -1)]


def imported(node, name, is_package):
    """The dotted names that a node of a module's tree imports, each as (what, whether its last word may be no module)."""
    if isinstance(node, ast.Import):
        return [(each.name, False) for each in node.names]
    if isinstance(node, ast.ImportFrom):
        here = [name, *parents(name)][node.level - (1 if is_package else 0)] if node.level else ""
        base = ".".join(word for word in (here, node.module) if word)
        return [(f"{base}.{each.name}", True) for each in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "import_module"):
        return [(arg.value, False) for arg in node.args[:1] if isinstance(arg, ast.Constant)]
    return []


def imports_of(name, path, modules):
    """{module: line} of what a module imports of ours."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        for target, may_be_no_module in imported(node, name, path.stem == "__init__"):
            if target not in modules and may_be_no_module:
                target = target.rpartition(".")[0]
            if target not in modules:
                continue
            around = [each for each in parents(target) if each != name and each not in parents(name)]
            for each in (target, *around):
                if each != name:
                    found.setdefault(each, node.lineno)
    return found


def find_circles(graph):
    """A shortest circle through some module of each set that import each other, as a list of names."""
    reached = {name: _reach(graph, name) for name in graph}
    circles, seen = [], set()
    for name in sorted(graph):
        if name in reached[name] and name not in seen:
            seen |= {other for other in reached[name] if name in reached[other]}
            circles.append(_shortest(graph, name))
    return circles


def _reach(graph, start):
    found, left = set(), [start]
    while left:
        more = [each for each in graph[left.pop()] if each not in found]
        found.update(more)
        left += more
    return found


def _shortest(graph, start):
    paths = [[start]]
    seen = set()
    while True:
        path = paths.pop(0)
        for each in sorted(graph[path[-1]]):
            if each == start:
                return path
            if each not in seen:
                seen.add(each)
                paths.append([*path, each])


def check(root):
    modules = find_modules(root)
    graph = {name: imports_of(name, path, modules) for name, path in modules.items()}
    breaches = []
    for circle in find_circles(graph):
        steps = [
            f"{modules[name].relative_to(root)}:{graph[name][next_one]} imports {next_one}"
            for name, next_one in zip(circle, [*circle[1:], circle[0]])
        ]
        breaches.append(f"a circle of imports: {', '.join(steps)}. Put what they share into a module below them.")
    for path in modules.values():
        count = len(path.read_text().splitlines())
        if count > LIMIT_LINES:
            breaches.append(f"{path.relative_to(root)}: {count} lines, and {LIMIT_LINES} at most. Look for the second thing inside.")
    return breaches


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    breaches = check(root)
    print("\n".join(breaches) or "python: no breach")
    sys.exit(1 if breaches else 0)
