"""Style of the figures, written as the same file byte for byte each time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

# Okabe and Ito's colours, which colour-blind readers tell apart; markers serve grey prints.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F", "#8B4513", "#6A3D9A")
MARKERS = ("o", "s", "^", "v", "D", "P", "X", "<", ">", "*")


@contextmanager
def style() -> Iterator[None]:
    """Draw the same files whatever the reader's own matplotlibrc says, and change nothing that the caller has set."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.size": 10, "legend.fontsize": 9, "svg.hashsalt": "ringfence"})
        yield


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write PNG and SVG, without the date and the version that matplotlib would write into them; return both."""
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    figure.savefig(png, dpi=150, metadata={"Software": None})
    figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return png, svg


def bare(axes: Axes) -> None:
    """Leave of the frame what is read: two axes, and faint lines across."""
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def plain_ticks(axis: Axis) -> None:
    """Write ticks as plain numbers, on a logarithmic axis too."""
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def logarithmic(axes: Axes, ticks: Sequence[float]) -> None:
    """Make both axes logarithmic, with these ticks along the x axis."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(ticks)
    plain_ticks(axes.xaxis)
    bare(axes)
