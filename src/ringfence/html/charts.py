"""Charts as SVG, written by hand: lines, horizontal bars, and intervals. They need no drawing library.

A chart is drawn on a narrow sheet that is scaled to the page, so that its text can be read on a phone. By itself it is
drawn on white; its classes let a page's style colour it for a light or a dark screen. Dashes and marks serve grey
prints and colour-blind readers. Numbers that are not finite are left out.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ringfence.html.markup import Html, Value, readable, tag, together
from ringfence.html.style import LIGHT, SERIES

WIDTH, NARROW = 440, 300
DASHES = (None, "7 3", "2 3", "9 3 2 3", "4 2", "1 2", "12 4", "5 5")
MOST_SERIES = len(SERIES)

_INK: dict[str, Value] = {"fill": LIGHT["ink"], "class_": "ink"}
_SOFT: dict[str, Value] = {"fill": LIGHT["soft"], "class_": "soft"}
_INK_LINE: dict[str, Value] = {"stroke": LIGHT["ink"], "class_": "ink-line"}
_SOFT_LINE: dict[str, Value] = {"stroke": LIGHT["soft"], "class_": "soft-line"}
_GRID: dict[str, Value] = {"stroke": LIGHT["grid"], "class_": "grid"}

_LEFT, _RIGHT, _TOP, _PLOT, _BELOW, _ROW = 50, 14, 30, 200, 58, 19
_ABOVE, _THICK = 10, 15  # of bars
_SMALLEST = 1e-290  # what is closer to 0 counts as 0
_CHARACTER = 6.6  # how wide a letter of 13 units is, roughly


@dataclass(frozen=True)
class Line:
    """A line through points; a `level` has no marks."""

    label: str
    points: Sequence[tuple[float, float]]
    level: bool = False


@dataclass(frozen=True)
class Bar:
    """One name's values, one bar each; a limit to compare them with; and the interval of a single one."""

    label: str
    values: Sequence[float]
    limit: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Span:
    """A number and the interval that it lies in."""

    label: str
    value: float
    low: float
    high: float


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    small: bool = False,
    reach: Sequence[float] = (),
    x_ticks: Mapping[float, str] | None = None,
    band: Sequence[tuple[float, float, float]] = (),
) -> Html:
    """Draw up to `MOST_SERIES` lines; what lies at or below 0 is left out on a logarithmic axis.

    A `small` chart is one of several beside each other, whose vertical axes all include the numbers `reach`. It begins
    and ends at its first and last number. `band` are numbers along the axis, each with the ends of an interval.
    """
    lines = [_drawable(line, log_x, log_y) for line in lines[:MOST_SERIES]]
    lines = [line for line in lines if line.points]
    xs = [x for line in lines for x, _ in line.points]
    ys = [*reach, *(y for line in lines for _, y in line.points)]
    width, plot = (NARROW, 120) if small else (WIDTH, _PLOT)
    across = _Axis.over(xs, _LEFT, width - _RIGHT, log=log_x).cut(max(xs, default=1.0))
    if small:
        ticks = tuple(x_ticks or (tick for tick in _ticks(min(xs), max(xs)) if min(xs) <= tick <= max(xs)))
        across = _Axis(min(xs), max(xs), _LEFT, width - _RIGHT, False, ticks)
    upward = _Axis.over(ys, _TOP + plot, _TOP, log=log_y)
    parts = [*_grid(across, upward, x_label, y_label, x_ticks or {}), _band(band, len(xs), across, upward)]
    parts += [_polyline(line, across, upward, n) for n, line in enumerate(lines)]
    keys = lines if len(lines) > 1 else []  # one line is named by its axis
    first = _TOP + plot + _BELOW
    parts += [_legend_row(line.label, first + _ROW * n, n, DASHES[n], width) for n, line in enumerate(keys)]
    return _svg_sheet(first + _ROW * len(keys) - 12, title, description, parts, width)


def _band(band: Sequence[tuple[float, float, float]], count: int, across: "_Axis", upward: "_Axis") -> Html:
    """Draw intervals of a line chart within its axes; joined, unless of `count` points too many lie between them."""
    known = [(across(x), upward.within(low), upward.within(high)) for x, low, high in band if math.isfinite(high - low)]
    ends = [*((x, low) for x, low, _ in known), *((x, high) for x, _, high in reversed(known))]
    places = " ".join(f"{x},{y}" for x, y in ends if count <= 8 * len(known))
    whiskers = (tag("line", x1=x, x2=x, y1=low, y2=high, **_series("stroke", 0)) for x, low, high in known)
    return together(tag("polygon", points=places, fill_opacity=0.2, **_series("fill", 0)), *whiskers)


def bar_chart(
    bars: Sequence[Bar],
    *,
    names: Sequence[str],
    title: str,
    description: str,
    x_label: str,
    limit_name: str = "limit",
    small: bool = False,
    reach: Sequence[float] = (),
) -> Html:
    """Draw for every name one horizontal bar per value from 0, called `names`, and a mark at its limit."""
    width, ends = NARROW if small else WIDTH, [v for bar in bars for v in (*bar.values, bar.limit or 0.0)]
    across = _Axis.over([0.0, *reach, *filter(math.isfinite, ends)], _LEFT + 62, width - 50)
    step = _THICK * len(names) + 13
    bottom = _ABOVE + step * len(bars)
    parts = _rows_grid(across, bottom, x_label)
    parts += [_bar_group(bar, _ABOVE + step * row, across) for row, bar in enumerate(bars)]
    keys = list(names) if len(names) > 1 else []  # one kind of bar is named by the axis
    first = bottom + 58
    parts += [_legend_row(name, first + _ROW * n, n, None, width, thick=9) for n, name in enumerate(keys)]
    if any(bar.limit is not None for bar in bars):
        parts += [
            _limit_mark(20, first + _ROW * len(keys) - 11, 13),
            _svg_text(40, first + _ROW * len(keys), limit_name, paint=_INK),
        ]
        keys.append(limit_name)
    return _svg_sheet(first + _ROW * len(keys) - 12, title, description, parts, width)


def span_chart(spans: Sequence[Span], *, title: str, description: str, x_label: str) -> Html:
    """Draw for every name a dot at its number, and a line over its interval."""
    ends = [end for span in spans for end in (span.low, span.high, span.value) if math.isfinite(end)]
    across = _Axis.over(ends or [0.0, 1.0], _LEFT + 62, WIDTH - 14, from_zero=False)
    bottom = _ABOVE + 22 * len(spans)
    parts = _rows_grid(across, bottom, x_label)
    for row, span in enumerate(spans):
        y = _ABOVE + 22 * row + 10
        parts += [
            _row_label(span.label, y + 4, across),
            tag("line", x1=across(span.low), x2=across(span.high), y1=y, y2=y, stroke_width=2, **_series("stroke", 0)),
            tag("circle", cx=across(span.value), cy=y, r=3.6, **_series("fill", 0)),
        ]
    return _svg_sheet(bottom + 46, title, description, parts)


def _rows_grid(across: "_Axis", bottom: float, x_label: str) -> list[Html]:
    """Return the grid of a bar or span chart and its axis; every other tick is named if all would not fit."""
    every = 1 + (sum(9 * len(_tick_label(tick)) for tick in across.ticks) > across.end - across.start)
    return [
        *(tag("line", x1=across(t), x2=across(t), y1=_ABOVE - 4, y2=bottom, **_GRID) for t in across.ticks),
        *(_svg_text(across(t), bottom + 15, _tick_label(t), anchor="middle") for t in across.ticks[::every]),
        _svg_text((across.start + across.end) / 2, bottom + 34, x_label, anchor="middle", paint=_INK),
    ]


def _row_label(text: str, y: float, across: "_Axis") -> Html:
    """Write a name beside its row in a bar or span chart."""
    label = text if len(text) <= 13 else f"{text[:5]}…{text[-7:]}"  # names may end in a number
    room = across.start - 16 if len(label) > 11 else None  # wide letters might not fit by themselves
    return _svg_text(across.start - 8, y, label, anchor="end", paint=_INK, room=room)


def _bar_group(bar: Bar, top: float, across: "_Axis") -> Html:
    """Draw one name's bars in a bar chart; an infinite one ends where the axis does."""
    height = _THICK * len(bar.values)
    parts = [_row_label(bar.label, top + height / 2 + 4, across)]
    for number, value in enumerate(bar.values):
        start, end = sorted((across(0.0), across(min(value, across.high))))
        length, at = round(end - start, 1), top + _THICK * number
        parts.append(tag("rect", x=start, y=at, width=length, height=_THICK - 3, rx=1, **_series("fill", number)))
        if bar.interval is not None:
            left, right = map(across.within, bar.interval)
            parts.append(tag("line", x1=left, x2=right, y1=at + 6, y2=at + 6, stroke_width=2, **_INK_LINE))
            end = max(end, right)
        parts.append(_svg_text(end + 6, at + 10, _tick_label(value), size=12))
    if bar.limit is not None and math.isfinite(bar.limit):
        parts.append(_limit_mark(across(bar.limit), top - 4, height + 5))
    return together(*parts)


def _limit_mark(x: float, y: float, length: float) -> Html:
    """Draw the mark of a limit in a chart."""
    return tag("line", x1=x, x2=x, y1=y, y2=y + length, stroke_width=2, **_INK_LINE)


def figure(chart: Html | None, caption: str) -> Html | None:
    """Return a chart with its caption; None if it was not drawn."""
    return None if chart is None else tag("figure", chart, tag("figcaption", caption))


@dataclass(frozen=True)
class _Axis:
    """An axis: maps values to positions on the sheet."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    ticks: tuple[float, ...]

    def __call__(self, value: float) -> float:
        """Return a value's coordinate on the chart's axis."""
        scale: Callable[[float], float] = math.log10 if self.log else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return round(self.start + share * (self.end - self.start), 1)

    def within(self, value: float) -> float:
        """Return the coordinate of a value, or of the end of the chart's axis that it lies beyond."""
        return self(min(max(value, self.low), self.high))

    @classmethod
    def over(
        cls, values: Sequence[float], start: float, end: float, *, log: bool = False, from_zero: bool = True
    ) -> "_Axis":
        """Return a chart's axis with room for the values, and for 0 too unless it is logarithmic."""
        low, high = (min(values), max(values)) if values else (1.0, 10.0)
        ticks = _log_ticks(low, high) if log else _ticks(min(low, 0.0) if from_zero else low, high)
        return cls(min(low, ticks[0]), max(high, ticks[-1]), start, end, log, ticks)

    def cut(self, high: float) -> "_Axis":
        """Return the chart's axis ending at `high`, if at least two ticks are left."""
        ticks = tuple(tick for tick in self.ticks if tick <= high)
        return replace(self, high=high, ticks=ticks) if len(ticks) > 1 and high > self.low else self


def _ticks(low: float, high: float) -> tuple[float, ...]:
    """Return about five round numbers for a chart's axis, the first at or below `low`, the last at or above `high`."""
    largest = max(abs(low), abs(high))
    if high - low <= 1e-9 * max(largest, _SMALLEST):  # all the same
        half = largest / 2 if largest > _SMALLEST else 0.5
        low, high = low - half, high + half
    raw = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * nice for nice in (1, 2, 2.5, 5, 10) if unit * nice >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(step * k, 12 - math.floor(math.log10(step))) for k in range(first, last + 1))


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return ticks of a logarithmic axis from `low` to `high`: powers of ten, with 2 and 5 where there is room."""
    if high <= low * (1 + 1e-9):  # all the same
        low, high = low / 2, high * 2
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high) + 1e-12)
    decades = last - first
    steps = (1.0, 2.0, 5.0) if decades <= 2 else (1.0,)
    every = max(1, decades // 5)
    ticks = [step * 10.0**power for power in range(first, last + 1, every) for step in steps]
    inside = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
    below = [tick for tick in ticks if tick <= low * (1 + 1e-9)]
    above = [tick for tick in ticks if tick >= high * (1 - 1e-9)]
    return tuple(sorted({*below[-1:], *inside, *above[:1]}))


def _drawable(line: Line, log_x: bool, log_y: bool) -> Line:
    """Return the line without points that its chart's axes cannot show."""

    def fits(value: float, log: bool) -> bool:
        """Tell whether a chart's axis can show the value."""
        return math.isfinite(value) and (value > _SMALLEST or not log)

    return replace(line, points=[(x, y) for x, y in line.points if fits(x, log_x) and fits(y, log_y)])


def _grid(across: _Axis, upward: _Axis, x_label: str, y_label: str, x_ticks: Mapping[float, str]) -> list[Html]:
    """Return a line chart's grid, ticks and axis labels."""
    floor = upward.start
    return [
        *(tag("line", x1=across.start, x2=across.end, y1=upward(t), y2=upward(t), **_GRID) for t in upward.ticks),
        *(_svg_text(across.start - 8, upward(t) + 4, _tick_label(t), anchor="end") for t in upward.ticks),
        *(tag("line", x1=across(t), x2=across(t), y1=floor, y2=floor + 4, **_SOFT_LINE) for t in across.ticks),
        *(_svg_text(across(t), floor + 18, x_ticks.get(t) or _tick_label(t), anchor="middle") for t in across.ticks),
        tag("line", x1=across.start, x2=across.end, y1=floor, y2=floor, **_SOFT_LINE),
        _svg_text((across.start + across.end) / 2, floor + 35, x_label, anchor="middle", paint=_INK),
        _svg_text(4, _TOP - 14, y_label, paint=_INK),
    ]


def _polyline(line: Line, across: _Axis, upward: _Axis, number: int) -> Html:
    """Return a line of a line chart, with marks at its points if they are few."""
    places = [(across(x), upward(y)) for x, y in line.points]
    path = tag(
        "polyline", points=" ".join(f"{x},{y}" for x, y in places), fill="none", stroke_width=2,
        stroke_dasharray=DASHES[number], stroke_linejoin="round", **_series("stroke", number),
    )  # fmt: skip
    few = len(places) <= (1 if line.level else 24)
    return together(path, *(tag("circle", cx=x, cy=y, r=2.6, **_series("fill", number)) for x, y in places if few))


def _legend_row(label: str, y: float, number: int, dash: str | None, width: int, *, thick: int = 2) -> Html:
    """Draw a row of a chart's legend: a stroke and its label."""
    most = int((width - 48) / _CHARACTER)
    shown = label if len(label) <= most else label[: most - 1] + "…"
    stroke = tag(
        "line", x1=8, x2=32, y1=y - 4, y2=y - 4, stroke_width=thick, stroke_dasharray=dash, **_series("stroke", number)
    )
    return together(stroke, _svg_text(40, y, shown, paint=_INK))


def _svg_text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str | None = None,
    paint: Mapping[str, Value] = _SOFT,
    size: int = 13,
    room: float | None = None,
) -> Html:
    """Return SVG text, squeezed into the length `room` if one is given."""
    fit: dict[str, Value] = {} if room is None else {"textLength": room, "lengthAdjust": "spacingAndGlyphs"}
    return tag("text", readable(text), x=round(x, 1), y=round(y, 1), text_anchor=anchor, font_size=size, **paint, **fit)


def _series(paint: str, number: int) -> dict[str, Value]:
    """Return the SVG attributes of a line (`stroke`) or an area (`fill`) in the colour of a chart's series."""
    return {paint: SERIES[number], "class_": f"{paint}-{number}"}


def _svg_sheet(height: float, title: str, description: str, parts: Sequence[Value], width: int = WIDTH) -> Html:
    """Return a whole SVG chart of its parts, with title and description."""
    return tag(
        "svg",
        tag("title", title),
        tag("desc", description),
        tag("rect", width=width, height=round(height, 1), fill=LIGHT["paper"], class_="paper"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {round(height, 1)}",
        role="img",
        aria_label=f"{title}. {description}",
        font_family="system-ui, 'Noto Sans', 'DejaVu Sans', sans-serif",
    )


def _tick_label(value: float) -> str:
    """Return a number as the label of a chart's tick."""
    if math.isinf(value):
        return "∞"
    size = abs(value)
    if 1e3 <= size < 1e9:
        return f"{value / 1e6:.3g}M" if size >= 1e6 else f"{value / 1e3:.3g}k" if size >= 1e4 else f"{value:.0f}"
    return (
        f"{value:.3g}" if size == 0 or 1e-3 <= size < 1e3 else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    )
