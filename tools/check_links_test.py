"""Proves that check_links.py finds links and anchors that lead nowhere, and no others."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_links

FILES = {"docs/plan.md": "# Will it fit?\n\n## The `shoal.x` key, and \"auto\"\n\n## Twice\n\n## Twice\n", "docs/images/a.svg": "<svg/>",
         "bench/results/a.md": "# A\n"}


def breaches_of(text, document="docs/guide.md"):
    with tempfile.TemporaryDirectory() as folder:
        for name, content in {**FILES, document: text}.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return check_links.check(Path(folder).resolve())


class CheckLinks(unittest.TestCase):
    def test_what_is_there_is_left_alone(self):
        text = ("# Here\n[a](plan.md) ![i](images/a.svg) [b](plan.md#will-it-fit) [c](plan.md#the-shoalx-key-and-auto) [d](#here)\n"
                "[e](../bench/results/a.md) [f](../bench/results) [g](plan.md#twice-1) [h](https://example.org/x#y) [`[x]` i](plan.md)\n")
        self.assertEqual(breaches_of(text), [])
        self.assertEqual(breaches_of("[plan](docs/plan.md)", "README.md"), [])

    def test_finds_files_that_are_not_there_with_the_line(self):
        self.assertEqual(breaches_of("# Here\n\n[a](plans.md)"), ["docs/guide.md:3: plans.md leads to no file."])
        self.assertEqual(breaches_of("![a](images/b.svg)"), ["docs/guide.md:1: images/b.svg leads to no file."])
        self.assertEqual(breaches_of("two [a](plan.md) and [b](none.md)"), ["docs/guide.md:1: none.md leads to no file."])

    def test_finds_headings_that_are_not_there(self):
        for link in ("plan.md#will-it", "#nowhere", "plan.md#twice-2", "images/a.svg#top"):
            self.assertEqual(breaches_of(f"[a]({link})"), [f"docs/guide.md:1: {link} has no such heading."])

    def test_a_link_may_not_leave_the_repository(self):
        self.assertEqual(breaches_of("[a](../../..)"), ["docs/guide.md:1: ../../.. leads out of the repository."])

    def test_code_is_no_link(self):
        self.assertEqual(breaches_of("`[a](none.md)`\n\n```cpp\n[a](none.md)\n# no heading\n```\n"), [])
        self.assertEqual(breaches_of("```\n# no heading\n```\n[a](#no-heading)"), ["docs/guide.md:4: #no-heading has no such heading."])


if __name__ == "__main__":
    unittest.main()
