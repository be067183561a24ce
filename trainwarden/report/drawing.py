"""Plots and the timeline as SVG, drawn by classes of the page's style alone, each with a text for those who hear it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from trainwarden.report.story import Line, Plot, Span, Story, clock_text
from trainwarden.runs.table import duration_text

_WIDTH, _HEIGHT = 720, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 10, 8, 24
_ROW = 22
_WIDE, _LABELS = 1120, 190
_COLOURS = 6
_FAR = 3
_TABLE_ROWS = 12
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
# Units that have a prefix from 1000 on; numbers without a unit have one where they are long.
_PREFIXED_UNITS = ("bytes", "bytes/s", "watts", "/s")
_LONG = 1e4
_SYMBOLS = {"bytes": "B", "bytes/s": "B/s", "watts": "W"}


def quantity(value: float, unit: str) -> str:
    """Return a value with its unit."""
    if unit == "ratio":
        return f"{100 * value:.4g} %"
    if unit == "seconds":
        return duration_text(value)
    for size, prefix in _PREFIXES:
        if abs(value) >= size and (unit in _PREFIXED_UNITS or abs(value) >= _LONG):
            number = f"{value / size:.4g} {prefix}"
            break
    else:
        number = f"{value:.4g} "
    return (number + _SYMBOLS.get(unit, unit)).strip()


def _tick_texts(ticks: Sequence[float], unit: str) -> list[str]:
    """Return the ticks of an axis with their unit: one prefix for all, and the digits that tell neighbours apart."""
    if unit in ("ratio", "seconds") or len(ticks) < 2:
        return [quantity(value, unit) for value in ticks]
    spacing, largest = ticks[1] - ticks[0], max(map(abs, ticks))
    prefixes = [*_PREFIXES, (1.0, "")] if unit in _PREFIXED_UNITS or largest >= _LONG else [(1.0, "")]
    for size, prefix in prefixes:
        digits = next((each for each in range(4) if abs(round(spacing / size, each) * size / spacing - 1) < 1e-6), None)
        if largest >= size and digits is not None:
            return [f"{value / size:.{digits}f} {prefix}{_SYMBOLS.get(unit, unit)}".strip() for value in ticks]
    return [quantity(value, unit) for value in ticks]


def plot_svg(plot: Plot, story: Story, window: tuple[float, float], number: int) -> str:
    """Return a figure: the plot with alerts and restarts drawn in, a legend, and its values as a table."""
    low, high = _bounds(plot)
    xs = [x for each in plot.lines for x, _ in each.points]
    start, end = (min(xs), max(xs)) if plot.by_step else window
    scale_x = _scale(start, end, _LEFT, _WIDTH - _RIGHT)
    scale_y = _scale(low, high, _HEIGHT - _BOTTOM, _TOP)
    inside = f'<rect x="{_LEFT}" y="0" width="{_WIDTH - _LEFT - _RIGHT}" height="{_HEIGHT - _BOTTOM}"/>'
    parts = [f'<clipPath id="c{number}">{inside}</clipPath>']
    if not plot.by_step:
        parts += _marks(story, scale_x, start, end)
    ticks = _ticks(low, high, 4)
    for value, text in zip(ticks, _tick_texts(ticks, plot.unit), strict=True):
        y = scale_y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick end" x="{_LEFT - 6}" y="{y + 4:.1f}">{escape(text)}</text>')
    parts += _axis(start, end, scale_x, _HEIGHT - _BOTTOM, by_step=plot.by_step)
    for index, line in enumerate(plot.lines):
        dashed = " limit" if _is_limit(line) else ""
        path = _path(line, scale_x, scale_y, end - start)
        parts.append(f'<path class="line c{index % _COLOURS}{dashed}" clip-path="url(#c{number})" d="{path}"/>')
    summary = "; ".join(_described(line, plot.unit) for line in plot.lines)
    legend = "".join(
        f'<li><svg class="key" viewBox="0 0 24 8" aria-hidden="true"><path class="line c{index % _COLOURS}'
        f'{" limit" if _is_limit(line) else ""}" d="M0 4H24"/></svg>'
        f"{escape(line.name)}</li>"
        for index, line in enumerate(plot.lines)
    )
    return (
        f'<figure><figcaption><h3 id="p{number}">{escape(plot.title)}</h3><p>{escape(plot.question)}</p></figcaption>'
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="p{number} d{number}">'
        f'<desc id="d{number}">{escape(summary)}.</desc>{"".join(parts)}</svg>'
        f'<ul class="legend">{legend}</ul>{_table(plot)}</figure>'
    )


def timeline_svg(story: Story, window: tuple[float, float]) -> str:
    """Return attempts, phases, alerts and remediation as bars over time."""
    rows = _rows(story.spans)
    height = _TOP + _ROW * len(rows) + _BOTTOM
    start, end = window
    scale = _scale(start, end, _LABELS, _WIDE - _RIGHT)
    parts = _axis(start, end, scale, height - _BOTTOM, by_step=False)
    for index, (lane, name, spans) in enumerate(rows):
        y = _TOP + index * _ROW
        shown = name if lane == "Alerts" else lane if not index or rows[index - 1][0] != lane else ""
        parts.append(f'<text class="tick" x="0" y="{y + 15}">{escape(shown[:30])}</text>')
        for span in spans:
            left, right = scale(max(span.start, start)), scale(min(span.end, end))
            width = max(2.0, right - left)
            parts.append(
                f'<rect class="span {span.tone}" x="{left:.1f}" y="{y + 3}" width="{width:.1f}" height="{_ROW - 6}" '
                f'rx="2"><title>{escape(_lasted(span))}</title></rect>'
            )
            if lane != "Alerts" and width > 7 * len(span.name):
                parts.append(f'<text class="inside" x="{left + 5:.1f}" y="{y + 15}">{escape(span.name)}</text>')
    described = "; ".join(f"{lane.lower()}: {_lasted(span)}" for lane, _, spans in rows for span in spans[:20])
    return (
        f'<svg class="timeline" viewBox="0 0 {_WIDE} {height}" role="img" aria-labelledby="t0 t1">'
        f'<title id="t0">Timeline</title><desc id="t1">{escape(described)}.</desc>{"".join(parts)}</svg>'
    )


def _lasted(span: Span) -> str:
    return f"{span.name}: {clock_text(span.start)}, {duration_text(span.end - span.start)}"


def _rows(spans: Sequence[Span]) -> list[tuple[str, str, list[Span]]]:
    """Return lane, name and bars of each row: one row for a lane, one for each alert."""
    rows: dict[tuple[str, str], list[Span]] = {}
    for lane in ("Attempts", "Phases", "Alerts", "Remediation"):
        for span in spans:
            if span.lane == lane:
                rows.setdefault((lane, span.name if lane == "Alerts" else ""), []).append(span)
    return [(lane, name, each) for (lane, name), each in list(rows.items())[:16]]


def _marks(story: Story, scale: Scale, start: float, end: float) -> list[str]:
    parts = []
    for span in story.spans:
        if span.lane == "Alerts" and span.tone in ("bad", "warn") and span.end > start and span.start < end:
            left, right = scale(max(span.start, start)), scale(min(span.end, end))
            parts.append(
                f'<rect class="shade {span.tone}" x="{left:.1f}" y="{_TOP}" width="{max(1.0, right - left):.1f}" '
                f'height="{_HEIGHT - _TOP - _BOTTOM}"><title>{escape(span.name)}</title></rect>'
            )
    for span in [each for each in story.spans if each.lane == "Attempts"][1:]:
        if start < span.start < end:
            x = scale(span.start)
            parts.append(
                f'<line class="restart" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}">'
                f"<title>{escape(span.name)} began</title></line>"
            )
    for span in story.spans:
        if span.lane == "Phases" and span.end > start and span.start < end:
            left, right = scale(max(span.start, start)), scale(min(span.end, end))
            parts.append(
                f'<rect class="span {span.tone}" x="{left:.1f}" y="{_HEIGHT - _BOTTOM}" height="4" '
                f'width="{max(1.0, right - left):.1f}"><title>{escape(span.name)}</title></rect>'
            )
    return parts


class Scale:
    """Maps [low, high] to [left, right]."""

    def __init__(self, low: float, high: float, left: float, right: float) -> None:
        self._low, self._left = low, left
        self._factor = (right - left) / ((high - low) or 1.0)

    def __call__(self, value: float) -> float:
        """Return where a value is drawn."""
        return self._left + (value - self._low) * self._factor


def _scale(low: float, high: float, left: float, right: float) -> Scale:
    return Scale(low, high, left, right)


def _bounds(plot: Plot) -> tuple[float, float]:
    values = [value for line in plot.lines if not _is_limit(line) for _, value in line.points]
    limits = [value for line in plot.lines if _is_limit(line) for _, value in line.points]
    # A limit far beyond what was measured would press that into one line: it is cut off.
    values += [value for value in limits if not values or value <= _FAR * max(values)]
    low, high = min(values or limits), max(values or limits)
    if plot.unit:
        low = 0.0  # an age may be below, where two clocks differ
    if plot.unit == "ratio":
        return 0.0, max(1.0, high)
    if low == high:
        return low - (abs(low) * 0.1 or 1.0), high + (abs(high) * 0.1 or 1.0)
    return low, high + (high - low) * 0.05


def _ticks(low: float, high: float, wanted: int) -> list[float]:
    """Return round numbers from low to high, about as many as wanted."""
    rough = (high - low) / wanted
    size = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next((size * each for each in (1, 2, 2.5, 5, 10) if size * each >= rough), size * 10)
    first = math.ceil(low / step)
    return [step * number for number in range(first, math.floor(high / step) + 1)]


_SPACINGS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)


def _axis(start: float, end: float, scale: Scale, y: float, *, by_step: bool) -> list[str]:
    parts = []
    if by_step:
        ticks = [(value, f"{value:g}") for value in _ticks(start, end, 6)]
    else:
        spacing = next((each for each in _SPACINGS if (end - start) / each <= 7), 30 * 86400)
        first = math.ceil(start / spacing) * spacing
        times: Iterable[float] = (first + spacing * number for number in range(40))
        ticks = [(at, _time_text(at, spacing)) for at in times if at <= end]
    for at, text in ticks:
        x = scale(at)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{y}"/>')
        # Of the last one the edge would cut the half that stands to the right of its line.
        anchor = "end" if scale(end) - x < 5 * len(text) else "middle"
        parts.append(f'<text class="tick {anchor}" x="{x:.1f}" y="{y + 17}">{escape(text)}</text>')
    return parts


def _time_text(at: float, spacing: float) -> str:
    """Return the day where ticks are days apart, else the time of day."""
    if spacing >= 86400:
        return clock_text(at)[5:10]
    return clock_text(at, day=False)[: 8 if spacing < 60 else 5]


def _path(line: Line, scale_x: Scale, scale_y: Scale, length: float) -> str:
    """Return the path; it is interrupted where points are missing."""
    gaps = [after[0] - before[0] for before, after in zip(line.points, line.points[1:], strict=False)]
    usual = sorted(gaps)[len(gaps) // 2] if gaps else 0.0
    commands, before = [], -math.inf
    for x, y in line.points:
        command = "L" if x - before <= max(4 * usual, length / 50) else "M"
        commands.append(f"{command}{scale_x(x):.1f} {scale_y(y):.1f}")
        before = x
    return "M" + "".join(commands)[1:] if commands else ""


def _is_limit(line: Line) -> bool:
    return any(word in line.name for word in ("budget", "threshold"))


def _described(line: Line, unit: str) -> str:
    values = [value for _, value in line.points]
    first, last, low, high = (quantity(value, unit) for value in (values[0], values[-1], min(values), max(values)))
    return f"{line.name} from {first} to {last}, between {low} and {high}"


def _table(plot: Plot) -> str:
    """Return some of the values as a table, for those who do not see the plot."""
    xs = sorted({x for line in plot.lines for x, _ in line.points})
    chosen = [
        xs[round(index * (len(xs) - 1) / (min(_TABLE_ROWS, len(xs)) - 1 or 1))]
        for index in range(min(_TABLE_ROWS, len(xs)))
    ]
    head = "".join(f'<th scope="col">{escape(line.name)}</th>' for line in plot.lines)
    rows = []
    for x in dict.fromkeys(chosen):
        cells = "".join(f"<td>{escape(_at(line, x, plot.unit))}</td>" for line in plot.lines)
        rows.append(f'<tr><th scope="row">{escape(f"{x:g}" if plot.by_step else clock_text(x))}</th>{cells}</tr>')
    first = "Step" if plot.by_step else "Time (UTC)"
    return (
        '<details><summary>Values as a table</summary><div class="scroll"><table><thead><tr>'
        f'<th scope="col">{first}</th>{head}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def _at(line: Line, x: float, unit: str) -> str:
    known = [value for at, value in line.points if at <= x]
    return quantity(known[-1], unit) if known else "-"
