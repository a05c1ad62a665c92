"""Lists the modules of a DeepSpeed and the names in them, for python/deepspeed/names.txt.

    list_deepspeed_names.py FOLDER... > python/deepspeed/names.txt     of unpacked source distributions, the newest first

Of an older one modules are listed that the newer ones have no more: scripts import them still. The list here is of 0.19.8 and
0.18.9.

Reads sources and runs nothing. The grammar of what it prints:
    list    := comment* (module line*)*
    module  := "deepspeed.x.y" | "deepspeed.x.y/"      with a slash: a package
    line    := " " name*                               classes, functions and values that are defined there
             | " " name " = " literal                  a constant, with its value
             | " < " module " " (name | name ":" alias | "*")*      names that come from another module: what a package
                                                                    re-exports, and what any module takes by a star
"""

import ast
import sys
import textwrap
from pathlib import Path

WIDTH = 120
LONGEST = 60  # of a constant's text; longer ones are prose


class Names:
    """What the top level of a module binds."""

    def __init__(self, module, is_package, tree):
        self.module, self.is_package = module, is_package
        self.plain, self.constants, self.imported = {}, {}, {}
        self.visit(tree.body)
        for name in self.constants.keys() & self.plain.keys():
            del self.constants[name]

    def visit(self, body):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.plain[node.name] = True
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    self.assign(target, node.value)
            elif isinstance(node, ast.AnnAssign):
                self.assign(node.target, node.value)
            elif isinstance(node, ast.ImportFrom):
                self.take(node)
            elif isinstance(node, (ast.If, ast.Try, ast.With)):
                for part in (node.body, getattr(node, "orelse", []), getattr(node, "finalbody", [])):
                    self.visit(part)
                for handler in getattr(node, "handlers", []):
                    self.visit(handler.body)

    def assign(self, target, value):
        for each in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            if not isinstance(each, ast.Name):
                continue
            is_constant = each is target and isinstance(value, ast.Constant) and isinstance(value.value, (str, int, float))
            if is_constant and len(repr(value.value)) <= LONGEST and each.id not in self.constants:
                self.constants[each.id] = repr(value.value)
            else:
                self.plain[each.id] = True

    def take(self, node):
        source = node.module or ""
        if node.level:
            parents = self.module.split(".")
            parents = parents[: len(parents) - node.level + self.is_package]
            source = ".".join([*parents, *([source] if source else [])])
        if source.split(".")[0] == "deepspeed":
            names = [f"{each.name}:{each.asname}" if each.asname else each.name for each in node.names]
            if self.is_package or names == ["*"]:
                self.imported.setdefault(source, []).extend(names)

    def lines(self):
        yield self.module + ("/" if self.is_package else "")
        own = sorted(name for name in self.plain if not name.startswith("__"))
        yield from textwrap.wrap(" ".join(own), WIDTH, initial_indent=" ", subsequent_indent=" ", break_on_hyphens=False)
        yield from (f" {name} = {value}" for name, value in sorted(self.constants.items()) if not name.startswith("_"))
        for source, names in sorted(self.imported.items()):
            head = f" < {source} "
            yield from textwrap.wrap(" ".join(dict.fromkeys(names)), WIDTH, initial_indent=head, subsequent_indent=head)


def main(folders):
    found = {}
    for root in (Path(folder) / "deepspeed" for folder in folders):
        for path in root.rglob("*.py"):
            parts = path.relative_to(root.parent).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            module = ".".join(parts[:-1] if is_package else parts)
            if module not in found:
                found[module] = Names(module, is_package, ast.parse(path.read_text()))
    for module in list(found):  # folders without an __init__.py are packages too
        while "." in module:
            module = module.rpartition(".")[0]
            found.setdefault(module, Names(module, True, ast.parse("")))
    print("# Modules and names of DeepSpeed, by tools/list_deepspeed_names.py, which has the grammar. Read by absent_names.py.")
    for _, names in sorted(found.items()):
        print("\n".join(names.lines()))


if __name__ == "__main__":
    main(sys.argv[1:])
