"""Runs the commands that README.md and the guides show, as tools/check_commands.py has them marked.

    commands_test.py SHOAL [unittest arguments]

A document's blocks run in order in a folder of their own, which shows the repository's data (docs/, examples/, ...) as a checkout does.
With SHOAL_TEST_SIZE=whole they run as they stand; else those that are marked so take fewer steps.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_commands

SHOAL = None
WHOLE = os.environ.get("SHOAL_TEST_SIZE") == "whole"
SHOWN = ("docs", "examples", "src", "include", "tests", "bench")


def commands_of(block):
    """What to run of a block now: None where nothing."""
    mark = check_commands.MARK.match(block.mark)
    if block.language != "sh" or not mark or not (mark["run"] or mark["steps"] or mark["whole"] and WHOLE):
        return None
    return re.sub(r"--steps \d+", f"--steps {mark['steps']}", block.text) if mark["steps"] and not WHOLE else block.text


def run_document(path, shoal):
    """Runs a document's blocks, and returns how many; raises AssertionError with what a failing one said."""
    texts = [(block.number, text) for block in check_commands.blocks_of(path) if (text := commands_of(block)) is not None]
    with tempfile.TemporaryDirectory() as name:
        folder, programs = Path(name, "here"), Path(name, "bin")
        folder.mkdir()
        programs.mkdir()
        (programs / "shoal").symlink_to(shoal)
        for shown in SHOWN:
            (folder / shown).symlink_to(ROOT / shown)
        environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "", "HOME": name,
                                    "SHOAL_PYTHON": sys.executable, "HF_HUB_OFFLINE": "1"}
        for number, text in texts:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=1700)
            assert done.returncode == 0, f"{path}:{number} ended with {done.returncode}:\n{text}\n{done.stdout[-4000:]}"
    return len(texts)


class Commands(unittest.TestCase):
    def test_shown_commands_run(self):
        ran = 0
        for path in check_commands.documents(ROOT):
            with self.subTest(path.relative_to(ROOT).as_posix()):
                ran += run_document(path, SHOAL)
        self.assertGreaterEqual(ran, 5 if WHOLE else 3)

    def test_a_command_that_fails_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name, "a.md")
            for text in ("shoal plan --modell llama-8b", "false | true", "cat nothing\ntrue"):
                path.write_text(f"<!-- run -->\n```sh\n{text}\n```\n")
                with self.assertRaises(AssertionError):
                    run_document(path, SHOAL)

    def test_a_document_runs_in_one_folder_in_its_order(self):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name, "a.md")
            path.write_text("<!-- run -->\n```sh\necho 1 > a\n```\n<!-- run -->\n```sh\ntest $(cat a) = 1 && test -e docs/plan.md\n```\n")
            self.assertEqual(run_document(path, SHOAL), 2)


if __name__ == "__main__":
    SHOAL = Path(sys.argv.pop(1)).resolve()
    unittest.main()
