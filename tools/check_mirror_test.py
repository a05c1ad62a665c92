"""Proves that check_mirror.py finds each kind of breach, and that it is silent on a tree without one."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_mirror

GOOD = {
    "src/base/text.cpp": "",
    "src/base/inline.h": "",
    "src/kernels/adam.cpp": "",
    "src/kernels/adam_reference.cpp": "",
    "src/kernels/adam_avx2.cpp": "",
    "src/kernels/no_x86_adam.cpp": "",
    "src/kernels/cuda/adam.cu": "",
    "src/kernels/no_cuda/adam.cpp": "",
    "src/device/cuda/memory.cpp": "",
    "src/device/cuda/events.cpp": "",
    "src/comm/gloo.cpp": "",
    "tests/unit/base/text_test.cpp": "",
    "tests/unit/base/inline_test.cpp": "",
    "tests/unit/kernels/adam_test.cpp": "",
    "tests/unit/device/cuda/events_test.cpp": "",
    "tests/cuda/kernels/adam_test.cpp": "",
    "tests/cuda/device/memory_test.cpp": "",
    "tests/cuda/engine_test.cpp": "",
    "tests/unmirrored.txt": "# why not\nsrc/comm/gloo.cpp  needs processes: tests/process/gloo_test.cpp\n",
}


def breaches_of(changes):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in {**GOOD, **changes}.items():
            if text is not None:
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return check_mirror.check(root)


class CheckMirror(unittest.TestCase):
    def expect_one(self, changes, words):
        found = breaches_of(changes)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_a_clean_tree_has_no_breach(self):
        self.assertEqual(breaches_of({}), [])

    def test_finds_a_source_without_a_test(self):
        self.expect_one({"src/base/error.cpp": ""}, "src/base/error.cpp: no tests/unit/base/error_test.cpp")

    def test_a_test_of_the_same_name_in_another_folder_does_not_count(self):
        self.expect_one({"src/comm/text.cpp": ""}, "src/comm/text.cpp: no tests/unit/comm/text_test.cpp")

    def test_finds_a_kernel_family_without_a_test(self):
        found = breaches_of({"tests/unit/kernels/adam_test.cpp": None})
        self.assertEqual(len(found), 4, found)

    def test_finds_a_gpu_source_without_a_test_on_the_gpu(self):
        self.expect_one({"tests/cuda/kernels/adam_test.cpp": None}, "src/kernels/cuda/adam.cu: no tests/cuda/kernels/adam_test.cpp")
        self.expect_one({"src/kernels/cuda/norm.cu": "", "tests/unit/kernels/cuda/norm_test.cpp": "",
                         "tests/cuda/norm_test.cpp": "", "src/kernels/cuda/norm.h": ""}, "src/kernels/cuda/norm.cu: no tests/cuda/kernels/norm_test.cpp")
        self.expect_one({"tests/cuda/device/memory_test.cpp": None},
                        "src/device/cuda/memory.cpp: no tests/cuda/device/memory_test.cpp")

    def test_a_gpu_test_does_not_stand_for_other_sources(self):
        self.expect_one({"src/base/engine.cpp": ""}, "src/base/engine.cpp: no tests/unit/base/engine_test.cpp")

    def test_finds_a_test_without_a_source(self):
        self.expect_one({"tests/unit/base/gone_test.cpp": ""}, "there is no source")

    def test_finds_excuses_that_are_stale_or_empty(self):
        self.expect_one({"tests/unmirrored.txt": GOOD["tests/unmirrored.txt"] + "src/base/gone.cpp  x\n"},
                        "does not exist")
        self.expect_one({"tests/unit/comm/gloo_test.cpp": ""}, "take its line away")
        self.expect_one({"tests/unmirrored.txt": "src/comm/gloo.cpp\n"}, "has no reason")


if __name__ == "__main__":
    unittest.main()
