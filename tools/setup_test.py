"""Tests of setup.sh on a machine that has everything: TRL is installed where Python is new enough, and else left out in a line.

dpkg-query and the Python of .venv are stand-ins; the second has a version that is chosen, and notes what it is asked to install.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[1]

DPKG_QUERY = """#!/bin/bash
for package in "$@"; do echo "installed $package"; done
"""

PYTHON = """#!/bin/bash
case "$1" in
  --version) echo "Python 3.MINOR.0" ;;
  -c) exec REAL -c 'import sys; sys.version_info = (3, MINOR); exec(sys.argv[1])' "$2" ;;
  -m) echo "$@" >>installed.txt ;;
  tools/check_lock.py) exit 1 ;;
esac
"""


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class Setup(unittest.TestCase):
    def set_up(self, what, minor):
        """What `setup.sh what` prints, and what it installs, on Python 3.<minor>."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "tools").mkdir()
            shutil.copy(ROOT / "tools/setup.sh", folder / "tools")
            lock = (ROOT / "requirements.lock").read_bytes()
            (folder / "requirements.lock").write_bytes(lock)
            write_program(folder / "bin/dpkg-query", DPKG_QUERY)
            write_program(folder / ".venv/bin/python3", PYTHON.replace("MINOR", str(minor)).replace("REAL", sys.executable))
            (folder / ".venv/.lock-stamp").write_text(f"{hashlib.sha256(lock).hexdigest()} {folder.resolve()}/.venv\n")
            environment = os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
            done = subprocess.run([folder / "tools/setup.sh", what], capture_output=True, text=True, env=environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            installed = folder / "installed.txt"
            return done.stdout, installed.read_text() if installed.exists() else ""

    def test_below_3_11_one_line_says_that_trl_is_left_out(self):
        said, installed = self.set_up("trl", 10)
        self.assertEqual(
            said,
            "[setup] TRL's test will be skipped: requirements-trl.lock needs Python 3.11, and .venv has Python 3.10.0.\n",
        )
        self.assertEqual(installed, "")

    def test_from_3_11_on_the_lock_is_installed(self):
        for what in ("trl", "monitors"):
            said, installed = self.set_up(what, 11)
            self.assertEqual(said, "")
            self.assertIn("pip install", installed)
            self.assertTrue(installed.endswith(f"-r requirements-{what}.lock\n"), installed)

    def test_monitors_lie_beside_the_environment(self):
        self.assertIn("--target .venv-monitors ", self.set_up("monitors", 11)[1])
        self.assertIn("Tests of monitors will be skipped", self.set_up("monitors", 10)[0])


if __name__ == "__main__":
    unittest.main()
