"""Tests of count_tests.py: what each kind of GoogleTest result becomes."""

import tempfile
import unittest
from pathlib import Path

from count_tests import read_cases, report

RUN = """<?xml version="1.0"?><testsuites><testsuite name="Shard">
<testcase name="Fits" result="completed" classname="Shard"/>
<testcase name="NeedsAGpu" result="skipped" classname="Shard"><skipped message="a.cpp:3&#x0A;no GPU&#x0A;"/></testcase>
<testcase name="Off" result="suppressed" classname="Shard"/>
<testcase name="Sums" result="completed" classname="Shard">
<failure message="b.cpp:7&#x0A;Expected: 1&#x0A;Actual: 2" type=""/><failure message="another" type=""/></testcase>
</testsuite></testsuites>"""


class CountTests(unittest.TestCase):
    def lines_of(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                (Path(folder) / f"{name}.xml").write_text(text)
            return list(report(read_cases(folder)))

    def test_failures_come_last_with_their_first_message(self):
        self.assertEqual(
            self.lines_of(run=RUN),
            [
                "[tests] 2 GoogleTest cases ran, 1 skipped, 1 failed",
                "[tests]   skipped Shard.NeedsAGpu: no GPU",
                "[tests]   FAILED Shard.Sums",
                "[tests]     b.cpp:7",
                "[tests]     Expected: 1",
                "[tests]     Actual: 2",
            ],
        )

    def test_half_a_file_of_a_killed_process_is_passed_over(self):
        self.assertEqual(self.lines_of(run=RUN[:80]), ["[tests] 0 GoogleTest cases ran, 0 skipped, 0 failed"])


if __name__ == "__main__":
    unittest.main()
