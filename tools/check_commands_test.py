"""Proves that check_commands.py finds commands that no test runs, and no others."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_commands

FILES = {"tests/a_test.py": "def test_it():\n    pass\n", "tests/b_test.cpp": "TEST_F(Group, DoesIt) {}\n// DoesNot\n", "tools/c.sh": "make demo\n"}


def breaches_of(text, document="docs/guide.md"):
    with tempfile.TemporaryDirectory() as folder:
        for name, content in {**FILES, document: text}.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return check_commands.check(Path(folder))


def block(mark, text="shoal train --steps 5\n", language="sh"):
    return f"# Guide\n\n{mark}\n```{language}\n{text}```\n"


class CheckCommands(unittest.TestCase):
    def test_each_mark_is_taken(self):
        for mark in ("<!-- run -->", "<!-- run, quickly with --steps 3 -->", "<!-- run whole -->", "<!-- not run: needs a GPU -->",
                     "<!-- tested by tests/a_test.py test_it -->", "<!-- tested by tests/b_test.cpp DoesIt -->", "<!-- tested by tools/c.sh make demo -->"):
            self.assertEqual(breaches_of(block(mark)), [], mark)

    def test_commands_without_a_mark_are_found_with_their_line(self):
        for mark in ("", "Do this:", "<!-- runs -->", "<!-- not run: -->", "<!-- tested by tests/a_test.py -->"):
            self.assertRegex(breaches_of(block(mark))[0], r"^docs/guide\.md:4: the block shows commands that no test runs", mark)
        self.assertEqual(len(breaches_of(block("x"), "README.md")), 1)
        self.assertEqual(len(breaches_of(block("<!-- run -->") + block("x"))), 1)

    def test_a_mark_serves_one_block(self):
        self.assertEqual(len(breaches_of("<!-- run -->\n```sh\na\n```\n```sh\nb\n```\n")), 1)

    def test_a_test_that_is_not_there_is_found(self):
        for mark, message in (("tests/none_test.py test_it", "which is not there"), ("tests/a_test.py test_other", "which tests/a_test.py does not have"),
                              ("tests/b_test.cpp DoesNot", "does not have"), ("tools/c.sh make test", "does not have")):
            self.assertIn(message, breaches_of(block(f"<!-- tested by {mark} -->"))[0])

    def test_steps_must_be_there_to_be_fewer(self):
        self.assertIn("has no --steps", breaches_of(block("<!-- run, quickly with --steps 3 -->", "shoal plan\n"))[0])

    def test_a_block_names_its_language(self):
        self.assertIn("has no language", breaches_of(block("<!-- run -->", language=""))[0])
        self.assertEqual(breaches_of(block("text", language="text")), [])

    def test_python_and_json_must_parse(self):
        self.assertIn("is no python", breaches_of(block("", "for:\n", "python"))[0])
        self.assertIn("is no json", breaches_of(block("", "{a}\n", "json"))[0])
        self.assertEqual(breaches_of(block("", "x = ...\n", "python") + block("", '{"a": 1}\n', "json")), [])

    def test_a_block_within_a_list_is_one_too(self):
        self.assertEqual(len(breaches_of("1. do\n\n   ```sh\n   shoal doctor\n   ```\n")), 1)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.md")
            path.write_text("1. do\n\n   <!-- run -->\n   ```sh\n   shoal doctor\n   ```\n")
            self.assertEqual([block.text for block in check_commands.blocks_of(path)], ["shoal doctor\n"])


if __name__ == "__main__":
    unittest.main()
