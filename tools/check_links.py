"""Checks that relative links and anchors of our documents lead somewhere.

    check_links.py [repository]

Links and images of all Markdown files, code apart: the file must be there, and for #anchor a heading of that name, as GitHub writes
it. Addresses with a scheme are not looked at. Prints each link that leads nowhere, and exits with 1 when there is one.
"""

import re
import sys
from pathlib import Path

DOCUMENTS = ["*.md", "src/*.md", "bench/*.md", "bench/results/*.md", "docs/**/*.md"]
FENCE = re.compile(r"^\s*(```|~~~)")
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")


def lines_without_code(text):
    """(number, line), fenced blocks left out and inline code emptied."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            yield number, re.sub(r"`[^`]*`", lambda code: "`" + "x" * (len(code.group()) - 2) + "`", line)


def slug(heading):
    """The anchor that GitHub gives a heading."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def slug_for_mkdocs(heading, _separator):
    """The same anchors in the documentation site."""
    return slug(heading)


def anchors_of(text):
    found, inside = {}, False
    for line in text.splitlines():
        if FENCE.match(line):
            inside = not inside
        match = None if inside else re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if match:
            name = slug(match[1])
            count = found.get(name, 0)
            found[name] = count + 1
            if count:
                found[f"{name}-{count}"] = 1
        found.update({name: 1 for name in re.findall(r'<a (?:id|name)="([^"]+)"', line)})
    return set(found)


def check(root):
    breaches = []
    for path in sorted({p for pattern in DOCUMENTS for p in root.glob(pattern)}):
        for number, line in lines_without_code(path.read_text()):
            for link in LINK.findall(line):
                if re.match(r"[a-z][a-z0-9+.-]*:", link):
                    continue
                place = f"{path.relative_to(root).as_posix()}:{number}"
                name, _, anchor = link.partition("#")
                target = path if not name else path.parent / name
                if not target.exists():
                    breaches.append(f"{place}: {link} leads to no file.")
                elif not target.resolve().is_relative_to(root):
                    breaches.append(f"{place}: {link} leads out of the repository.")
                elif anchor and (target.suffix != ".md" or anchor not in anchors_of(target.read_text())):
                    breaches.append(f"{place}: {link} has no such heading.")
    return breaches


if __name__ == "__main__":
    breaches = check(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve())
    print("\n".join(breaches) or "links: all lead somewhere")
    sys.exit(1 if breaches else 0)
