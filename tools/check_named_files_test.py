"""Proves that check_named_files.py finds names that lead nowhere, and no others."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_named_files

FILES = {"src/layout/cut.h": "", "python/shoal/engine.py": "", "tools/setup.sh": "", "tests/process/said.h": ""}


def breaches_of(document, text):
    with tempfile.TemporaryDirectory() as folder:
        for name, content in {**FILES, document: text}.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return check_named_files.check(Path(folder))


class CheckNamedFiles(unittest.TestCase):
    def test_names_may_begin_at_the_repository_or_one_of_its_trees(self):
        text = "`src/layout/cut.h`, `layout/cut.h`, `python/shoal/engine.py`, `shoal/engine.py`, `tools/setup.sh`, `process/said.h`"
        self.assertEqual(breaches_of("src/README.md", text), [])

    def test_finds_a_name_that_leads_nowhere_with_its_line(self):
        for document in ("README.md", "src/README.md", "docs/plan.md", "docs/formats/checkpoint.md"):
            self.assertEqual(breaches_of(document, "\n| cuts | `layout/cuts.h` |\n"),
                             [f"{document}:2: there is no layout/cuts.h."])

    def test_passes_over_patterns_and_what_is_no_source(self):
        self.assertEqual(breaches_of("README.md", "`config/<section>.cpp`, `a/b`, `run/metrics.jsonl`, `cut.h`, layout/no.h, `ATen/core/Tensor.h`"), [])
        self.assertEqual(breaches_of("CHANGELOG.md", "`layout/gone.h`"), [])


if __name__ == "__main__":
    unittest.main()
