"""Draws the plots of README.md and docs/ as SVG, from the tables of bench/results/.

    plots.py            draws all that plots.json names
    plots.py --check    draws them in memory, and exits with 1 where a file differs

plots.json says which bars there are: file, section, column and row of a table. It holds no number: every figure and the date are
read from the result file when the plot is drawn.
"""

import html
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLORS = {"ours": "#1769aa", "base": "#8a97a3", "peer": "#d9822b"}
WIDTH, LEFT, RIGHT, ROW, TOP = 860, 240, 190, 34, 74
FONT = "font-family=\"-apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif\""


class Mistake(Exception):
    """What plots.json asks for and the results do not have."""


def plain(cell):
    return cell.replace("**", "").strip()


def tables_of(text, section):
    """The tables below a heading, each as (columns, rows). An empty section: those above the first heading of level 2."""
    lines, inside, found, block = text.splitlines(), section == "", [], []
    for line in [*lines, ""]:
        if line.startswith("## "):
            inside = line[3:].strip() == section
        if inside and line.startswith("|"):
            block.append([plain(cell) for cell in line.strip().strip("|").split("|")])
        elif block:
            found.append((block[0], block[2:]))
            block = []
    return found


def cell_of(tables, row, column, where):
    """The one cell of a column whose row begins with these cells."""
    hits = []
    for columns, rows in tables:
        if column in columns:
            hits += [cells[columns.index(column)] for cells in rows if cells[: len(row)] == row]
    if len(hits) != 1:
        how_many = "no table has" if not hits else f"{len(hits)} rows are"
        raise Mistake(f"[{where}] {how_many} the row {' | '.join(row)} and the column {column}. Name section and table so that one is.")
    return hits[0]


def number_in(cell, where):
    match = re.search(r"\d[\d,]*(?:\.\d+)?", cell)
    if not match:
        raise Mistake(f"[{where}] '{cell}' has no number in it.")
    return match.group()


def draw(plot, text):
    """The SVG of one plot, whose numbers are those of the result file's text."""
    where = plot["source"]
    tables = tables_of(text, plot["section"])
    if "table" in plot:
        tables = tables[plot["table"] : plot["table"] + 1]
    date = re.search(r"20\d\d-\d\d-\d\d", text)
    if not date:
        raise Mistake(f"[{where}] has no date.")
    bars = []
    for bar in plot["bars"]:
        figure = number_in(cell_of(tables, bar["row"], bar.get("column", plot["column"]), where), where)
        note = cell_of(tables, bar["row"], plot["note"], where) + " of the GPU" if "note" in plot else ""
        bars.append((bar["label"], figure, note, COLORS[bar["color"]]))
    return svg(plot["title"], plot["subtitle"].format(date=date.group()), bars)


def svg(title, subtitle, bars):
    longest = max(float(figure.replace(",", "")) for _, figure, _, _ in bars)
    height = TOP + ROW * len(bars) + 14
    said = "; ".join(f"{label}: {figure}" for label, figure, _, _ in bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" {FONT}>',
        f"<title>{html.escape(title)}</title>",
        f"<desc>{html.escape(said)}</desc>",
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
        f'<text x="20" y="30" font-size="17" font-weight="600" fill="#1b2733">{html.escape(title)}</text>',
        f'<text x="20" y="52" font-size="12.5" fill="#54626f">{html.escape(subtitle)}</text>',
    ]
    for index, (label, figure, note, color) in enumerate(bars):
        y = TOP + index * ROW
        width = (WIDTH - LEFT - RIGHT) * float(figure.replace(",", "")) / longest
        lines += [
            f'<text x="{LEFT - 10}" y="{y + 16}" font-size="13.5" text-anchor="end" fill="#1b2733">{html.escape(label)}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="22" rx="2" fill="{color}"/>',
            f'<text x="{LEFT + width + 8:.1f}" y="{y + 16}" font-size="13.5" fill="#1b2733"><tspan font-weight="600">{figure}</tspan>'
            + (f'<tspan font-size="12" fill="#54626f">  {html.escape(note)}</tspan>' if note else "")
            + "</text>",
        ]
    return "\n".join([*lines, "</svg>", ""])


def draw_all(root=ROOT):
    """{path: SVG} of all plots."""
    return {plot["out"]: draw(plot, (root / plot["source"]).read_text()) for plot in json.loads((root / "bench/plots.json").read_text())}


def differences(root=ROOT):
    drawn = draw_all(root)
    wrong = [path for path, text in drawn.items() if not (root / path).exists() or (root / path).read_text() != text]
    wrong += [path.relative_to(root).as_posix() for path in sorted((root / "docs/images").glob("*.svg"))
              if path.relative_to(root).as_posix() not in drawn]
    return [f"{path} is not what bench/results/ says. Run bench/plots.py." for path in wrong]


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["--check"]:
            found = differences()
            print("\n".join(found) or "plots: as bench/results/ has them")
            sys.exit(1 if found else 0)
        for path, text in draw_all().items():
            (ROOT / path).write_text(text)
            print(path)
    except Mistake as mistake:
        sys.exit(str(mistake))
