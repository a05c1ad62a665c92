"""Tests of matrix.py and torch_headers.py without a network or a build: what is written down of a trial, and what a compilation becomes."""

import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import matrix
import torch_headers

PASSED = "100% tests passed, 0 tests failed out of 35\n"
FAILED = ("12/35 Test #3: unit_comm ....***Skipped   0.1 sec\n94% tests passed, 2 tests failed out of 35\n\nThe following tests FAILED:\n"
          "\t  4 - unit_engine (Failed)\n\t  9 - unit_shard (Timeout)\n")


class Matrix(unittest.TestCase):
    def test_the_table_of_install_md_is_what_was_written_down(self):
        facts = json.loads((matrix.ROOT / matrix.FACTS).read_text())
        text = (matrix.ROOT / matrix.TABLE).read_text()
        self.assertEqual(matrix.with_table(text, facts, matrix.minors()), text, "run tools/matrix.py --table")

    def test_every_minor_version_has_a_row_and_what_was_not_tried_says_so(self):
        rows = matrix.table([{"torch": "2.11", "unit": "all 35 programs"}], ["2.10", "2.11"]).splitlines()
        self.assertEqual(rows[2], "| 2.10 |" + " not tried |" * 6)
        self.assertIn("| 2.11 | not tried | not tried | all 35 programs |", rows[3])

    def test_the_outcome_is_what_ctest_said(self):
        self.assertEqual(matrix.outcome(PASSED), "all 35 programs")
        self.assertEqual(matrix.outcome(FAILED), "2 of 34 programs failed (unit_engine, unit_shard), 1 skipped")
        self.assertEqual(matrix.outcome("Segmentation fault"), "did not run")

    def test_a_trial_replaces_what_was_known(self):
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for path in ("cmake/TorchWheel.cmake", matrix.FACTS, matrix.TABLE):
                (root / path).parent.mkdir(exist_ok=True)
                shutil.copy(matrix.ROOT / path, root / path)
            matrix.keep({"torch": "2.14", "headers": "yes", "build": "yes", "unit": "all 3 programs", "when": "yesterday"}, root)
            matrix.keep({"torch": "2.14", "headers": "yes", "build": "no", "when": "today"}, root)
            matrix.keep({"torch": "2.14", "headers": "no"}, root)
            rows = {row["torch"]: row for row in json.loads((root / matrix.FACTS).read_text())}
            self.assertEqual((rows["2.14"]["headers"], rows["2.14"]["build"]), ("no", "no"))
            self.assertEqual((rows["2.14"]["unit"], rows["2.14"]["when"]), ("", "today"))
            self.assertIn("| 2.14 | no | no | not tried |", (root / matrix.TABLE).read_text())
            self.assertEqual(list(rows), sorted(rows, key=lambda each: int(each.split(".")[1])))

    def test_a_document_without_a_place_for_the_table_is_an_error(self):
        with self.assertRaises(SystemExit):
            matrix.with_table("# Install\n", [], [])


class Headers(unittest.TestCase):
    def test_the_last_patch_is_taken(self):
        page = "".join(f'<a href="https://h/{v}/torch-{v}-cp311-cp311-manylinux_2_28_x86_64.whl#sha">' for v in ("2.14.0", "2.14.10", "2.14.9", "2.1.4"))
        self.assertIn("torch-2.14.10-", torch_headers.newest_wheel(page, "2.14"))
        with self.assertRaises(SystemExit):
            torch_headers.newest_wheel(page, "2.15")

    def test_a_compilation_makes_nothing_and_sees_the_other_headers(self):
        command = "/usr/bin/cmake -E env A=b /usr/bin/ccache /usr/bin/c++ -DX=\\\"a\\\" -isystem /old/torch/include -O2 -g1 -include pch.hxx -o a.o -c a.cpp"
        words = torch_headers.words_of(command, "/old/torch/include", "/new/torch/include")
        self.assertEqual(words[-7:], ["/usr/bin/c++", '-DX="a"', "-isystem", "/new/torch/include", "a.cpp", "-fsyntax-only", "-w"])


if __name__ == "__main__":
    unittest.main()
