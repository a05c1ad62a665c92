"""Proves that check_layers.py finds each kind of breach, and that it is silent on a tree without one."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_layers

GOOD = {
    "src/layers.txt": "# order\nbase pure\nplan pure\ncomm torch\nengine torch\nengine/cuda pure\n",
    "include/shoal/error.h": "#include <string>\n",
    "include/shoal/engine.h": '#include <ATen/core/Tensor.h>\n#include "shoal/error.h"\n',
    "src/base/error.cpp": '#include "shoal/error.h"\n#include <fmt/format.h>\n',
    "src/base/text.h": "#include <vector>\n",
    "src/plan/plan.cpp": '#include "base/text.h"\n',
    "src/comm/gloo.cpp": '#include <torch/csrc/distributed/c10d/Store.hpp>\n#include "base/text.h"\n',
    "src/engine/engine.cpp": '#include "shoal/engine.h"\n#include "comm/gloo.h"\n',
    "src/comm/gloo.h": "",
    "src/engine/cuda/norm.cu": '#include "base/text.h"\n',
}


def breaches_of(changes):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in {**GOOD, **changes}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check_layers.check(root)


class CheckLayers(unittest.TestCase):
    def expect_one(self, changes, words):
        found = breaches_of(changes)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_a_clean_tree_has_no_breach(self):
        self.assertEqual(breaches_of({}), [])

    def test_finds_an_include_of_a_lower_folder_with_its_line(self):
        self.expect_one({"src/base/text.h": '\n#include "plan/plan.h"\n', "src/plan/plan.h": ""},
                        "src/base/text.h:2: base/ includes plan/plan.h, and plan stands below")

    def test_finds_torch_in_a_pure_folder(self):
        self.expect_one({"src/plan/plan.cpp": "#include <c10/core/Device.h>\n"}, "plan/ is pure and includes c10")

    def test_finds_torch_that_comes_through_a_public_header(self):
        self.expect_one({"src/plan/plan.cpp": '#include "shoal/engine.h"\n'}, "shoal/engine.h brings torch along")

    def test_finds_torch_that_comes_through_several_headers(self):
        planted = {"src/engine/cuda/norm.cu": '\n#include "engine/parts.h"\n', "src/engine/parts.h": '#include "comm/group.h"\n',
                   "src/comm/group.h": "#include <ATen/core/Tensor.h>\n"}
        self.expect_one(planted, "src/engine/cuda/norm.cu:2: engine/cuda/ is pure, and engine/parts.h brings torch along: "
                                 "engine/parts.h > comm/group.h > ATen/core/Tensor.h")
        self.assertEqual(breaches_of(planted | {"src/comm/group.h": ""}), [])

    def test_finds_torch_behind_headers_that_include_each_other(self):
        self.expect_one({"src/engine/cuda/norm.cu": '#include "comm/a.h"\n', "src/comm/a.h": '#include "comm/b.h"\n',
                         "src/comm/b.h": '#include "comm/a.h"\n#include <torch/types.h>\n'}, "comm/b.h > torch/types.h")

    def test_names_the_pure_header_that_brings_torch_and_not_each_that_includes_it(self):
        self.expect_one({"src/base/text.h": "#include <ATen/ATen.h>\n"}, "src/base/text.h:1: base/ is pure and includes ATen")

    def test_finds_c10d_outside_comm(self):
        self.expect_one({"src/engine/e.cpp": "#include <torch/csrc/distributed/c10d/Work.hpp>\n"}, "only comm/")

    def test_finds_heavy_torch_and_private_headers_in_public_ones(self):
        self.expect_one({"include/shoal/unit.h": "#include <torch/torch.h>\n"}, "includes <torch/torch.h>")
        self.expect_one({"include/shoal/unit.h": '#include "base/text.h"\n'}, "which is not public")

    def test_finds_includes_that_are_not_rooted_or_do_not_exist(self):
        self.expect_one({"src/plan/plan.cpp": '#include "text.h"\n'}, "not rooted at src/")
        self.expect_one({"src/plan/plan.cpp": '#include "base/nothing.h"\n'}, "does not exist")

    def test_finds_folders_without_a_line_and_lines_without_a_folder(self):
        self.expect_one({"src/helpers/x.cpp": ""}, "src/helpers/x.cpp: its folder has no line")
        self.expect_one({"src/engine/views/x.cpp": ""}, "src/engine/views/x.cpp: its folder has no line")
        self.expect_one({"src/layers.txt": GOOD["src/layers.txt"] + "gone torch\n"}, "src/layers.txt: gone has no sources")

    def test_sub_folders_have_an_order_of_their_own(self):
        layers = {"src/layers.txt": GOOD["src/layers.txt"] + "models/ops torch\nmodels torch\nmodels/llama torch\n",
                  "src/models/ops/linear.h": "", "src/models/decoder.h": '#include "models/ops/linear.h"\n',
                  "src/models/llama/model.h": '#include "models/decoder.h"\n'}
        self.assertEqual(breaches_of(layers), [])
        self.expect_one(layers | {"src/models/ops/linear.h": '#include "models/llama/model.h"\n'},
                        "src/models/ops/linear.h:1: models/ops/ includes models/llama/model.h, and models/llama stands below")
        self.expect_one(layers | {"src/models/decoder.h": '#include "models/llama/model.h"\n'},
                        "src/models/decoder.h:1: models/ includes models/llama/model.h")

    def test_one_file_of_a_folder_may_stand_below_it(self):
        layers = {"src/layers.txt": GOOD["src/layers.txt"] + "models torch\nmodels/llama torch\nmodels/open.cpp torch\n",
                  "src/models/open.h": "", "src/models/llama/model.h": '#include "models/open.h"\n',
                  "src/models/open.cpp": '#include "models/open.h"\n#include "models/llama/model.h"\n'}
        self.assertEqual(breaches_of(layers), [])
        self.expect_one(layers | {"src/models/open.h": '#include "models/llama/model.h"\n'}, "models/llama stands below")

    def test_refuses_an_order_it_cannot_read(self):
        with self.assertRaises(SystemExit):
            breaches_of({"src/layers.txt": "base clean\n"})
        with self.assertRaises(SystemExit):
            breaches_of({"src/layers.txt": "base pure text\n"})


if __name__ == "__main__":
    unittest.main()
