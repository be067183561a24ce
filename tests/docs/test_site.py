"""The site is built of all documents, strictly and without a network, and loads nothing of other hosts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "rules/runbooks").glob("*.md")]
STARTS = ("start-ml-engineer", "start-sre", "start-platform-owner")
# What a browser loads by itself; `a` waits for a click.
_LOADED = {
    *(("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"), ("audio", "src")),
    *(("link", "href"), ("img", "srcset"), ("object", "data"), ("embed", "src"), ("use", "href")),
}
_STYLE_URL = re.compile(r"url\(\s*[\"']?([^)\"']+)|@import\s+[\"']([^\"']+)")

pytestmark = pytest.mark.slow


def foreign(address: str) -> bool:
    return bool(re.match(r"(?:[a-z][a-z0-9+.-]*:)?//", address.strip(), re.IGNORECASE))


class Assets(HTMLParser):
    """The addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if (tag, name) in _LOADED and value:
                self.addresses.append(value)
            if name == "style" and value:
                self.addresses += style_addresses(value)


def style_addresses(text: str) -> list[str]:
    return [url or imported for url, imported in _STYLE_URL.findall(text)]


def loaded(file: Path) -> Iterator[str]:
    """Yield each address that a browser loads for a page or a style sheet."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".css":
        yield from style_addresses(text)
    else:
        assets = Assets()
        assets.feed(text)
        yield from assets.addresses


def without_network() -> list[str]:
    allowed = subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode == 0
    return ["unshare", "-rn"] if allowed else []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; on a machine that permits it, built in a network of its own that leads nowhere."""
    folder = tmp_path_factory.mktemp("site")
    command = [*without_network(), sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_document_is_a_page_and_found_by_the_search(site: Path) -> None:
    found = {entry["location"] for entry in json.loads((site / "search/search_index.json").read_text())["docs"]}
    for document in DOCUMENTS:
        relative = document.relative_to(ROOT).with_suffix(".html").as_posix()
        page = "index.html" if relative == "README.html" else relative
        assert (site / page).is_file(), page
        assert page in found, f"{page} is missing from the index of the search"


def test_a_browser_loads_nothing_of_other_hosts(site: Path) -> None:
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(files) > len(DOCUMENTS)
    assert [(file.name, address) for file in files for address in loaded(file) if foreign(address)] == []


def test_what_a_browser_loads_is_there(site: Path) -> None:
    for file in site.rglob("*.html"):
        paths = [address.partition("?")[0].partition("#")[0] for address in loaded(file) if address[:5] != "data:"]
        base = site if file.name == "404.html" else file.parent
        assert [path for path in paths if not (base / path.lstrip("/")).exists()] == [], file.name


def test_an_asset_of_another_host_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<link href="https://fonts.example/a.css"><a href="https://fine.example/">x</a><img src="a.png">')
    assert [address for address in loaded(page) if foreign(address)] == ["https://fonts.example/a.css"]
    (tmp_path / "a.css").write_text("@font-face { src: url('//fonts.example/a.woff2') }")
    assert [address for address in loaded(tmp_path / "a.css") if foreign(address)] == ["//fonts.example/a.woff2"]


@pytest.mark.parametrize("name", STARTS)
def test_the_start_pages_are_short_and_lead_from_the_readme(name: str) -> None:
    text = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 100
    assert f"(docs/{name}.md)" in (ROOT / "README.md").read_text(encoding="utf-8").partition("| page |")[0]
    assert len(re.findall(r"^ +trainwarden[a-z-]* ", text, re.MULTILINE)) >= 3
