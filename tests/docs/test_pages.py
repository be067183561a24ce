"""The documents: links lead somewhere, options are described, nothing names another place than the project."""

import re
from pathlib import Path

from tests.offenders import assert_none
from trainwarden.stack import up

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "rules/runbooks").glob("*.md")])
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_every_link_into_the_repository_leads_somewhere() -> None:
    assert_none(
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in _LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    )


def test_every_page_of_the_documents_is_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"docs/{page.name}" not in readme] == []


def test_every_option_of_up_is_described_and_no_other() -> None:
    text = (ROOT / "docs/up.md").read_text(encoding="utf-8").partition("## What the command sees")[0]
    described = set(re.findall(r"`(--[a-z-]+)", text))
    options = re.findall(r"^  (-.+?)(?:  |$)", up.parser().format_help(), re.MULTILINE)
    assert described == {flag for option in options for flag in re.findall(r"--[a-z-]+", option)} - {"--help"}


def test_the_readme_shows_every_scenario_of_the_demo() -> None:
    source = (ROOT / "examples/demo/demo.py").read_text(encoding="utf-8")
    scenarios = set(re.findall(r'^    "(\w+)": Scenario\(', source, re.MULTILINE))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)`", readme, re.MULTILINE)) == scenarios


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert_none(
        f"{name}: make {target}"
        for name in ("README.md", "CONTRIBUTING.md")
        for target in re.findall(r"(?:`|^ {4})make ([a-z-]+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        if target not in targets
    )
