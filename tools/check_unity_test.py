"""Proves that check_unity.py finds each kind of breach, and that it is silent on a tree without one."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_unity

UNITY = "set(second_files\n  tests/ranks/apart_test.cpp)\n"
FIRST = """namespace shoal::testing {
namespace {
struct Bits {
  int all;
};
using Words = std::vector<std::string>;
constexpr int kSteps = 3;
int sum(const Bits& bits, int more) { return bits.all + more; }
void twice(
    int value);
TEST(Loads, AtAnyWorld) { EXPECT_EQ(sum({1}, 2), 3); }
"""


def breaches_of(**files):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "cmake").mkdir()
        (root / "cmake/Unity.cmake").write_text(UNITY)
        (root / "tests/ranks").mkdir(parents=True)
        for name, text in {"first": FIRST, **files}.items():
            (root / f"tests/ranks/{name}_test.cpp").write_text(text)
        return check_unity.check(root)


class CheckUnity(unittest.TestCase):
    def test_is_silent_where_names_differ(self):
        self.assertEqual(breaches_of(second="namespace shoal::testing {\nstruct Runs {\n};\nint sum(int one) { return one; }\n"), [])

    def test_finds_each_kind(self):
        for line, said in {
            "struct Bits {": "type shoal::testing::Bits",
            "enum class Bits { one };": "type shoal::testing::Bits",
            "using Words = int;": "type shoal::testing::Words",
            "constexpr int kSteps = 4;": "constant shoal::testing::kSteps",
            "int sum(const Bits& those, int one = 1) { return 0; }": "function shoal::testing::sum(const Bits&, int)",
            "TEST(Loads, AtAnyWorld) {}": "test Loads.AtAnyWorld",
        }.items():
            with self.subTest(line):
                if line.startswith("enum"):
                    line = line.removesuffix(";").replace(" one }", "\n  one }")
                found = breaches_of(second=f"namespace shoal::testing {{\n{line}\n")
                self.assertEqual(len(found), 1, found)
                self.assertIn(said, found[0])

    def test_other_namespaces_and_groups_share_nothing(self):
        self.assertEqual(breaches_of(second="namespace shoal {\nstruct Bits {\n};\n"), [])
        self.assertEqual(breaches_of(apart="namespace shoal::testing {\nstruct Bits {\n};\n"), [])


if __name__ == "__main__":
    unittest.main()
