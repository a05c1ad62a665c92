"""`make install PREFIX=...`: what it calls, and what then lies in the prefix.

    install_prefix_test.py BUILD [unittest arguments]

make itself is asked what it would do (-n), so that no test sets a machine up or builds.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = None


def make_says(*words):
    done = subprocess.run(["make", "-n", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


class Install(unittest.TestCase):
    def test_make_install(self):
        said = make_says("install", "PREFIX=~/some/where")
        self.assertIn(f"tools/install.sh build/dev {Path.home()}/some/where\n", said)
        self.assertIn("--target shoal_cli", said)
        self.assertIn(f"tools/install.sh build/dev {Path.home()}/.local\n", make_says("install"))

        with tempfile.TemporaryDirectory() as name:
            prefix = Path(name, "a prefix")
            done = subprocess.run([ROOT / "tools/install.sh", BUILD, prefix], capture_output=True, text=True, timeout=600)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn(f"installed shoal 0.1.0 (torch 2.", done.stdout)
            self.assertIn("is not on your PATH", done.stdout)
            for path in ("bin/shoal", "include/shoal/engine.h", "share/shoal/make_tokens.py", "share/man/man1/shoal-train.1", "share/bash-completion/completions/shoal"):
                self.assertTrue((prefix / path).is_file(), path)
            self.assertTrue(list(prefix.glob("lib*/cmake/Shoal/ShoalConfig.cmake")))
            self.assertTrue(list(prefix.glob("lib*/libshoal.a")))

            environment = os.environ | {"PATH": f"{prefix}/bin:{os.environ['PATH']}"}
            again = subprocess.run([ROOT / "tools/install.sh", BUILD, prefix], capture_output=True, text=True, timeout=600, env=environment)
            self.assertNotIn("PATH", again.stdout)
            found = subprocess.run(["shoal", "plan", "--params", "7e9", "--world", "8"], capture_output=True, text=True, env=environment, cwd="/")
            self.assertIn("104.3 GiB", found.stdout)

    def test_a_prefix_that_cannot_be_written_is_an_error(self):
        with tempfile.TemporaryDirectory() as name:
            blocked = Path(name, "file")
            blocked.touch()
            done = subprocess.run([ROOT / "tools/install.sh", BUILD, blocked], capture_output=True, text=True, timeout=600)
            self.assertNotEqual(done.returncode, 0)
            self.assertNotIn("installed shoal", done.stdout)

    def test_gpus_that_are_named_reach_cmake_and_are_kept(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shutil.copy(ROOT / "Makefile", folder)
            for path, text in {"tools/setup.sh": "mkdir -p .venv; [ -e .venv/.lock-stamp ] || touch .venv/.lock-stamp", "tools/jobs.sh": "echo 1", "CMakePresets.json": None,
                               "bin/cmake": 'echo "$@" >>said.txt; mkdir -p build/dev; touch build/dev/build.ninja'}.items():
                (folder / path).parent.mkdir(exist_ok=True)
                (folder / path).write_text(f"#!/bin/bash\n{text}\n")
                (folder / path).chmod(0o755)
            environment = os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}"}

            def configured(*words):
                (folder / "said.txt").unlink(missing_ok=True)
                subprocess.run(["make", "-C", name, "build/dev/build.ninja", *words], check=True, capture_output=True, env=environment)
                return (folder / "said.txt").read_text() if (folder / "said.txt").exists() else ""

            self.assertEqual(configured(), "--preset dev\n")
            self.assertEqual(configured("CUDA_ARCHITECTURES=80;90"), "--preset dev -DSHOAL_CUDA_ARCHITECTURES=80;90\n")
            self.assertEqual(configured(), "", "nothing to configure again")
            self.assertEqual((folder / "build/.cuda-architectures").read_text(), "80;90\n")
            self.assertEqual(configured("CUDA_ARCHITECTURES=all"), "--preset dev -DSHOAL_CUDA_ARCHITECTURES=all\n")


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()
