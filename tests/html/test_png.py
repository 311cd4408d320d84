"""Figures as PNG: the same picture as the SVG, where matplotlib is installed; SVG alone where it is not."""

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from ringfence.html.charts import WIDTH, Bar, Line, bar_chart, line_chart
from ringfence.html.png import png_of
from ringfence.html.style import SERIES
from tests.browser import Window

LINES = line_chart(
    [Line("north", [(1, 1.0), (2, 3.0), (3, 2.0)]), Line("$so_uth$", [(1, 2.0), (3, 1.0)], level=True)],
    title="T", description="D", x_label="round", y_label="epsilon",
)  # fmt: skip
BARS = bar_chart(
    [Bar("a", (1.0, 2.0), 4.0), Bar("WWWWWWWWWWWWWWWWWW", (3.0, 2.5))],
    names=("x", "y"), title="T", description="D", x_label="epsilon", limit_name="cap",
)  # fmt: skip


def pixels(content: bytes | None) -> np.ndarray:
    assert content is not None
    return np.asarray(Image.open(BytesIO(content)).convert("RGB")).astype(int)


def colour(text: str) -> tuple[int, ...]:
    return tuple(int(text[place : place + 2], 16) for place in (1, 3, 5))


def test_a_png_has_the_colours_and_places_of_the_svg_as_a_browser_draws_it(window: Window, tmp_path: Path) -> None:
    for name, chart in (("lines", LINES), ("bars", BARS)):
        drawn = pixels(png_of(chart))
        height, width, _ = drawn.shape
        assert width == 3 * WIDTH
        (tmp_path / f"{name}.svg").write_text(chart)
        visit = window.open((tmp_path / f"{name}.svg").as_uri(), width=WIDTH)
        visit.page.set_viewport_size({"width": WIDTH, "height": round(height / 3)})
        shown = pixels(visit.page.screenshot())
        for number in range(2):
            places = []
            for picture in (drawn, shown):
                ys, xs = np.nonzero((np.abs(picture - colour(SERIES[number])) <= 8).all(axis=2))
                scale = picture.shape[1] / WIDTH
                places.append([xs.min() / scale, xs.max() / scale, ys.min() / scale, ys.max() / scale])
            np.testing.assert_allclose(places[0], places[1], atol=2.5)  # in units of the chart


def test_the_same_chart_gives_the_same_bytes() -> None:
    assert png_of(LINES) == png_of(LINES)


def test_without_matplotlib_a_figure_is_an_svg_file_alone(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pathlib import Path\n"
        "from ringfence.evidence.report.audit_report import audit_report\n"
        "from tests.evidence.report.conftest import AUDIT\n"
        "audit_report(AUDIT, ['As claimed.']).write(Path(sys.argv[1]) / 'a.html', figures=Path(sys.argv[1]) / 'f')\n"
    )
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, env={**os.environ, "PYTHONPATH": path})
    assert [found.name for found in (tmp_path / "f").iterdir()] == ["claimed-and-shown.svg"]
