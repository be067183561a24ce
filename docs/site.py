"""A hook of MkDocs: the site has the documents at their places in the repository, so their links hold in both.

Beside docs/ these are the pages at the top and the runbooks, and each file that one of them links to.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
RUNBOOKS = ROOT / "rules/runbooks"
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s:]+)(?:#[^)\s]*)?\)")

_FORGE = re.compile(r"^\[[^\]]+\]: \.\./\.\./(?:compare|releases)/.*\n", re.MULTILINE)  # comparisons of versions


def pages() -> list[Path]:
    """Return the documents, as paths below the repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *RUNBOOKS.glob("*.md")]
    return sorted(path.relative_to(ROOT) for path in found)


def linked_files(page: Path) -> set[Path]:
    """Return the other files of the repository to which a document links, such as a rule file."""
    links = _LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    targets = {(ROOT / page.parent / target).resolve() for _, target in links}
    return {path.relative_to(ROOT) for path in targets if path.is_file() and path.suffix != ".md"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Append the runbooks to the navigation, by the names of their alerts."""
    runbooks = [{path.stem: f"rules/runbooks/{path.name}"} for path in sorted(RUNBOOKS.glob("*.md"))]
    config.nav = [*(config.nav or []), {"Runbooks": runbooks}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of docs/ by those of the repository."""
    documents = pages()
    paths = {*documents, *(path for page in documents for path in linked_files(page))}
    themes = [file for file in files if file.src_dir != config.docs_dir]
    ours = [File.generated(config, path.as_posix(), abs_src_path=str(ROOT / path)) for path in sorted(paths)]
    return Files([*themes, *ours])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001  # by name
    """Leave of a link to a folder, or to a page of the forge, its text: the site has files alone."""
    here = (ROOT / page.file.src_uri).parent

    def within_the_site(link: re.Match[str]) -> str:
        return link[1] if (here / link[2]).is_dir() else link[0]

    return _LINK.sub(within_the_site, _FORGE.sub("", markdown))
