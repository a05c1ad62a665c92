"""Proves that check_lengths.py finds a source that is too long, and no other."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_lengths


def breaches_of(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, count in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n" * count)
        return check_lengths.check(Path(folder))


class CheckLengths(unittest.TestCase):
    def test_500_lines_are_not_too_many(self):
        self.assertEqual(breaches_of({"src/base/text.cpp": 500, "include/shoal/engine.h": 1}), [])

    def test_finds_a_source_of_501_lines_in_each_folder(self):
        for name in ("src/models/ops/cuda/norm.cu", "include/shoal/engine.h", "apps/cli/train.cpp", "bindings/python/engine.cpp"):
            found = breaches_of({name: 501, "src/base/text.h": 500})
            self.assertEqual(len(found), 1, found)
            self.assertIn(f"{name}: 501 lines, and 500 are the most.", found[0])

    def test_tests_and_documents_may_be_longer(self):
        self.assertEqual(breaches_of({"tests/unit/base/text_test.cpp": 501, "src/README.md": 501}), [])


if __name__ == "__main__":
    unittest.main()
