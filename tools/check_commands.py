"""Checks that each command that README.md and the guides show runs in a test, or says why not.

    check_commands.py [repository]

A fenced block names its language. A block of commands is `sh`, and the line above it is one of:

    <!-- run -->                          tests/docs/commands_test.py runs the block as it stands
    <!-- run, quickly with --steps 3 -->  so with SHOAL_TEST_SIZE=whole; otherwise with these --steps
    <!-- run whole -->                    with SHOAL_TEST_SIZE=whole alone
    <!-- tested by FILE NAME -->          that test runs the same; it must be there
    <!-- not run: reason -->

Blocks of one document run in its order in one folder. Blocks of Python and JSON must parse. Prints each breach, and exits with 1 when there is one.
"""

import ast
import json
import re
import sys
from pathlib import Path

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "docs/**/*.md"]
FENCE = re.compile(r"^(\s*)```(.*)$")
MARK = re.compile(r"^\s*<!-- (?:(?P<run>run)|run, quickly with --steps (?P<steps>\d+)|(?P<whole>run whole)"
                  r"|tested by (?P<file>\S+) (?P<name>\S.*)|not run: (?P<reason>\S.*)) -->$")


class Block:
    def __init__(self, path, number, language, mark, text):
        self.path, self.number, self.language, self.mark, self.text = path, number, language, mark, text


def blocks_of(path):
    """The fenced blocks of a document, each with the line above it that is not empty."""
    lines, above, index = path.read_text().splitlines(), "", 0
    while index < len(lines):
        fence = FENCE.match(lines[index])
        if not fence:
            above = lines[index] if lines[index].strip() else above
            index += 1
            continue
        end = next((i for i in range(index + 1, len(lines)) if lines[i].strip() == "```"), len(lines))
        text = "\n".join(line.removeprefix(fence[1]) for line in lines[index + 1 : end]) + "\n"
        yield Block(path, index + 1, fence[2].strip(), above, text)
        above, index = "", end + 1


def documents(root):
    return sorted({path for pattern in DOCUMENTS for path in root.glob(pattern)})


def holds_test(text, suffix, name):
    """Whether a file has a test of that name; of a script: the words."""
    if suffix == ".py":
        return re.search(rf"def {re.escape(name)}\(", text) is not None
    if suffix == ".cpp":
        return re.search(rf"^TEST(?:_[FP])?\(\w+, {re.escape(name)}\)", text, re.M) is not None
    return name in text


def wrong_with(block, root):
    if not block.language:
        return "has no language: sh for commands, text for what they print."
    if block.language in ("python", "json"):
        try:
            ast.parse(block.text) if block.language == "python" else json.loads(block.text)
        except (SyntaxError, ValueError) as error:
            return f"is no {block.language}: {error}."
    if block.language != "sh":
        return None
    mark = MARK.match(block.mark)
    if not mark:
        return "shows commands that no test runs. Say above it which does, or why not: see tools/check_commands.py."
    if mark["steps"] and "--steps " not in block.text:
        return "has no --steps that could be fewer."
    if mark["file"]:
        test = root / mark["file"]
        if not test.is_file():
            return f"is tested by {mark['file']}, which is not there."
        if not holds_test(test.read_text(), test.suffix, mark["name"]):
            return f"is tested by {mark['name']}, which {mark['file']} does not have."
    return None


def check(root):
    breaches = []
    for path in documents(root):
        for block in blocks_of(path):
            wrong = wrong_with(block, root)
            if wrong:
                breaches.append(f"{path.relative_to(root).as_posix()}:{block.number}: the block {wrong}")
    return breaches


if __name__ == "__main__":
    breaches = check(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve())
    print("\n".join(breaches) or "commands: each runs in a test, or says why not")
    sys.exit(1 if breaches else 0)
