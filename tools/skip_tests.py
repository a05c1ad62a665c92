"""Stands for test programs that a build leaves out: counts their cases as skipped, for ctest and for count_tests.py.

    skip_tests.py <reason> <source files ...>

Writes a file of results into the folder that GTEST_OUTPUT names, as a GoogleTest program would, and ends with 77.
"""

import os
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

SKIPPED = 77  # ctest's SKIP_RETURN_CODE
CASE = re.compile(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)


def cases_in(text):
    return [(match[1], match[2]) for match in CASE.finditer(text)]


def results_of(cases, reason):
    root = xml.Element("testsuites")
    suite = xml.SubElement(root, "testsuite", name="left out")
    for classname, name in cases:
        case = xml.SubElement(suite, "testcase", name=name, classname=classname, result="skipped")
        xml.SubElement(case, "skipped", message=reason)
    return xml.tostring(root, encoding="unicode")


def main(reason, sources):
    cases = [case for source in sources for case in cases_in(Path(source).read_text())]
    print(f"{len(cases)} cases of {len(sources)} programs are left out: {reason}.")
    output = os.environ.get("GTEST_OUTPUT", "")
    if output.startswith("xml:"):
        Path(output.removeprefix("xml:"), "left_out.xml").write_text(results_of(cases, reason))
    return SKIPPED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
