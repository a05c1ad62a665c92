"""Redraws the plots of the documents from bench/results/ and compares; shows that a figure, a row or a plot that is not there is found."""

import re
import shutil
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import plots

TEXT = """# Steps

2026-11-17, one machine.

| program | seconds | memory |
|---|---:|---:|
| **Shoal** | 0.5 (1.00) | 3 GiB |
| peer | 1,000 | 4 GiB |

## Later

| program | seconds |
|---|---:|
| peer | 7 |
"""
PLOT = {"out": "a.svg", "title": "T & t", "subtitle": "of {date}", "source": "a.md", "section": "", "column": "seconds",
        "bars": [{"row": ["Shoal"], "label": "ours", "color": "ours"}, {"row": ["peer"], "label": "peer", "color": "peer"}]}


class Plots(unittest.TestCase):
    def test_the_plots_are_what_the_results_say(self):
        self.assertEqual(plots.differences(), [])

    def test_plots_json_has_no_figures_beside_names(self):
        labels = re.findall(r'"(?:title|subtitle|label)": "([^"]*)"', (plots.ROOT / "bench/plots.json").read_text())
        self.assertGreater(len(labels), 10)
        for label in labels:
            self.assertNotRegex(label, r"\d\.\d{3}|\d ms|\d s\b")

    def test_a_changed_figure_is_another_plot(self):
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for folder in ("bench/results", "docs/images"):
                shutil.copytree(plots.ROOT / folder, root / folder)
            shutil.copy(plots.ROOT / "bench/plots.json", root / "bench")
            self.assertEqual(plots.differences(root), [])
            result = root / "bench/results/offload-h200-2026-11-17.md"
            result.write_text(result.read_text().replace("| 3.372 |", "| 3.373 |"))
            self.assertEqual(plots.differences(root), ["docs/images/offload-3b.svg is not what bench/results/ says. Run bench/plots.py."])
            (root / "docs/images/typed.svg").write_text("<svg/>")
            self.assertEqual(len(plots.differences(root)), 2)

    def test_figures_come_from_the_section_that_is_asked_for(self):
        drawn = plots.draw(PLOT, TEXT)
        self.assertEqual(re.findall(r'font-weight="600">([\d.,]+)<', drawn), ["0.5", "1,000"])
        self.assertIn("of 2026-11-17", drawn)
        later = plots.draw({**PLOT, "section": "Later", "bars": PLOT["bars"][1:]}, TEXT)
        self.assertEqual(re.findall(r'font-weight="600">([\d.,]+)<', later), ["7"])

    def test_bars_are_as_long_as_their_figures(self):
        widths = [float(width) for width in re.findall(r'<rect x="240"[^>]* width="([\d.]+)"', plots.draw({**PLOT, "section": ""}, TEXT.replace("1,000", "1.0")))]
        self.assertAlmostEqual(widths[1] / widths[0], 2, places=2)

    def test_it_is_xml_and_fetches_nothing(self):
        for drawn in (plots.draw({**PLOT, "note": "memory"}, TEXT), *plots.draw_all().values()):
            xml.etree.ElementTree.fromstring(drawn)
            self.assertNotRegex(drawn.replace('xmlns="http://www.w3.org/2000/svg"', ""), "http|script|@import|url\\(")

    def test_a_row_that_stands_twice_wants_its_table_named(self):
        twice = TEXT.split("## Later")[0] + "\n| program | seconds |\n|---|---:|\n| peer | 7 |\n"
        with self.assertRaisesRegex(plots.Mistake, "2 rows are the row peer"):
            plots.draw(PLOT, twice)
        drawn = plots.draw({**PLOT, "table": 1, "bars": PLOT["bars"][1:]}, twice)
        self.assertEqual(re.findall(r'font-weight="600">([\d.,]+)<', drawn), ["7"])

    def test_what_is_not_in_the_results_is_an_error(self):
        wrong = [({**PLOT, "column": "hours"}, TEXT, "no table has the row Shoal and the column hours"),
                 ({**PLOT, "bars": [{"row": ["Shole"], "label": "x", "color": "ours"}]}, TEXT, "no table has the row Shole"),
                 ({**PLOT, "section": "Never"}, TEXT, "no table has"),
                 (PLOT, TEXT.replace("0.5 (1.00)", "fast"), "'fast' has no number"),
                 (PLOT, TEXT.replace("2026-11-17", "today"), "has no date")]
        for plot, text, message in wrong:
            with self.assertRaisesRegex(plots.Mistake, re.escape(message)):
                plots.draw(plot, text)


if __name__ == "__main__":
    unittest.main()
