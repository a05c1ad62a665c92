"""tools/docs_site.py: every document is in the site, links lead to its pages, the API comes from the headers; and the site itself builds
strictly and fetches nothing.

    docs_site_test.py           without mkdocs
    docs_site_test.py --build   with that of .venv-docs (`make docs` makes it), or SHOAL_DOCS_PYTHON
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import docs_api
import docs_site

PYTHON = Path(os.environ.get("SHOAL_DOCS_PYTHON", ROOT / ".venv-docs/bin/python3"))
HEADER = """// What it is for: a < b.
//
//   int x = f(1);
//
// More.
#pragma once

#include <vector>

namespace shoal {

class Later;

// Counts.
inline constexpr int kRows[] = {1, 2};
static_assert(kRows[0] == 1);

// Adds "{".
int f(int a,
      int b = g({1}));
// The same with one.
int f(int a);

class Thing {
 public:
  // Does.
  void run();

 private:
  int hidden_;
};

enum class Kind : int { a, b };

}  // namespace shoal
"""


class Site(unittest.TestCase):
    def test_no_document_is_left_out(self):
        pages = [page for _, pages in docs_site.PAGES for page in pages]
        self.assertEqual(len(pages), len(set(pages)))
        documents = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")}
        self.assertEqual(documents - set(pages), set(), "name them in PAGES of tools/docs_site.py")
        self.assertEqual({page for page in pages if not (ROOT / page).is_file()}, set())

    def test_links_lead_to_the_pages_of_the_site(self):
        sources = docs_site.Sources(ROOT, Path("/nowhere"))
        for page, link, there in (("README.md", "docs/plan.md#will-it-fit", "plan.md#will-it-fit"), ("docs/plan.md", "offload.md", "offload.md"),
                                  ("docs/formats/checkpoint.md", "../plan.md", "../plan.md"), ("docs/plan.md", "../README.md", "index.md"),
                                  ("docs/library.md", "../include/shoal/engine.h", "api/engine.md"), ("README.md", "#install", "#install"),
                                  ("docs/limits.md", "../bench/results/nccl-h200-2026-11-18.md", "results/nccl-h200-2026-11-18.md"),
                                  ("docs/library.md", "../examples/train_mlp.cpp", "files/examples/train_mlp.cpp.txt"),
                                  ("src/README.md", "../docs/glossary.md", "glossary.md"), ("README.md", "https://a.org/b", "https://a.org/b")):
            self.assertEqual(sources.link(page, link), there)

    def test_the_api_has_what_the_headers_declare_and_nothing_private(self):
        first, items = docs_api.items_of(HEADER)
        self.assertEqual(first, "What it is for: a &lt; b.\n\n```cpp\nint x = f(1);\n```\n\n\nMore.")
        self.assertEqual([item.name for item in items], ["kRows", "f()", "Thing", "Kind"])
        self.assertEqual(items[0].comment, "Counts.")
        self.assertIn("// The same with one.\nint f(int a);", items[1].code)
        self.assertIn("void run();", items[2].code)
        self.assertNotIn("hidden_", items[2].code)
        with self.assertRaises(SystemExit):
            docs_api.items_of("// a\n\n!!;\n")

    def test_every_public_header_is_read(self):
        for header in sorted((ROOT / "include/shoal").glob("*.h")):
            with self.subTest(header.name):
                first, items = docs_api.items_of(header.read_text())
                self.assertTrue(first and items)

    def test_what_a_page_would_fetch_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "a.html").write_text('<a href="https://a.org">x</a><link rel="canonical" href="https://a.org"><script src="b.js"></script>')
            self.assertEqual(docs_site.fetched_from_elsewhere(Path(name)), [])
            for text in ('<script src="https://a.org/x.js"></script>', '<link rel="stylesheet" href="//a.org/x.css">', '<img src="http://a.org/x.png">'):
                (Path(name) / "a.html").write_text(text)
                self.assertEqual(len(docs_site.fetched_from_elsewhere(Path(name))), 1, text)
            (Path(name) / "a.html").write_text("")
            (Path(name) / "a.css").write_text("@font-face{src:url(https://fonts.org/x.woff)}")
            self.assertEqual(len(docs_site.fetched_from_elsewhere(Path(name))), 1)


class Build(unittest.TestCase):
    def test_the_site_builds_strictly_and_fails_on_a_warning(self):
        with tempfile.TemporaryDirectory() as name:
            done = subprocess.run([PYTHON, ROOT / "tools/docs_site.py", Path(name, "site")], capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("Shoal", Path(name, "site/index.html").read_text())
            self.assertIn("StepResult", Path(name, "site/api/engine.html").read_text())
            self.assertTrue(Path(name, "site/images/offload-3b.svg").is_file())
            (Path(name) / "site-sources/plan.md").write_text("# Plan\n\n[a](none.md) [b](train.md#no-such-heading)\n")
            broken = subprocess.run([PYTHON, "-m", "mkdocs", "build", "--strict", "--config-file", Path(name, "mkdocs.yml"), "--site-dir", Path(name, "b")],
                                    capture_output=True, text=True, timeout=300, env=os.environ | {"PYTHONPATH": str(ROOT / "tools")})
            self.assertNotEqual(broken.returncode, 0)
            self.assertIn("none.md", broken.stderr)
            self.assertIn("no-such-heading", broken.stderr)


if __name__ == "__main__":
    if sys.argv[1:] == ["--build"] and not PYTHON.exists():
        print("skipped: there is no .venv-docs; make docs makes it")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], "Build" if sys.argv[1:] == ["--build"] else "Site"])
