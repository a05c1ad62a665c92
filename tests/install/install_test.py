"""Installs the build, compiles each header alone, builds the example against what was installed, and runs it and the
installed command.

    install_test.py BUILD [unittest arguments]
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = None


def compiler_of(build):
    lines = (Path(build) / "CMakeCache.txt").read_text().splitlines()
    return next(line.split("=", 1)[1] for line in lines if line.startswith("CMAKE_CXX_COMPILER:"))


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.prefix = cls.folder / "prefix"
        subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.prefix], check=True, capture_output=True, timeout=600)

    def run_well(self, *words):
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        result = subprocess.run([str(word) for word in words], capture_output=True, text=True, env=environment, timeout=600)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def compile_alone(self, text, *options):
        """With the few names of torch that the headers use. What the compiler said."""
        source = self.folder / "alone.cpp"
        source.write_text(text)
        words = [compiler_of(BUILD), "-std=c++20", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fsyntax-only", *options,
                 "-I", self.prefix / "include", "-I", ROOT / "tests/install/torch_names", source]
        result = subprocess.run(words, capture_output=True, text=True, timeout=600)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def test_each_header_compiles_alone(self):
        headers = sorted(path.name for path in (self.prefix / "include/shoal").glob("*.h"))
        self.assertIn("engine.h", headers)
        for header in headers:
            with self.subTest(header):
                self.compile_alone(f'#include "shoal/{header}"\n', "-Werror")

    def test_a_name_of_0_1_says_the_new_one(self):
        use = '#include "shoal/engine.h"\nvoid use(shoal::Engine& engine) { engine.memory(); engine.begin_backward(); }\n'
        said = self.compile_alone(use)
        self.assertIn("use engine.meters().memory()", said)
        self.assertIn("use engine.hooks().begin_backward()", said)

    def test_the_example_builds_against_the_package_and_trains(self):
        prefix, build = self.prefix, self.folder / "build"
        self.assertFalse([path for path in (prefix / "include").rglob("*.h") if path.parent.name != "shoal"])
        self.run_well("cmake", "-G", "Ninja", "-S", ROOT / "tests/install", "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}",
                      f"-DEXAMPLE={ROOT / 'examples/train_mlp.cpp'}")
        commands = (build / "build.ninja").read_text()
        self.assertNotIn(f"{ROOT}/src", commands)
        self.assertNotIn(f"{ROOT}/include", commands)
        self.run_well("cmake", "--build", build)
        losses = [float(line.split()[4]) for line in self.run_well(build / "train_mlp").splitlines() if " | loss " in line]
        self.assertLess(losses[-1], losses[0] / 2)

        shoal = prefix / "bin/shoal"
        self.assertIn("104.3 GiB", self.run_well(shoal, "plan", "--params", "7e9", "--world", "8"))
        # With echo for a Python: the program that it would run is the installed one.
        words = self.run_well("env", "SHOAL_PYTHON=echo", shoal, "tokenize", "--tokenizer", "a", "-o", "b", "c").split()
        self.assertEqual(words[0], str(prefix / "share/shoal/make_tokens.py"))
        self.assertTrue(Path(words[0]).is_file())


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
