"""Checks that sources which are compiled as one text define no name twice.

    check_unity.py [repository]

`make test` compiles each file of tests/ranks/ alone; the sanitizers compile all of them together (cmake/Unity.cmake,
tests/CMakeLists.txt), so that a type that two files have in their nameless namespaces would show there only, half an hour later.
What is looked at are definitions that begin a line: types, constants, aliases, functions with the same parameters, tests.
Prints each breach and exits with 1 when there is one.
"""

import re
import sys
from pathlib import Path

TOGETHER = "tests/ranks/*_test.cpp"

SPACE = re.compile(r"^namespace ([\w:]+) \{")
TYPE = re.compile(r"^(?:template <[^>]*> )?(?:struct|class|enum class|enum) (\w+)[^;]*$")
ALIAS = re.compile(r"^using (\w+) =")
CONSTANT = re.compile(r"^(?:inline |static )?(?:constexpr|const) [^(]*?\b(\w+)(?:\[\w*\])? ?[={]")
FUNCTION = re.compile(r"^(?:template <[^>]*> )?[A-Za-z_][\w:<>,&* ]*[&*> ](\w+)\((.*)\)(?: const)? \{")
TEST = re.compile(r"^TEST(?:_[FP])?\((\w+), (\w+)\)")


def parameter_types(text):
    """The types of a list of parameters, without names and defaults: what tells overloads apart."""
    types, depth, part = [], 0, ""
    for character in text + ",":
        depth += (character in "<({") - (character in ">)}")
        if character == "," and depth == 0:
            types.append(re.sub(r"\s*\b\w+$", "", part.split(" = ")[0].strip()) if " " in part.strip() else part.strip())
            part = ""
        else:
            part += character
    return ", ".join(types)


def definitions(text):
    """What a source defines for itself, each as a text that two sources of one compilation may not share."""
    found, space = [], ""
    for line in text.splitlines():
        if match := SPACE.match(line):
            space = match[1]
        elif match := TEST.match(line):
            found.append(f"test {match[1]}.{match[2]}")
        elif match := TYPE.match(line) or ALIAS.match(line):
            found.append(f"type {space}::{match[1]}")
        elif match := CONSTANT.match(line):
            found.append(f"constant {space}::{match[1]}")
        elif match := FUNCTION.match(line):
            found.append(f"function {space}::{match[1]}({parameter_types(match[2])})")
    return found


def second_files(root):
    """The sources that are compiled apart, since a name of theirs is taken."""
    listed = re.search(r"set\(second_files(.*?)\)", (root / "cmake/Unity.cmake").read_text(), re.S)
    return set(listed[1].split())


def check(root):
    apart = second_files(root)
    breaches, owners = [], {}
    for path in sorted(root.glob(TOGETHER)):
        name = path.relative_to(root).as_posix()
        for definition in definitions(path.read_text()):
            owner = owners.setdefault((name in apart, definition), name)
            if owner != name:
                breaches.append(f"{name}: {definition} is in {owner} too, and sanitizers compile both together. Rename one.")
    return breaches


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    breaches = check(root)
    print("\n".join(breaches) or "unity: no breach")
    sys.exit(1 if breaches else 0)
