"""Counts the test cases of a run from GoogleTest's XML files, and prints each skipped one with its reason.

    count_tests.py <folder of xml files>
"""

import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def read_cases(folder):
    """Each test case that ran or was skipped: (name, reason or None)."""
    cases = []
    for path in sorted(Path(folder).glob("*.xml")):
        try:
            root = xml.parse(path).getroot()
        except xml.ParseError:
            continue  # a process that was killed on purpose leaves half a file
        for case in root.iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}"
            if case.get("result") == "skipped":
                skipped = case.find("skipped")
                message = (skipped.get("message") if skipped is not None else "") or ""
                lines = [line.strip() for line in message.splitlines() if line.strip()]
                # GoogleTest puts file:line first.
                cases.append((name, " ".join(lines[1:]) or " ".join(lines) or "no reason given"))
            elif case.get("result") == "completed":
                cases.append((name, None))
    return cases


if __name__ == "__main__":
    cases = read_cases(sys.argv[1])
    skipped = [(name, reason) for name, reason in cases if reason is not None]
    print(f"[tests] {len(cases) - len(skipped)} GoogleTest cases ran, {len(skipped)} skipped")
    for name, reason in skipped:
        print(f"[tests]   skipped {name}: {reason}")
