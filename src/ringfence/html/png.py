"""Our charts as PNG, for slides and documents that take no SVG; drawn by matplotlib where it is installed.

A chart consists of rectangles, lines, circles and text (`ringfence.html.charts`), so what is drawn here is the same
picture, shape by shape. matplotlib comes with the extra `research`; a base install writes SVG only.
"""

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_POINTS_PER_INCH = 72.0  # one unit of a chart is one point
_DOTS_PER_INCH = 216.0  # three dots for each unit
_SVG = "{http://www.w3.org/2000/svg}"
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def png_of(chart: str) -> bytes | None:
    """Return a chart of ours as PNG, the same bytes each time; None if matplotlib is not installed."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return None
    drawn = ElementTree.fromstring(chart)  # noqa: S314 (we wrote it)
    _, _, width, height = (float(part) for part in drawn.attrib["viewBox"].split())
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"lines.scale_dashes": False, "text.parse_math": False})
        figure = Figure(figsize=(width / _POINTS_PER_INCH, height / _POINTS_PER_INCH), dpi=_DOTS_PER_INCH)
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), xlim=(0.0, width), ylim=(height, 0.0))
        axes.set_axis_off()
        for order, shape in enumerate(drawn.iter()):
            draw = _DRAWN.get(shape.tag.removeprefix(_SVG))
            if draw is not None:
                draw(axes, shape.attrib, shape.text or "").set_zorder(order)  # what comes later lies above
        written = BytesIO()
        figure.savefig(written, format="png", metadata={"Software": None})
    return written.getvalue()


def _draw_rectangle(axes: "Axes", shape: Mapping[str, str], _: str) -> "Artist":
    """Draw an SVG chart's rectangle by matplotlib, for a PNG."""
    from matplotlib.patches import Rectangle

    place = float(shape.get("x", 0)), float(shape.get("y", 0))
    return axes.add_patch(
        Rectangle(place, float(shape["width"]), float(shape["height"]), color=shape["fill"], linewidth=0)
    )


def _draw_circle(axes: "Axes", shape: Mapping[str, str], _: str) -> "Artist":
    """Draw an SVG chart's circle by matplotlib, for a PNG."""
    from matplotlib.patches import Circle

    return axes.add_patch(
        Circle((float(shape["cx"]), float(shape["cy"])), float(shape["r"]), color=shape["fill"], linewidth=0)
    )


def _draw_line(axes: "Axes", shape: Mapping[str, str], _: str) -> "Artist":
    """Draw an SVG chart's line between two points, or its polyline, by matplotlib, for a PNG."""
    points = shape.get("points") or "{x1},{y1} {x2},{y2}".format_map(shape)
    (line,) = axes.plot(
        *zip(*(map(float, pair.split(",")) for pair in points.split()), strict=True),
        color=shape["stroke"],
        linewidth=float(shape.get("stroke-width", 1)),
        solid_capstyle="butt",
        dash_capstyle="butt",
    )
    if dashes := shape.get("stroke-dasharray"):
        line.set_dashes([float(length) for length in dashes.split()])
    return line


def _draw_text(axes: "Axes", shape: Mapping[str, str], words: str) -> "Artist":
    """Draw an SVG chart's text by matplotlib, squeezed into its length, for a PNG."""
    size = float(shape["font-size"])
    written = axes.text(
        float(shape["x"]), float(shape["y"]), words, color=shape["fill"], fontsize=size, va="baseline",
        ha=_ANCHORS[shape.get("text-anchor", "start")],
    )  # fmt: skip
    if "textLength" in shape:
        length = written.get_window_extent().width * _POINTS_PER_INCH / _DOTS_PER_INCH
        written.set_fontsize(size * min(1.0, float(shape["textLength"]) / length))
    return written


_DRAWN: dict[str, Callable[["Axes", Mapping[str, str], str], "Artist"]] = {
    "rect": _draw_rectangle,
    "circle": _draw_circle,
    "line": _draw_line,
    "polyline": _draw_line,
    "text": _draw_text,
}
