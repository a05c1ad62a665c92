"""Makes the documentation site's sources and builds it, for `make docs`.

    docs_site.py SITE [SOURCES]     with mkdocs and mkdocs-material of the Python that runs this (tools/docs.sh has their versions)

Pages are those of docs/, the README as the start, what else they link to of Markdown, and the C++ API. Files that are linked to and are no pages
come along. Every warning of mkdocs is an error; so is a page that would fetch something from elsewhere.
"""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_links
import docs_api

ROOT = Path(__file__).resolve().parents[1]
# Section, pages by their path in the repository. tests/docs/docs_site_test.py sees to it that no document is left out.
PAGES = [
    ("Start", ["README.md", "docs/install.md", "docs/performance.md", "docs/limits.md"]),
    ("Train", ["docs/train.md", "docs/plan.md", "docs/scaling.md", "docs/launch.md", "docs/gpu.md", "docs/offload.md"]),
    ("Switch from DeepSpeed", ["docs/from_deepspeed.md", "docs/huggingface.md", "docs/config.md"]),
    ("Clusters", ["docs/clusters.md", "docs/reliability.md", "docs/hybrid.md", "docs/transports.md", "docs/security.md"]),
    ("Promises", ["docs/exactness.md", "docs/formats/checkpoint.md", "docs/formats/tokens.md", "docs/formats/run.md"]),
    ("C++", ["docs/library.md"]),
    ("Design", ["docs/architecture.md", "src/README.md", "docs/glossary.md", "docs/adding_a_model.md", "docs/adding_an_optimizer.md", "CONTRIBUTING.md",
                "CHANGELOG.md", "bench/README.md"]),
]


def place_of(path):
    """Where a file of the repository stands in the site's sources."""
    if path == "README.md":
        return "index.md"
    if path == "src/README.md":
        return "source.md"
    if path == "bench/README.md":
        return "bench.md"
    if path == "include/shoal" or path.startswith("include/shoal/"):
        return "api/index.md" if path == "include/shoal" else f"api/{Path(path).stem}.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("bench/results") and (path.endswith(".md") or path == "bench/results"):
        return path.replace("bench/results", "results", 1) if path.endswith(".md") else "results/index.md"
    if path.endswith(".md"):
        return path.lower()
    return f"files/{path}.txt" if Path(path).suffix in ("", ".h", ".cpp", ".py", ".sh", ".cmake", ".json") else f"files/{path}"


class Sources:
    def __init__(self, root, folder):
        self.root, self.folder = root, folder
        self.waiting, self.known = [], set()

    def want(self, path):
        if path not in self.known:
            self.known.add(path)
            self.waiting.append(path)

    def link(self, page, link):
        """A link of a page, as it is in the site."""
        if re.match(r"[a-z][a-z0-9+.-]*:", link) or link.startswith("#"):
            return link
        name, _, anchor = link.partition("#")
        target = Path(os.path.normpath(self.root / Path(page).parent / name)).relative_to(self.root).as_posix()
        if (self.root / target).is_dir() and target not in ("bench/results", "include/shoal"):
            raise SystemExit(f"[docs] {page} links to the folder {target}, which has no page. Link to a file of it.")
        self.want(target)
        at = os.path.relpath(place_of(target), Path(place_of(page)).parent)
        return at + (f"#{anchor}" if anchor else "")

    def write(self, place, text):
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def copy_page(self, page):
        lines = (self.root / page).read_text().splitlines()
        for number, shown in check_links.lines_without_code((self.root / page).read_text()):
            links = set(check_links.LINK.findall(shown))
            for link in links:
                lines[number - 1] = lines[number - 1].replace(f"]({link})", f"]({self.link(page, link)})")
        self.write(place_of(page), "\n".join(line for line in lines if not re.match(r"^\s*<!-- (run|tested by|not run)\b.*-->$", line)) + "\n")

    def make(self, pages):
        for page in pages:
            self.want(page)
        while self.waiting:
            path = self.waiting.pop()
            if path == "bench/results":
                results = sorted((self.root / path).glob("*.md"))
                self.write(place_of(path), "# Results\n\n" + "\n".join(f"- [{result.stem}]({result.name})" for result in results) + "\n")
                for result in results:
                    self.want(f"{path}/{result.name}")
            elif path == "include/shoal" or path.startswith("include/shoal/"):
                continue  # the API's pages are made for all headers
            elif path.endswith(".md"):
                self.copy_page(path)
            else:
                (self.folder / place_of(path)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.root / path, self.folder / place_of(path))
        headers = sorted((self.root / "include/shoal").glob("*.h"))
        for header in headers:
            self.write(f"api/{header.stem}.md", docs_api.page(header.name, header.read_text()))
        self.write("api/index.md", "# C++ API\n\nMade from the comments of the headers. [The library](../library.md) says where to begin.\n\n"
                   + "\n".join(f"- [{header.name}]({header.stem}.md)" for header in headers) + "\n")
        return [header.stem for header in headers]


def title_of(path):
    return re.search(r"^# (.+)$", path.read_text(), re.M)[1].replace("`", "").replace('"', "'")


def settings(sources, apis):
    """mkdocs.yml: no font, icon or script from elsewhere, and pages that a browser opens from the disk."""
    lines = ["site_name: Shoal", f"docs_dir: {sources.folder}", "use_directory_urls: false", "theme:", "  name: material", "  font: false",
             "  palette: {scheme: default, primary: indigo}", "  features: [navigation.sections, navigation.indexes, content.code.copy, toc.follow]",
             "plugins: [search]", "extra: {generator: false}", "markdown_extensions:", "  - tables", "  - attr_list",
             "  - pymdownx.highlight: {anchor_linenums: false}", "  - pymdownx.superfences",
             "  - toc: {permalink: true, slugify: !!python/name:check_links.slug_for_mkdocs }",
             "validation: {nav: {omitted_files: info, not_found: warn, absolute_links: warn}, links: {not_found: warn, anchors: warn, unrecognized_links: warn, absolute_links: warn}}",
             "nav:"]
    for section, pages in PAGES:
        lines.append(f"  - {section}:")
        lines += [f"    - \"{title_of(sources.root / page)}\": {place_of(page)}" for page in pages]
        if section == "C++":
            lines += ["    - API:", "      - api/index.md"] + [f"      - \"{name}.h\": api/{name}.md" for name in apis]
    return "\n".join(lines + ["  - Results: results/index.md", ""])


class Fetches(HTMLParser):
    """What a page would fetch when it is opened."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        address = values.get("src") or values.get("srcset") or (values.get("href") if tag == "link" and values.get("rel") != "canonical" else None)
        if address and re.match(r"(https?:)?//", address):
            self.found.append(f"<{tag}> {address}")


def fetched_from_elsewhere(site):
    found = []
    for path in sorted(site.rglob("*.html")):
        parser = Fetches()
        parser.feed(path.read_text())
        found += [f"{path.relative_to(site)}: {what}" for what in parser.found]
    for path in sorted(site.rglob("*.css")):
        found += [f"{path.relative_to(site)}: {what}" for what in re.findall(r"(?:@import|url\()\s*['\"]?((?:https?:)?//[^'\")]+)", path.read_text())]
    return found


def build(site, folder):
    if folder.exists():
        shutil.rmtree(folder)
    sources = Sources(ROOT, folder)
    sources.want("bench/results")
    apis = sources.make([page for _, pages in PAGES for page in pages])
    config = folder.parent / "mkdocs.yml"
    config.write_text(settings(sources, apis))
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", config, "--site-dir", site],
                          env=os.environ | {"PYTHONPATH": str(ROOT / "tools"), "NO_MKDOCS_2_WARNING": "1"})
    if done.returncode:
        raise SystemExit("[docs] the site does not build without warnings: see above.")
    if found := fetched_from_elsewhere(site):
        raise SystemExit("[docs] pages that would fetch from elsewhere:\n" + "\n".join(found[:20]))
    print(f"[docs] {site}/index.html: {len(list(site.rglob('*.html')))} pages")


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    build(target, Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else target.with_name(target.name + "-sources"))
