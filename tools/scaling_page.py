"""Writes the tables and the plot of docs/scaling.md from what `shoal plan --search --json` says.

    scaling_page.py SHOAL [FIT]

SHOAL is the program, FIT bench_step_time_fit, without which the table of errors stays as it is. Each part of the page stands
between <!-- NAME --> and <!-- end of NAME -->; the plot is docs/scaling.svg.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = {"llama-7b": "Llama-2 7B", "llama-2-70b": "Llama-2 70B", "llama-405b": "Llama-3.1 405B"}
GPUS = [8, 64, 512, 4096]
NETWORKS = [400, 3200]
SEQUENCE = 4096
BATCH = 2  # samples a GPU, at most

# Columns of the tables: a name, the fold group of the config, and which candidates it is the best of.
FORMS = {
    "stage 1": (0, lambda of: of["stage"] == 1 and of["sharding"] == "all ranks" and of["reduce"] == "nccl"),
    "stage 2": (0, lambda of: of["stage"] == 2 and of["sharding"] == "all ranks" and of["reduce"] == "nccl"),
    "stage 3": (0, lambda of: of["stage"] == 3 and of["sharding"] == "all ranks" and of["reduce"] == "exact"),
    "stage 3, NCCL adds": (0, lambda of: of["stage"] == 3 and of["sharding"] == "all ranks" and of["reduce"] == "nccl"),
    "hpZ of 8": (0, lambda of: of["stage"] == 3 and of["sharding"] == "hpZ of 8" and of["reduce"] == "exact"),
    "groups of 8": (0, lambda of: of["stage"] == 3 and of["sharding"] == "groups of 8" and of["reduce"] == "exact"),
    "hpZ of 8, folded by 8": (8, lambda of: of["stage"] == 3 and of["sharding"] == "hpZ of 8"),
    "groups of 8, folded by 8": (8, lambda of: of["stage"] == 3 and of["sharding"] == "groups of 8"),
}
LINES = [("stage 3", 3200, "#1b6ca8", ""), ("stage 3", 400, "#1b6ca8", "5 3"), ("stage 3, NCCL adds", 400, "#c0392b", "5 3"),
         ("hpZ of 8, folded by 8", 400, "#2e8b57", "5 3"), ("groups of 8, folded by 8", 400, "#8e5ea2", "5 3")]


def search(shoal, model, gpus, network, fold_group, cache):
    key = (model, gpus, network, fold_group)
    if key not in cache:
        command = [shoal, "plan", "--search", "--json", "--model", model, "--cluster", "H100", "--hosts", str(gpus // 8),
                   "--network", str(network), "--sequence", str(SEQUENCE), "--max-batch", str(BATCH)]
        if fold_group:
            command += ["--set", f"shoal.fold_group={fold_group}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in (0, 3):
            sys.exit(done.stderr)
        cache[key] = json.loads(done.stdout)
    return cache[key]


def best(shoal, model, gpus, network, form, cache):
    """The fastest candidate of a form. On one host the library's sum costs what the exact one does, and is not searched."""
    fold_group, takes = FORMS[form]
    found = search(shoal, model, gpus, network, fold_group, cache)
    candidates = [of for of in found["candidates"] if not of["offloaded"] and
                  (takes(of) or gpus == 8 and takes({**of, "reduce": "nccl"}))]
    return max(candidates, key=lambda of: of["tokens_per_second"], default=None)


def cell(of):
    if of is None:
        return "–"
    return f"{of['tokens_per_second_per_gpu']:,.0f} ({100 * of['mfu']:.0f} %)"


def table(shoal, model, network, cache):
    lines = [f"**{MODELS[model]}, {network} Gb/s a host**", "",
             "| GPUs | " + " | ".join(FORMS) + " |", "|---:|" + "---:|" * len(FORMS)]
    for gpus in GPUS:
        cells = [cell(best(shoal, model, gpus, network, form, cache)) for form in FORMS]
        lines.append(f"| {gpus:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(shoal, cache):
    width, height, left, top, gap = 300, 220, 52, 46, 40
    panels = []
    for column, model in enumerate(MODELS):
        x0 = left + column * (width + gap)

        def at(gpus, mfu, x0=x0):
            step = GPUS.index(gpus) / (len(GPUS) - 1)
            return x0 + step * width, top + height * (1 - mfu / 0.6)

        panels.append(f'<text x="{x0 + width / 2}" y="{top - 12}" text-anchor="middle" font-weight="bold">{MODELS[model]}</text>')
        for percent in range(0, 61, 10):
            y = at(8, percent / 100)[1]
            panels.append(f'<line x1="{x0}" x2="{x0 + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
            if column == 0:
                panels.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>')
        for gpus in GPUS:
            panels.append(f'<text x="{at(gpus, 0)[0]:.1f}" y="{top + height + 16}" text-anchor="middle">{gpus:,}</text>')
        for form, network, colour, dash in LINES:
            points = []
            for gpus in GPUS:
                of = best(shoal, model, gpus, network, form, cache)
                if of is not None:
                    points.append("{:.1f},{:.1f}".format(*at(gpus, min(of["mfu"], 0.6))))
            panels.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2" '
                          f'stroke-dasharray="{dash}"/>')
    legend = []
    for place, (form, network, colour, dash) in enumerate(LINES):
        x, y = left + (place % 3) * 330, top + height + 44 + (place // 3) * 20
        legend.append(f'<line x1="{x}" x2="{x + 30}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
        legend.append(f'<text x="{x + 38}" y="{y + 4}">{form}, {network} Gb/s a host</text>')
    total = left + len(MODELS) * (width + gap)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{top + height + 84}" '
            f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
            f'<text x="{left}" y="16">MFU by GPUs (H100, 8 a host, {SEQUENCE} tokens a sample, up to {BATCH} samples a GPU)</text>'
            + "".join(panels) + "".join(legend) + "</svg>\n")


def put(page, name, text):
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if begin not in page or end not in page:
        sys.exit(f"docs/scaling.md has no part {begin} ... {end}")
    return page[:page.index(begin)] + f"{begin}\n{text}\n" + page[page.index(end):]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    shoal = sys.argv[1]
    cache = {}
    path = ROOT / "docs/scaling.md"
    page = path.read_text()
    tables = [table(shoal, model, network, cache) for model in MODELS for network in NETWORKS]
    page = put(page, "tables", "\n\n".join(tables))
    (ROOT / "docs/scaling.svg").write_text(plot(shoal, cache))
    if len(sys.argv) > 2:
        fit = subprocess.run([sys.argv[2], ROOT / "bench/step_times.json"], capture_output=True, text=True, check=True)
        page = put(page, "errors", re.sub(r"(?m)^([A-Z][^|\n]*: median .*)$", r"**\1**", fit.stdout[fit.stdout.index("\nPoints of the fit"):]).strip())
    path.write_text(page)


if __name__ == "__main__":
    main()
