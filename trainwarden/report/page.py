"""The page: one HTML file without scripts and without anything from elsewhere. Every text in it is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from trainwarden import __version__
from trainwarden.report.drawing import plot_svg, timeline_svg
from trainwarden.report.story import ATTEMPT_COLUMNS, BAD, Decision, Story, clock_text
from trainwarden.runs.table import duration_text

RUNBOOKS = "https://github.com/trainwarden/trainwarden/blob/main/rules/runbooks"
_WORDS = {
    "SUCCEEDED": "Succeeded", "FAILED": "Failed", "RUNNING": "Running", "PENDING": "Pending", "CANCELLED": "Cancelled",
    "TIMED_OUT": "Timed out", "WARNING": "Degraded", "STALLED": "Stalled", "UNKNOWN": "Unknown",
}  # fmt: skip


def html_page(story: Story, window: tuple[float, float]) -> str:
    """Return the page. `window` is the time that is shown, Unix seconds."""
    style = files("trainwarden.report").joinpath("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    evidence = _section("Evidence", _evidence(story))
    sections = [
        evidence if story.tone == BAD else "",
        _section("What happened", _happened(story, window)),
        _section("Measured", _plots(story, window)),
        _section("Decisions", _decisions(story)),
        "" if story.tone == BAD else evidence,
        _section("Cost", _definitions(story.costs)),
        _section("Attempts", _attempts(story)),
    ]
    title = f"{story.run_id}: {_WORDS.get(story.status, story.status)}"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-{digest}'">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<main>
{_head(story)}
{"".join(sections)}
{_foot(story)}
</main>
</body>
</html>
"""


def _head(story: Story) -> str:
    advice = f'<p class="advice"><strong>Do:</strong> {escape(story.advice)}</p>' if story.advice else ""
    when = ""
    if story.start is not None:
        until = clock_text(story.end) if story.end is not None else "now"
        lasted = duration_text((story.end if story.end is not None else story.made) - story.start)
        when = f'<p class="when">{escape(clock_text(story.start))} to {escape(until)} UTC, {escape(lasted)}</p>'
    word = _WORDS.get(story.status, story.status)
    course = "".join(f"<p>{escape(each)}</p>" for each in story.course)
    return (
        f'<header class="{story.tone}"><p class="badge">{escape(word)}</p><h1>{escape(story.run_id)}</h1>'
        f'<p class="verdict">{escape(story.verdict)}</p>{course}{advice}{when}{_definitions(story.facts)}</header>'
    )


def _section(title: str, content: str) -> str:
    if not content:
        return ""
    name = title.lower().replace(" ", "-")
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(title)}</h2>{content}</section>\n'


def _definitions(pairs: list[tuple[str, str]]) -> str:
    if not pairs:
        return ""
    inside = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in pairs)
    return f'<dl class="facts">{inside}</dl>'


def _happened(story: Story, window: tuple[float, float]) -> str:
    drawing = f'<div class="scroll">{timeline_svg(story, window)}</div>{_key()}' if story.spans else ""
    rows = []
    first = story.start
    for each in sorted(story.moments, key=lambda moment: moment.time):
        if not window[0] <= each.time <= window[1]:
            continue
        after = "" if first is None else f"+{duration_text(each.time - first)}" if each.time >= first else ""
        what = escape(each.what)
        name = each.what.removesuffix(" fires")
        if name != each.what:
            what = f'<a href="{escape(RUNBOOKS)}/{escape(name)}.md">{what}</a>'
        rows.append(
            f'<li class="{each.tone}">{_time(each.time)} <span class="after">{escape(after)}</span> '
            f'<strong>{what}</strong> <span class="detail">{escape(each.detail)}</span></li>'
        )
    moments = f'<ol class="moments">{"".join(rows)}</ol>' if rows else ""
    return drawing + moments


def _key() -> str:
    """Return what the colours mean, in words."""
    names = (
        ("good", "trains or has succeeded"),
        ("calm", "other work"),
        ("warn", "warning, save"),
        ("bad", "critical, failed"),
    )
    items = "".join(f'<li><span class="swatch {tone}"></span>{escape(text)}</li>' for tone, text in names)
    return f'<ul class="legend">{items}<li><span class="swatch restart"></span>restart, in the plots</li></ul>'


def _plots(story: Story, window: tuple[float, float]) -> str:
    plots = "".join(plot_svg(plot, story, window, number) for number, plot in enumerate(story.plots) if plot.lines)
    return f'<div class="plots">{plots}</div>' if plots else ""


def _decisions(story: Story) -> str:
    return "".join(_decision(each) for each in story.decisions)


def _decision(decision: Decision) -> str:
    rows = [
        f'<tr><td>{_time(time)}</td><th scope="row">{escape(state)}</th><td>{escape(text)}</td></tr>'
        for time, state, text in decision.steps
    ]
    table = _table("", ("Time (UTC)", "State", "What"), rows) if rows else ""
    lines = f"<pre>{escape(chr(10).join(decision.moments))}</pre>" if decision.moments else ""
    when = f" {_time(decision.time)}" if decision.time is not None else ""
    reason = f"<p>{escape(decision.reason)}</p>" if decision.reason else ""
    return f"<article><h3>{escape(decision.title)}{when}</h3>{reason}{lines}{table}</article>"


def _evidence(story: Story) -> str:
    blocks = []
    for each in story.evidence:
        is_long = each.text.count("\n") > 12
        body = f'<pre tabindex="0">{escape(_printable(each.text))}</pre>'
        if is_long:
            blocks.append(f"<details><summary>{escape(each.title)}</summary>{body}</details>")
        else:
            blocks.append(f"<h3>{escape(each.title)}</h3>{body}")
    return "".join(blocks)


def _attempts(story: Story) -> str:
    if not story.attempts:
        return ""
    rows = [
        f'<tr><th scope="row">{escape(cells[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells[1:])}</tr>'
        for cells in story.attempts
    ]
    return _table("", ATTEMPT_COLUMNS, rows)


def _table(name: str, columns: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    return (
        f'<div class="scroll"><table class="{name}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _time(time: float) -> str:
    return f"<time>{escape(clock_text(time, day=False))}</time>"


def _foot(story: Story) -> str:
    missing = "".join(f"<li>{escape(each)}</li>" for each in story.missing)
    notes = f"<h2>What is missing</h2><ul>{missing}</ul>" if missing else ""
    sources = "".join(f"<li>{escape(each)}</li>" for each in story.sources)
    return (
        f"<footer>{notes}<p>Made {escape(clock_text(story.made))} UTC by Trainwarden {escape(__version__)} from</p>"
        f"<ul>{sources}</ul><p>All times are UTC.</p></footer>"
    )


def _printable(text: str) -> str:
    """Return text of others as lines without control characters and marks that turn its direction."""
    return "\n".join(
        "".join(letter if letter.isprintable() or letter == "\t" else " " for letter in line)
        for line in text.splitlines()
    )
