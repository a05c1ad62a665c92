"""Proves that check_python.py finds circles of every kind and files that are too long, and is silent on packages without."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_python

GOOD = {
    "shoal/__init__.py": "from shoal.engine import Engine\n",
    "shoal/_core.pyi": "class Error: ...\n",
    "shoal/owners.py": "from shoal import _core\n",
    "shoal/engine.py": "import torch\nfrom shoal import _core, owners\n",
    "deepspeed/__init__.py": "from deepspeed import runtime, version\nfrom shoal import Engine\n",
    "deepspeed/version.py": "",
    "deepspeed/runtime/__init__.py": "from deepspeed.runtime.engine import initialize\n",
    "deepspeed/runtime/engine.py": "from shoal import Engine\nfrom . import config\nfrom ..version import number\n",
    "deepspeed/runtime/config.py": "",
}


def breaches_of(changes):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in {**GOOD, **changes}.items():
            path = root / "python" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check_python.check(root)


class CheckPython(unittest.TestCase):
    def expect_one(self, changes, *words):
        found = breaches_of(changes)
        self.assertEqual(len(found), 1, found)
        for each in words:
            self.assertIn(each, found[0])

    def test_layers_have_no_breach(self):
        self.assertEqual(breaches_of({}), [])

    def test_finds_a_circle_of_two_with_its_lines(self):
        self.expect_one({"shoal/owners.py": "import torch\n\nfrom shoal.engine import Engine\n"},
                        "python/shoal/engine.py:2 imports shoal.owners, python/shoal/owners.py:3 imports shoal.engine")

    def test_finds_a_circle_of_three(self):
        self.expect_one({"shoal/owners.py": "import shoal.world\n", "shoal/world.py": "import shoal.engine\n"},
                        "shoal.owners", "shoal.world", "shoal.engine")

    def test_counts_imports_that_are_put_off(self):
        for line in ("from shoal.engine import Engine", "from .engine import Engine", "import shoal.engine",
                     "import importlib; importlib.import_module('shoal.engine')"):
            self.expect_one({"shoal/owners.py": f"def find():\n    {line}\n"}, "owners.py:2 imports shoal.engine")
        text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shoal.engine import Engine\n"
        self.expect_one({"shoal/owners.py": text}, "owners.py:3 imports shoal.engine")

    def test_finds_a_module_that_imports_its_package(self):
        self.expect_one({"shoal/owners.py": "from shoal import Engine\n"}, "owners.py:1 imports shoal")

    def test_finds_a_circle_between_packages_by_what_they_run_first(self):
        changes = {"deepspeed/utils/__init__.py": "from deepspeed.runtime.config import check\n", "deepspeed/utils/log.py": "",
                   "deepspeed/runtime/engine.py": "from deepspeed.utils.log import warn\n"}
        self.expect_one(changes, "engine.py:1 imports deepspeed.utils", "utils/__init__.py:1 imports deepspeed.runtime")

    def test_finds_each_circle(self):
        changes = {"shoal/owners.py": "import shoal.engine\n", "deepspeed/version.py": "import deepspeed.runtime.engine\n"}
        self.assertEqual(len(breaches_of(changes)), 2)

    def test_finds_a_module_that_is_too_long(self):
        self.assertEqual(breaches_of({"shoal/owners.py": "\n" * 500}), [])
        self.expect_one({"shoal/owners.py": "\n" * 501}, "python/shoal/owners.py: 501 lines, and 500 at most")


if __name__ == "__main__":
    unittest.main()
