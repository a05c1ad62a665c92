"""Proves that check_format.py names a file that is not formatted, and is silent about one that is."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_format


class CheckFormat(unittest.TestCase):
    def test_names_the_unformatted_file_and_no_other(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder).resolve()
            (root / "src").mkdir()
            (root / ".clang-format").write_text("BasedOnStyle: Google\n")
            (root / "src/good.cpp").write_text("int main() { return 0; }\n")
            (root / "src/bad.cpp").write_text("int  main( ){return 0;}\n")
            self.assertEqual(check_format.unformatted(root), ["src/bad.cpp"])


if __name__ == "__main__":
    unittest.main()
