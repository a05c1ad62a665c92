"""Compiles what sees torch against the headers of another version, without making code: whether one source fits both, in minutes.

    torch_headers.py fetch 2.15 [...]      the newest wheel of each from PyPI, of which only the headers are read, into build/torch-headers
    torch_headers.py compile 2.15 [...]    the library, the command and the extension, as build/dev compiles them; exits with 1 on errors

It proves that names and types fit, not that the result links or computes: tools/matrix.py does that.
"""

import argparse
import io
import json
import re
import shlex
import shutil
import struct
import subprocess
import sys
import time
import urllib.request
import zipfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ("shoal.dir", "shoal_cli.dir", "shoal_python.dir")
NEAR = 1 << 20  # spans of a wheel that are nearer than this are read in one


class Remote(io.RawIOBase):
    """A file behind an address, read by ranges."""

    def __init__(self, url):
        self.url, self.place = url, 0
        head = urllib.request.urlopen(urllib.request.Request(url, method="HEAD"))
        self.nbytes = int(head.headers["Content-Length"])

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.place

    def seek(self, offset, whence=0):
        self.place = offset + (0, self.place, self.nbytes)[whence]
        return self.place

    def span(self, begin, end):
        request = urllib.request.Request(self.url, headers={"Range": f"bytes={begin}-{end - 1}"})
        with urllib.request.urlopen(request) as answer:
            if answer.status != 206:
                raise SystemExit(f"[headers] {self.url} cannot be read in parts. Use pip download.")
            return answer.read()

    def readinto(self, buffer):
        end = min(self.place + len(buffer), self.nbytes)
        if end <= self.place:
            return 0
        got = self.span(self.place, end)
        buffer[: len(got)] = got
        self.place += len(got)
        return len(got)


def newest_wheel(page, minor, python="cp311", machine="x86_64"):
    """The address of a minor version's last patch in PyPI's page of torch."""
    found = re.findall(rf'href="([^"#]*/torch-({re.escape(minor)}\.\d+)-{python}-{python}-manylinux[^"#]*{machine}\.whl)', page)
    if not found:
        raise SystemExit(f"[headers] PyPI has no torch {minor} for {python} on {machine}.")
    return max(found, key=lambda hit: [int(part) for part in hit[1].split(".")])[0]


def fetch(minor, folder):
    with urllib.request.urlopen("https://pypi.org/simple/torch/") as answer:
        url = newest_wheel(answer.read().decode(), minor)
    remote = Remote(url)
    archive = zipfile.ZipFile(io.BufferedReader(remote, 1 << 22))
    entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    ends = [entry.header_offset for entry in entries[1:]] + [archive.start_dir]
    spans = []
    for entry, end in zip(entries, ends):
        if entry.is_dir() or not (entry.filename.startswith("torch/include/") or entry.filename == "torch/version.py"):
            continue
        if spans and entry.header_offset - spans[-1][1] < NEAR:
            spans[-1][1] = end
            spans[-1][2].append(entry)
        else:
            spans.append([entry.header_offset, end, [entry]])
    for begin, end, members in spans:
        memory = remote.span(begin, end)
        for entry in members:
            at = entry.header_offset - begin
            name_nbytes, more_nbytes = struct.unpack("<HH", memory[at + 26 : at + 30])
            at += 30 + name_nbytes + more_nbytes
            data = memory[at : at + entry.compress_size]
            path = folder / entry.filename
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(zlib.decompress(data, -15) if entry.compress_type == zipfile.ZIP_DEFLATED else data)
    print(f"[headers] {url.rsplit('/', 1)[1]}: {sum(len(span[2]) for span in spans)} files in {folder}")


def words_of(command, old, new):
    """A compilation of build/dev with other headers, that makes nothing, and without its precompiled header."""
    words = shlex.split(command.replace(old, new))
    first = next(index for index, word in enumerate(words) if re.search(r"(c|g|clang)\+\+(-\d+)?$", word))
    kept, skip = [], 0
    for word in words[first:]:
        if skip:
            skip -= 1
        elif word in ("-include", "-o"):
            skip = 1
        elif word not in ("-c", "-fpch-preprocess", "-Winvalid-pch") and not re.match(r"-[gO]\d$", word):
            kept.append(word)
    launcher = [ccache] if (ccache := shutil.which("ccache")) else []  # it may limit how many compile at a time
    return [*launcher, *kept, "-fsyntax-only", "-w"]


def compile_all(minor, folder, build, only=()):
    new = str(folder / "torch/include")
    entries = json.loads((build / "compile_commands.json").read_text())
    old = next((match[1] for entry in entries if (match := re.search(r"-isystem (\S+/torch/include)(?=\s)", entry["command"]))), None)
    if old is None:
        raise SystemExit(f"[headers] {build} compiles nothing with torch. Configure it first: cmake --preset dev.")
    failed = []
    for entry in entries:
        if not any(f"/{target}/" in entry["command"] for target in TARGETS) or old not in entry["command"] or "cmake_pch" in entry["file"]:
            continue
        if only and not any(name in entry["file"] for name in only):
            continue
        start = time.monotonic()
        done = subprocess.run(words_of(entry["command"], old, new), cwd=entry["directory"], capture_output=True, text=True)
        name = entry["file"].removeprefix(str(build) + "/").removeprefix(str(ROOT) + "/")
        print(f"[headers] torch {minor}: {name}: {'fits' if done.returncode == 0 else 'DOES NOT FIT'}, {time.monotonic() - start:.0f} s", flush=True)
        if done.returncode:
            failed.append(name)
            print("\n".join(line for line in done.stderr.splitlines() if "error: " in line), flush=True)
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=("fetch", "compile"))
    parser.add_argument("minors", nargs="+")
    parser.add_argument("--only", nargs="+", default=[], help="sources whose path has one of these words")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/torch-headers")
    parser.add_argument("--build", type=Path, default=ROOT / "build/dev")
    arguments = parser.parse_args()
    failures = 0
    for minor in arguments.minors:
        if arguments.verb == "fetch":
            fetch(minor, arguments.folder / minor)
        else:
            failures += len(compile_all(minor, (arguments.folder / minor).resolve(), arguments.build.resolve(), arguments.only))
    sys.exit(1 if failures else 0)
