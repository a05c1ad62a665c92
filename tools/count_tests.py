"""Counts the test cases of a run from GoogleTest's XML files, and prints which were skipped, by reason. What failed
comes last, with its first message: in a long log of many ranks it is hard to find.

    count_tests.py <folder of xml files>
"""

import sys
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Case:
    """A test case that ran or was skipped."""

    name: str
    skipped: str = ""  # why, if it was
    failed: str = ""  # the first message, if it did


def read_cases(folder):
    cases = []
    for path in sorted(Path(folder).glob("*.xml")):
        try:
            root = xml.parse(path).getroot()
        except xml.ParseError:
            continue  # a process that was killed on purpose leaves half a file
        for element in root.iter("testcase"):
            case = Case(f"{element.get('classname')}.{element.get('name')}")
            if element.get("result") == "skipped":
                case.skipped = reason_of(element.find("skipped"))
            elif element.get("result") != "completed":
                continue
            elif (failure := element.find("failure")) is not None:
                case.failed = failure.get("message") or "no message given"
            cases.append(case)
    return cases


def reason_of(skipped):
    message = (skipped.get("message") if skipped is not None else "") or ""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    # GoogleTest puts file:line first.
    return " ".join(lines[1:]) or " ".join(lines) or "no reason given"


def names_of(names):
    """All of a few; the first two of many."""
    if len(names) < 3:
        return ", ".join(names)
    return f"{len(names)} cases ({names[0]}, {names[1]} and {len(names) - 2} more)"


def report(cases):
    skipped = [case for case in cases if case.skipped]
    failed = [case for case in cases if case.failed]
    yield f"[tests] {len(cases) - len(skipped)} GoogleTest cases ran, {len(skipped)} skipped, {len(failed)} failed"
    by_reason = {}
    for case in skipped:
        by_reason.setdefault(case.skipped, []).append(case.name)
    for reason, names in by_reason.items():
        yield f"[tests]   skipped {names_of(names)}: {reason}"
    for case in failed:
        yield f"[tests]   FAILED {case.name}"
        for line in case.failed.splitlines():
            yield f"[tests]     {line}"


if __name__ == "__main__":
    print("\n".join(report(read_cases(sys.argv[1]))))
