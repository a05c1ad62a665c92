"""Proves that check_format.py names a file that is not formatted, and is silent about one that is or is no C++; and that `make format`
refuses what is no C++, which clang-format would spoil."""

import subprocess
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
            (root / "src/other.py").write_text("def f( ):\n    # Words\n    return {'a' : 1}\n")
            self.assertEqual(check_format.unformatted(root), ["src/bad.cpp"])

    def test_make_format_refuses_what_is_no_cpp(self):
        def would_run(files):
            root = Path(__file__).resolve().parent.parent
            return subprocess.run(["make", "-n", "-C", str(root), "format", f"FILES={files}"], capture_output=True, text=True, check=False)

        refused = would_run("src/base/text.cpp tools/check_format.py")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("make format is for C++ and CUDA, and tools/check_format.py is neither", refused.stderr)
        self.assertNotIn("clang-format -i", refused.stdout)
        self.assertIn("clang-format -i src/base/text.cpp src/a.cuh\n", would_run("src/base/text.cpp src/a.cuh").stdout)


if __name__ == "__main__":
    unittest.main()
