"""Tests of skip_tests.py: the cases of sources that are left out are counted as skipped."""

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import skip_tests
from count_tests import read_cases, report

SOURCE = """TEST(Shard, Fits) {}
TEST_F(Wires, Carry) {}
  // TEST(Not, ACase)
TEST_P(Worlds, Agree) {}
"""


class SkipTests(unittest.TestCase):
    def test_every_case_is_counted_with_the_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "a_test.cpp")
            source.write_text(SOURCE)
            with mock.patch.dict(os.environ, {"GTEST_OUTPUT": f"xml:{folder}/"}):
                self.assertEqual(skip_tests.main("no nvcc", [source]), skip_tests.SKIPPED)
            lines = list(report(read_cases(folder)))
        self.assertEqual(lines[0], "[tests] 0 GoogleTest cases ran, 3 skipped, 0 failed")
        self.assertEqual(lines[1], "[tests]   skipped 3 cases (Shard.Fits, Wires.Carry and 1 more): no nvcc")

    def test_without_a_folder_for_results_it_only_says_so(self):
        with mock.patch.dict(os.environ, {"GTEST_OUTPUT": ""}):
            self.assertEqual(skip_tests.main("no nvcc", []), skip_tests.SKIPPED)


if __name__ == "__main__":
    unittest.main()
