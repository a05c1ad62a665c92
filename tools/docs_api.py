"""Makes the pages of the C++ API from include/shoal/*.h, for tools/docs_site.py.

A page has what the header's first comment says, then each type, function and constant with its comment and its declaration. What is private
is left out. It reads the little C++ that headers of ours have: comments by //, one declaration at a time, braces that balance.
"""

import re
from dataclasses import dataclass

NAME = [
    (re.compile(r"^(?:template\s*<[^>]*>\s*)?(?:struct|class)\s+(?:\[\[[^\]]*\]\]\s*)?(\w+)"), "{}"),
    (re.compile(r"^enum\s+(?:class\s+)?(\w+)"), "{}"),
    (re.compile(r"^using\s+(\w+)"), "{}"),
    (re.compile(r"^(?:template\s*<.*?>\s*)?[^=;{(]*?\b(operator\S+|\w+)\s*\("), "{}()"),
    (re.compile(r"^(?:inline\s+)?(?:constexpr|const)\s[^=;{]*?\b(\w+)(?:\[\w*\])?\s*(?:=|\{)"), "{}"),
]


@dataclass
class Item:
    name: str
    comment: str  # Markdown
    code: str


def text_of(comment):
    """The lines of a // comment as Markdown: what is indented in it is code."""
    lines, out, in_code = [re.sub(r"^\s*// ?", "", line).rstrip() for line in comment], [], False
    for line in lines:
        is_code = line.startswith("  ")
        if is_code != in_code:
            out.append("```cpp" if is_code else "```")
            if not is_code:
                out.append("")
            in_code = is_code
        out.append(line[2:] if is_code else line.replace("<", "&lt;"))
    if in_code:
        out.append("```")
    return "\n".join(out).strip()


def declaration_from(lines, index):
    """The lines of a declaration that begins at index, and where the next begins."""
    depth, parens, end = 0, 0, index
    while end < len(lines):
        code = re.sub(r'"(?:\\.|[^"\\])*"|//.*', "", lines[end])
        depth += code.count("{") - code.count("}")
        parens += code.count("(") - code.count(")")
        end += 1
        if depth == 0 and parens == 0 and re.search(r"[;}]\s*$", code):
            break
    return lines[index:end], end


def public_part(code):
    """A class as its users see it."""
    kept, hidden = [], False
    for line in code:
        if re.match(r"\s*(private|protected):", line):
            hidden = True
        elif re.match(r"\s*public:", line):
            hidden = False
        if not hidden or re.match(r"^\};?", line):
            kept.append(line)
    while len(kept) > 1 and not kept[-2].strip():
        del kept[-2]
    return kept


def items_of(text):
    """(the header's first comment, [Item]) of a header."""
    lines = text.splitlines()
    first = []
    while lines and lines[0].startswith("//"):
        first.append(lines.pop(0))
    items, comment, index = [], [], 0
    while index < len(lines):
        line = lines[index]
        if line.startswith("//"):
            comment.append(line)
            index += 1
        elif not line.strip() or line.startswith("#") or re.match(r"^(namespace\b.*\{|\}\s*//\s*namespace.*|\})$", line):
            comment = [] if not line.strip() else comment
            index += 1
        elif re.match(r"^(class|struct|enum class)\s+\w+;", line):  # said ahead: no declaration of its own
            comment, index = [], index + 1
        else:
            code, index = declaration_from(lines, index)
            joined = " ".join(part.strip() for part in code)
            name = next((form.format(match[1]) for pattern, form in NAME if (match := pattern.match(joined))), None)
            if name == "static_assert()":
                comment = []
                continue
            if name is None:
                raise SystemExit(f"[docs] a declaration whose name is not found: {code[0]}")
            if items and items[-1].name == name:  # another form of the function above
                items[-1].code += "\n" + "\n".join([*comment, *public_part(code)])
            else:
                items.append(Item(name, text_of(comment), "\n".join(public_part(code))))
            comment = []
    return text_of(first), items


def page(name, text):
    first, items = items_of(text)
    parts = [f"# {name}\n", f"`#include \"shoal/{name}\"`\n", first + "\n"]
    for item in items:
        parts += [f"## {item.name}\n", item.comment + "\n" if item.comment else "", f"```cpp\n{item.code}\n```\n"]
    return "\n".join(part for part in parts if part)
