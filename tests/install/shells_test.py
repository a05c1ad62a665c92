"""`shoal completion` in real shells, `shoal man` in a real groff, and where an installation puts both.

    shells_test.py SHOAL Bash Pages|Zsh|Fish|Groff

What is expected is read from --help, so that a flag that a script does not know fails here. Where a class's program is not installed it ends with 77.
"""

import functools
import os
import pty
import re
import select
import shutil
import struct
import fcntl
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHOAL = None
SHELLS = ("bash", "zsh", "fish")
DRAWING = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|[\x00\x08]")  # what a terminal does not show: colours, padding


@functools.cache
def shoal(*words):
    done = subprocess.run([SHOAL, *words], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


@functools.cache
def verbs(path=()):
    """Every verb with its flags and the verbs under it, as --help has them: {("checkpoint", "ls"): (flags, verbs)}."""
    text = shoal(*path, "--help")
    flags = re.findall(r"(?:^  |,)(--?[\w-]+)(?=[ ,{\n])", text.split("\nOptions:\n")[1], re.M)
    parts = text.split("\nSubcommands:\n")
    under = re.findall(r"^  (\w+) ", parts[1].split("\n\n")[0], re.M) if len(parts) > 1 else []
    found = {path: (set(flags), set(under))}
    for name in under:
        found |= verbs((*path, name))
    return found


class Terminal:
    """An interactive shell behind a terminal that is wide enough for every list."""

    def __init__(self, words, environment):
        self.process, self.end = pty.fork()
        if self.process == 0:
            os.execvpe(words[0], words, os.environ | {"TERM": "vt100", "PS1": "$ ", "HISTFILE": "/dev/null"} | environment)
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 400, 200, 0, 0))

    def type(self, text, until):
        """What the shell answers, up to a pattern that must come."""
        os.write(self.end, text.encode())
        seen, limit = "", time.monotonic() + 120
        while not re.search(until, seen):
            if not select.select([self.end], [], [], max(0, limit - time.monotonic()))[0]:
                raise AssertionError(f"no {until!r} came: {seen!r}")
            seen = DRAWING.sub("", seen + os.read(self.end, 65536).decode(errors="replace"))
        return seen

    def close(self):
        os.close(self.end)
        os.waitpid(self.process, 0)


class Shell(unittest.TestCase):
    program = None

    @classmethod
    def setUpClass(cls):
        if not shutil.which(cls.program):
            raise unittest.SkipTest(f"{cls.program} is not installed")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for shell in SHELLS:
            (self.folder / f"shoal.{shell}").write_text(shoal("completion", shell))

    def terminal(self, *words, **environment):
        terminal = Terminal(words, environment)
        self.addCleanup(terminal.close)
        return terminal


class Bash(Shell):
    program = "bash"

    def offers(self, *lines):
        """What each line of words offers for its last one, and "files" where bash is left to look for files."""
        script = [f"source {self.folder}/shoal.bash", "compopt() { [[ $* == *default* ]] && echo files; return 0; }"]
        for words in lines:
            script.append("COMP_WORDS=(" + " ".join(f"'{word}'" for word in words) + f"); COMP_CWORD={len(words) - 1}; _shoal shoal; printf '%s\\n' \"${{COMPREPLY[@]}}\" ---")
        done = subprocess.run(["bash", "--norc", "-u", "-c", "\n".join(script)], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [set(part.split()) for part in done.stdout.split("---\n")[:-1]]

    def test_help_is_read(self):
        known = verbs()
        self.assertGreater(len(known), 12)
        self.assertEqual(known[("checkpoint", "export")], ({"-h", "--help", "--dtype", "--adapter", "--merged", "--model"}, set()))
        self.assertLessEqual({"-n", "--ranks", "--no-prefix"}, known[("launch",)][0])

    def test_every_verb_and_flag(self):
        known = verbs()
        flags = self.offers(*(["shoal", *path, "-"] for path in known))
        words = self.offers(*(["shoal", *path, ""] for path in known))
        for path, flag, word in zip(known, flags, words):
            with self.subTest(path):
                self.assertEqual(flag, known[path][0])
                if known[path][1]:
                    self.assertEqual(word, known[path][1])

    def test_it_knows_where_it_is(self):
        cases = [
            (["shoal", "checkpoint", "v"], {"verify"}),
            (["shoal", "train", "--rec"], {"--recompute"}),
            (["shoal", "train", "--recompute", ""], {"none", "selective", "full", "auto", "files"}),
            (["shoal", "train", "--recompute", "=", "s"], {"selective", "files"}),
            (["shoal", "train", "--recompute", "full", "--on-save-error", "="], {"stop", "continue", "files"}),
            (["shoal", "train", "--model", "builtin", ":", "llama-t"], {"llama-tiny", "files"}),
            (["shoal", "plan", "--cluster", "H"], {"H100", "H200", "files"}),
            (["shoal", "train", "--set", "zero_optimization.stage"], {"zero_optimization.stage=", "files"} |
             {word for word in self.offers(["shoal", "train", "--set", ""])[0] if word.startswith("zero_optimization.stage3_")}),
            (["shoal", "train", "--set", "zero_optimization.stage", "=", ""], {"files"}),
            (["shoal", "train", "--set", "=", "fp8.en"], {"fp8.enabled=", "files"}),
            (["shoal", "train", "--out", ""], {"files"}),
            (["shoal", "train", "--data", "text", ":", "do"], {"files"}),
            (["shoal", "train", "--model", "plan", "--rank"], {"--ranks"}),  # a value that is a verb elsewhere
            (["shoal", "completion", ""], set(SHELLS)),
            (["shoal", "report", ""], {"files"}),
            (["shoal", "launch", "-n", "2", "--", "python3", "--"], {"files"}),
            (["shoal", "nothing"], set()),
        ]
        for (words, wanted), offered in zip(cases, self.offers(*(words for words, _ in cases))):
            with self.subTest(words):
                self.assertEqual(offered, wanted)

    def test_a_tab(self):
        (self.folder / "läuft here").mkdir()
        terminal = self.terminal("bash", "--norc", "--noprofile", "-i")
        terminal.type(f"bind 'set enable-bracketed-paste off'; cd {self.folder}; source <({SHOAL} completion bash); echo rea''dy\n", "ready")
        terminal.type("shoal ch\tver\tl\t", r"shoal checkpoint verify l\S*uft\\ here/")
        terminal.type("\x15shoal plan --cluster=H2\t", "--cluster=H200 ")
        terminal.type("\x15shoal train --set fp8.en\ttrue --on-sa\tc\t", "--set fp8.enabled=true --on-save-error continue ")

    def test_a_wheel_has_them_in_its_environment(self):
        """cmake/Install.cmake as the build backend has it run, around a command that is built already."""
        for name in ("cmake", "tools", "include"):
            (self.folder / name).symlink_to(ROOT / name)
        (self.folder / "main.cpp").write_text(f'#include <unistd.h>\nint main(int, char** argv) {{ return execv("{SHOAL}", argv); }}\n')
        (self.folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.22)\nproject(wheel VERSION 1.0.0 LANGUAGES CXX)\ninclude(GNUInstallDirs)\nlist(APPEND CMAKE_MODULE_PATH ${CMAKE_SOURCE_DIR}/cmake)\n"
            "foreach(name shoal shoal_pure shoal_flags)\n  add_library(${name} INTERFACE)\nendforeach()\nadd_executable(shoal_cli main.cpp)\ninclude(Install)\n")
        data = self.folder / "data"
        for words in (["-G", "Ninja", "-S", self.folder, "-B", self.folder / "build", "-DSKBUILD=ON", f"-DSKBUILD_DATA_DIR={data}"], ["--build", self.folder / "build"],
                      ["--install", self.folder / "build", "--prefix", self.folder / "platlib", "--component", "python"]):
            done = subprocess.run(["cmake", *words], capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        pages = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
        self.assertEqual(pages, {"share/bash-completion/completions/shoal", "share/zsh/site-functions/_shoal", "share/fish/vendor_completions.d/shoal.fish"} |
                         {f"share/man/man1/{'-'.join(['shoal', *path])}.1" for path in verbs()})
        self.assertEqual((data / "share/bash-completion/completions/shoal").read_text(), shoal("completion", "bash"))


class Zsh(Shell):
    program = "zsh"

    def test_every_verb_and_flag(self):
        terminal = self.terminal("zsh", "-f", "-i", PROMPT="$ ")
        terminal.type(f"cd {self.folder}; autoload -Uz compinit; compinit -u -D; source ./shoal.zsh; LISTMAX=9999; unsetopt menucomplete automenu; echo rea''dy\n", "ready\r")
        terminal.type("shoal checkp\tver\t", "verify ")
        terminal.type("\x15shoal plan --cluster=H2\t", "H200")
        terminal.type("\x15shoal train --set fp8.en\t", r"fp8\.enabled=")
        terminal.type("\x15shoal train --recompute sel\t", "selective ")
        for path, (flags, _) in verbs().items():
            line, flags = " ".join(["shoal", *path, "--"]), {flag for flag in flags if flag.startswith("--")}
            if flags == {"--help"}:  # the only one is filled in
                terminal.type(f"\x15{line}\t", "help ")
                continue
            shown = terminal.type(f"\x15{line}\t", rf"--help\s[\s\S]*\r(\$ )?{line}")  # the list, and the line again below it
            self.assertEqual(set(re.findall(r"^\s*(--[\w-]+)", shown, re.M)), flags, path)

    def test_it_is_found_by_its_name(self):
        shutil.copy(self.folder / "shoal.zsh", self.folder / "_shoal")
        terminal = self.terminal("zsh", "-f", "-i", PROMPT="$ ")
        terminal.type(f"fpath=({self.folder} $fpath); autoload -Uz compinit; compinit -u -D; echo rea''dy\n", "ready\r")
        terminal.type("shoal checkp\tver\t", "verify ")


class Fish(Shell):
    program = "fish"

    def test_every_verb_and_flag(self):
        known = verbs()
        more = [("checkpoint", "v"), ("train", "--recompute", "s"), ("train", "--model", "llama-t"), ("completion", ""), ("plan", "--set", "fp8.en"), ("report", "")]
        script = f"cd {self.folder}; source shoal.fish\n"
        for words in [(*path, "-") for path in known] + [(*path, "") for path in known] + more:
            script += f"complete -C 'shoal {' '.join(words)}'; echo ---\n"
        done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, timeout=120, env=os.environ | {"HOME": str(self.folder)})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        offers = [{line.split("\t")[0] for line in part.splitlines()} for part in done.stdout.split("---\n")]
        for index, (path, (flags, under)) in enumerate(known.items()):
            with self.subTest(path):
                self.assertEqual(offers[index], flags)
                if under:
                    self.assertEqual(offers[len(known) + index], under)
        offers = offers[2 * len(known):]
        self.assertEqual(offers[:5], [{"verify"}, {"selective"}, {"llama-tiny"}, set(SHELLS), {"fp8.enabled="}])
        self.assertIn("shoal.fish", offers[5])


class Pages(Shell):
    program = "bash"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.pages = Path(folder.name, "man1")
        shoal("man", "--out", str(cls.pages))

    def page(self, path):
        return (self.pages / f"{'-'.join(['shoal', *path])}.1").read_text()

    def test_every_verb_has_one_with_every_flag(self):
        self.assertEqual({path.name for path in self.pages.iterdir()}, {"-".join(["shoal", *path]) + ".1" for path in verbs()})
        self.assertEqual(self.page(("checkpoint", "ls")), shoal("man", "checkpoint", "ls"))
        for path, (flags, under) in verbs().items():
            page = self.page(path).replace("\\-", "-")
            self.assertEqual(set(re.findall(r"\\fB(--?[\w-]+)\\fR", page)), flags, path)
            listed = page.split(".SH VERBS\n")[1].split(".SH")[0] if under else ""
            self.assertEqual(set(re.findall(r"^\\fB(\w+)\\fR$", listed, re.M)), under, path)
            self.assertIn(".SH EXAMPLE\n.nf\n  ", page)

    def test_mistakes(self):
        done = subprocess.run([SHOAL, "man", "checkpoint", "verfy"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (2, "shoal: [man] verfy is not a verb of shoal checkpoint. Did you mean verify?\n"))
        done = subprocess.run([SHOAL, "man", "--out", "/dev/null/pages"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("[--out /dev/null/pages/shoal.1] cannot be written.", done.stderr)


class Groff(Pages):
    program = "groff"
    test_every_verb_has_one_with_every_flag = test_mistakes = None

    def test_it_sets_every_page(self):
        """Without a warning, and the examples as they stand."""
        for path in self.pages.iterdir():
            page = path.read_text()
            done = subprocess.run(["groff", "-man", "-ww", "-Tascii", "-P-c", "-rLL=200n"], input=page, capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""), path)
            shown = re.sub(r".\x08", "", done.stdout)
            for line in page.replace("\\-", "-").split(".SH EXAMPLE\n.nf\n")[1].split(".fi")[0].splitlines():
                self.assertIn(line.strip(), shown)


if __name__ == "__main__":
    SHOAL = str(Path(sys.argv.pop(1)).resolve())
    done = unittest.main(exit=False).result
    sys.exit(1 if not done.wasSuccessful() else 77 if done.skipped else 0)
