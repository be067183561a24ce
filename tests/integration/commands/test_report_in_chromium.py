"""The page of `trainwarden report` as Chromium shows it: wide and narrow, light and dark, and without complaint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Browser, browser, different_lines
from tests.unit.report.test_report import Measured
from tests.unit.runs.records import NOW, foreign_run, write
from trainwarden.record.clock import to_iso
from trainwarden.report.command import report, write_page

pytestmark = pytest.mark.tools
LONG = "/data/" + "a_folder_with_a_long_name/" * 6 + "rank_0_of_a_run_that_nobody_would_abbreviate.log"
SIZES = [(1280, False), (1280, True), (400, False), (400, True)]


def events(folder: Path, *lines: tuple[float, str, dict[str, object]]) -> None:
    text = "".join(
        f"{json.dumps({'timestamp': to_iso(NOW - before), 'event_type': kind, 'data': data})}\n"
        for before, kind, data in lines
    )
    (folder / "events.jsonl").write_text(text, encoding="utf-8")


def log(folder: Path, last: str) -> None:
    steps = "".join(
        f"step {step}/5000 loss: {3 - step / 1000:.3f} lr: 1e-4 tokens/s: 9100\n" for step in range(0, 1500, 10)
    )
    (folder / "logs/training_log_latest.txt").write_text(f"{steps}{last}\n", encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of a run that failed, and that of one that was restarted."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: NOW)
        failed = foreign_run(folder / "runs", run_id="failed")
        trace = f'Traceback (most recent call last):\n  File "{LONG}", line 88\nRuntimeError: CUDA out of memory'
        write(
            failed / "_error", message="CUDA out of memory. Tried to allocate 2.00 GiB", exception_type="RuntimeError",
            time=to_iso(NOW), traceback=trace,
        )  # fmt: skip
        events(
            failed,
            (7600, "training_started", {"attempt": 0, "model": "llama-8b"}),
            (7400, "phase_changed", {"phase": "train"}),
            (4000, "checkpoint_saved", {"step": 1000, "path": LONG}),
        )
        log(failed, trace)
        restarted = foreign_run(folder / "runs", run_id="restarted")
        events(
            restarted,
            (600, "training_started", {"attempt": 0, "model": "llama-8b"}),
            (580, "phase_changed", {"phase": "train"}),
            (240, "training_started", {"attempt": 1, "model": "llama-8b"}),
        )
        metadata = json.loads((restarted / "metadata.json").read_text(encoding="utf-8"))
        attempts = [{"attempt": number, "start_time": to_iso(NOW - before)} for number, before in enumerate((600, 240))]
        write(restarted / "metadata.json", **metadata, attempt=1, attempts=attempts)
        log(restarted, "step 1500/5000 loss: 1.5")
        written = {"failed": folder / "failed.html", "restarted": folder / "restarted.html"}
        write_page(written["failed"], report(failed).html)
        write_page(written["restarted"], report(restarted, prometheus=Measured("http://127.0.0.1:9")).html)
    return written


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.mark.parametrize(("width", "dark"), SIZES)
@pytest.mark.parametrize("name", ["failed", "restarted"])
def test_the_page_is_drawn_and_nothing_hangs_over_its_edge(
    chromium: Browser, pages: dict[str, Path], tmp_path: Path, name: str, width: int, *, dark: bool
) -> None:
    chromium.problems.clear()
    chromium.show(pages[name], width=width, dark=dark)
    picture = chromium.screenshot()
    (tmp_path / f"{name}-{width}{'-dark' if dark else ''}.png").write_bytes(picture)
    assert different_lines(picture) > 300
    assert chromium.problems == []
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    beyond = """[...document.querySelectorAll("main *")].filter(each =>
        !each.closest(".scroll, svg, pre") && each.getBoundingClientRect().right > innerWidth + 1)
        .map(each => each.outerHTML.slice(0, 80))"""
    assert chromium.evaluate(beyond) == []
    background = chromium.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")
    assert "failed" in chromium.evaluate("document.body.innerText") or name == "restarted"


def test_no_word_is_cut(chromium: Browser, pages: dict[str, Path]) -> None:
    cut = """[...document.querySelectorAll("svg text")].filter(each => {
        const text = each.getBoundingClientRect(), drawing = each.closest("svg").getBoundingClientRect();
        return text.left < drawing.left - 1 || text.right > drawing.right + 1;
    }).map(each => each.textContent)"""
    broken = """[...document.querySelectorAll("td")].filter(each => {
        const one = document.createRange();
        one.selectNodeContents(each);
        return !each.textContent.includes(" ") && new Set([...one.getClientRects()].map(each => each.top)).size > 1;
    }).map(each => each.textContent)"""
    for name, page in pages.items():
        for width, _ in SIZES[1:3]:
            chromium.show(page, width=width)
            assert chromium.evaluate(cut) == [], f"{name}, {width} pixels"
            assert chromium.evaluate(broken) == [], f"{name}, {width} pixels"


def test_no_text_of_a_drawing_lies_on_another(chromium: Browser, pages: dict[str, Path]) -> None:
    overlaps = """[...document.querySelectorAll("svg")].flatMap(svg => {
        const boxes = [...svg.querySelectorAll("text")].map(each => [each.textContent, each.getBoundingClientRect()]);
        return boxes.flatMap(([text, a], number) => boxes.slice(number + 1).filter(([, b]) =>
            Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
            Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3).map(([other]) => [text, other]));
    })"""
    for name, page in pages.items():
        for width, _ in SIZES[1:3]:
            chromium.show(page, width=width)
            assert chromium.evaluate(overlaps) == [], f"{name}, {width} pixels"


def test_a_page_that_loads_from_elsewhere_or_hangs_over_is_seen(chromium: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<main><div style='width: 900px'>x</div><img src='http://127.0.0.1:9/a.png'></main>")
    chromium.problems.clear()
    chromium.show(page, width=400)
    assert any("loads http://127.0.0.1:9/a.png" in each for each in chromium.problems)
    assert chromium.evaluate("document.documentElement.scrollWidth") > 400
