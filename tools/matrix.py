"""Builds and tests Shoal against each torch that cmake/TorchWheel.cmake names, each in an environment of its own, and keeps what came of it.

    matrix.py                whole: every minor version, its last patch. Hours on two cores
    matrix.py 2.15 [...]     these
    matrix.py --parts unit   of unit, ranks, python only these; building always
    matrix.py --headers 2.15 only compile against that torch's headers (tools/torch_headers.py)
    matrix.py --table        only write the table of docs/install.md from docs/torch_matrix.json; --check: exits with 1 where it differs

The environment is .venv-torch-2.15: that torch, and of requirements.lock all that is not torch's own. The build is of the last commit, in
build/matrix/2.15, where nothing of the checkout's is touched.
"""

import argparse
import datetime
import json
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FACTS = "docs/torch_matrix.json"
TABLE = "docs/install.md"
BEGIN, END = "<!-- made by tools/matrix.py from docs/torch_matrix.json -->", "<!-- end of the matrix -->"
COLUMNS = {"headers": "compiles", "build": "builds and links", "unit": "unit tests", "ranks": "ranks tests", "python": "Python tests", "when": "when, where"}
TORCHS_OWN = re.compile(r"^(torch|triton|nvidia-|cuda-)")
PARTS = {"unit": ["-L", "unit"], "ranks": ["-L", "ranks"], "python": ["-R", "^python_"]}
TARGETS = {"unit": ["tests_unit"], "ranks": ["tests_ranks"], "python": ["shoal_python", "shoal_cli"]}


def minors(root=ROOT):
    text = (root / "cmake/TorchWheel.cmake").read_text()
    oldest, newest = (int(re.search(rf"^set\(SHOAL_TORCH_{name} 2\.(\d+)\)", text, re.M)[1]) for name in ("OLDEST", "NEWEST"))
    return [f"2.{minor}" for minor in range(oldest, newest + 1)]


def table(facts, known):
    rows = {row["torch"]: row for row in facts}
    lines = ["| torch | " + " | ".join(COLUMNS.values()) + " |", "|---|" + "---|" * len(COLUMNS)]
    for minor in known:
        lines.append(f"| {minor} | " + " | ".join(rows.get(minor, {}).get(name) or "not tried" for name in COLUMNS) + " |")
    return "\n".join(lines)


def with_table(text, facts, known):
    head, _, rest = text.partition(BEGIN)
    if not rest or END not in rest:
        raise SystemExit(f"[matrix] {TABLE} has no place for the table: {BEGIN} ... {END}")
    return f"{head}{BEGIN}\n\n{table(facts, known)}\n\n{END}{rest.partition(END)[2]}"


def outcome(log):
    """What ctest said, in words: 'all 35', '1 of 35 failed (x)', with those that were skipped."""
    match = re.search(r"(\d+)% tests passed, (\d+) tests failed out of (\d+)", log)
    if not match:
        return "did not run"
    failed = re.findall(r"^\s+\d+ - (\S+) \((?!Skipped)", log, re.M)
    skipped = len(re.findall(r"\*\*\*Skipped", log))
    ran = int(match[3]) - skipped
    words = f"all {ran} programs" if match[2] == "0" else f"{match[2]} of {ran} programs failed ({', '.join(failed)})"
    return words + (f", {skipped} skipped" if skipped else "")


def run(words, log, **settings):
    with open(log, "a") as file:
        file.write(f"$ {' '.join(map(str, words))}\n")
        file.flush()
        return subprocess.run([str(word) for word in words], stdout=file, stderr=subprocess.STDOUT, **settings).returncode


def environment_for(minor, log):
    folder = ROOT / f".venv-torch-{minor}"
    python = folder / "bin/python3"
    if not (folder / ".ready").exists():
        rest = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if line.split("#")[0].strip() and not TORCHS_OWN.match(line)]
        wanted = ROOT / f"build/matrix/{minor}-requirements.txt"
        wanted.write_text("\n".join(rest) + "\n")
        for words in ([sys.executable, "-m", "venv", "--clear", folder], [python, "-m", "pip", "install", "-q", f"torch=={minor}.*"],
                      [python, "-m", "pip", "install", "-q", "--no-deps", "-r", wanted]):
            if run(words, log):
                return None
        (folder / ".ready").touch()
    return folder


def try_one(minor, parts):
    """The facts of one version; stops at the first thing that fails."""
    source = ROOT / f"build/matrix/{minor}"
    source.parent.mkdir(parents=True, exist_ok=True)
    log = source.parent / f"{minor}.log"
    log.write_text("")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    facts = {"torch": minor, "when": f"{datetime.date.today()}, {platform.machine()}, commit {commit}"}
    environment = environment_for(minor, log)
    if environment is None:
        return facts | {"build": f"torch {minor} could not be installed"}
    shutil.rmtree(source, ignore_errors=True)  # files that the commit no longer has
    source.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    (source / ".venv").symlink_to(environment)
    jobs = subprocess.run([ROOT / "tools/jobs.sh"], capture_output=True, text=True, check=True).stdout.strip()
    targets = [target for part in parts for target in TARGETS[part]]
    if run(["cmake", "--preset", "dev"], log, cwd=source) or run(["cmake", "--build", "--preset", "dev", "-j", jobs, "--target", *targets], log, cwd=source):
        return facts | {"build": "no"}
    facts |= {"headers": "yes", "build": "yes"}
    for part in parts:
        done = subprocess.run(["ctest", "--preset", "dev", "-j", jobs, *PARTS[part]], cwd=source, capture_output=True, text=True)
        log.write_text(log.read_text() + done.stdout + done.stderr)
        facts[part] = outcome(done.stdout)
    return facts


def keep(new, root=ROOT):
    """Puts facts in place of what was known of that version: a trial of a commit replaces all, one of headers the headers alone."""
    rows = {row["torch"]: row for row in json.loads((root / FACTS).read_text())}
    rows[new["torch"]] = new if "when" in new else {**rows.get(new["torch"], {}), **new}
    known = minors(root)
    ordered = [{name: rows[minor].get(name, "") for name in ("torch", *COLUMNS)} for minor in sorted(rows, key=lambda each: int(each.split(".")[1]))]
    (root / FACTS).write_text("[\n" + ",\n".join("  " + json.dumps(row) for row in ordered) + "\n]\n")
    (root / TABLE).write_text(with_table((root / TABLE).read_text(), ordered, known))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("minors", nargs="*")
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=list(PARTS))
    parser.add_argument("--headers", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text, facts = (ROOT / TABLE).read_text(), json.loads((ROOT / FACTS).read_text())
    if arguments.table or arguments.check:
        wanted = with_table(text, facts, minors())
        if arguments.check and wanted != text:
            raise SystemExit(f"[matrix] the table of {TABLE} is not what {FACTS} says. Run tools/matrix.py --table.")
        (ROOT / TABLE).write_text(wanted)
        return
    unknown = set(arguments.minors) - set(minors())
    if unknown:
        raise SystemExit(f"[matrix] Shoal builds against torch {minors()[0]} to {minors()[-1]}, not {', '.join(sorted(unknown))}. See cmake/TorchWheel.cmake.")
    for minor in arguments.minors or minors():
        if arguments.headers:
            done = subprocess.run([sys.executable, ROOT / "tools/torch_headers.py", "compile", minor])
            keep({"torch": minor, "headers": ("yes" if done.returncode == 0 else "no") + f", its headers, {datetime.date.today()}"})
        else:
            keep(try_one(minor, arguments.parts))
        print(f"[matrix] {table(json.loads((ROOT / FACTS).read_text()), [minor]).splitlines()[-1]}", flush=True)


if __name__ == "__main__":
    main()
