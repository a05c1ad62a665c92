"""Tests of sanitize.py: what runs first, what is left out when time runs out, and what is a failure."""

import contextlib
import io
import os
import time
import unittest

import sanitize
from sanitize import Clock, Test


def run_batch(tests, seconds, jobs=1):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        return sanitize.run_batch(tests, Clock(seconds), dict(os.environ), [], jobs), said.getvalue()


class Sanitize(unittest.TestCase):
    def setUp(self):
        self.least, sanitize.LEAST_SECONDS = sanitize.LEAST_SECONDS, 0.2

    def tearDown(self):
        sanitize.LEAST_SECONDS = self.least

    def test_the_most_valuable_programs_make_the_first_batch(self):
        tests = [Test(name) for name in ("unit_base", "unit_engine", "ranks_more", "unit_aten", "ranks")]
        first, rest = sanitize.batches(tests)
        self.assertEqual([test.name for test in first], ["ranks", "ranks_more", "unit_engine"])
        self.assertEqual([test.name for test in rest], ["unit_aten", "unit_base"])

    def test_what_time_does_not_reach_is_named_and_no_failure(self):
        tests = [Test("quick", ["true"]), Test("long", ["sleep", "30"]), Test("never", ["true"])]
        begin = time.monotonic()
        ends, _ = run_batch(tests, 1.0)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(ends, {"quick": "passed", "long": "not reached", "never": "not reached"})
        self.assertEqual(
            sanitize.summary("thread", ends),
            "[sanitize] thread: 1 of 3 programs passed\n[sanitize] thread, not reached: long never",
        )

    def test_without_a_time_everything_runs_and_failures_are_shown(self):
        broken = Test("broken", ["sh", "-c", "echo a race; echo $KEY; exit 66"], {"KEY": "of its own"})
        hanging = Test("hanging", ["sleep", "30"], limit_seconds=0.3)
        ends, said = run_batch([broken, hanging, Test("good", ["true"])], None, jobs=2)
        self.assertEqual(ends, {"broken": "failed", "hanging": "failed", "good": "passed"})
        self.assertIn("[sanitize] broken FAILED in 0 s\na race\nof its own\n", said)
        self.assertIn("killed after 0 s", said)


if __name__ == "__main__":
    unittest.main()
