"""Charts: every number lands where it belongs, and nothing is drawn of what is not a number."""

import math
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.html.charts import WIDTH, Bar, Line, bar_chart, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def draw(*lines: Line, **options: Any) -> ElementTree.Element:
    made = line_chart(lines, title="T", description="D", x_label="x", y_label="y", **options)
    return ElementTree.fromstring(made)


def places(drawn: ElementTree.Element) -> list[list[tuple[float, float]]]:
    """Where the lines go."""
    return [
        [(float(x), float(y)) for x, y in (pair.split(",") for pair in line.attrib["points"].split())]
        for line in drawn.iter(f"{SVG}polyline")
    ]


def words(drawn: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in drawn.iter(f"{SVG}text")]


def test_larger_numbers_lie_higher_and_further_right() -> None:
    ((first, second, third),) = places(draw(Line("a", [(0, 1.0), (1, 3.0), (2, 2.0)])))
    assert first[0] < second[0] < third[0]
    assert second[1] < third[1] < first[1]


def test_a_logarithmic_axis_puts_equal_ratios_at_equal_distances() -> None:
    (line,) = places(draw(Line("a", [(1, 1.0), (10, 10.0), (100, 100.0)]), log_x=True, log_y=True))
    assert line[1][0] - line[0][0] == pytest.approx(line[2][0] - line[1][0], abs=0.2)
    assert line[0][1] - line[1][1] == pytest.approx(line[1][1] - line[2][1], abs=0.2)


def test_what_is_no_number_or_has_no_place_is_left_out() -> None:
    points = [(0, 1.0), (1, math.nan), (2, math.inf), (3, 2.0)]
    (line,) = places(draw(Line("a", points)))
    assert len(line) == 2
    (logarithmic,) = places(draw(Line("a", [(0, 1.0), (1, 0.0), (2, 2.0), (3, 1.0)]), log_x=True, log_y=True))
    assert len(logarithmic) == 2
    assert places(draw(Line("a", [(0, math.nan)]))) == []


def test_several_lines_are_named_and_one_is_not() -> None:
    assert "north" not in words(draw(Line("north", [(0, 1.0), (1, 2.0)])))
    both = words(draw(Line("north", [(0, 1.0)]), Line("<south>", [(0, 2.0)])))
    assert {"north", "<south>"} <= set(both)


def test_bars_are_as_long_as_their_numbers_and_limits_lie_where_they_belong() -> None:
    bars = [Bar("a", (1.0, 2.0), 4.0), Bar("<b> with a long name", (3.0, math.inf))]
    made = bar_chart(bars, names=("x", "y"), title="T", description="D", x_label="e", limit_name="cap")
    drawn = ElementTree.fromstring(made)
    lengths = [float(rect.attrib["width"]) for rect in drawn.iter(f"{SVG}rect") if rect.attrib["class"] != "paper"]
    assert lengths[1] == pytest.approx(2 * lengths[0], rel=0.01)
    assert lengths[2] == pytest.approx(3 * lengths[0], rel=0.01)
    assert lengths[3] == pytest.approx(4 * lengths[0], rel=0.01)  # infinity: as far as the largest finite number
    assert {"∞", "cap", "<b> w…ng name"} <= set(words(drawn))


def test_a_small_chart_begins_at_its_first_number_and_shows_the_band_up_to_its_edge() -> None:
    band = [(2020, 0.5, 2.0), (2024, -50.0, 3.0), (2022, -math.inf, math.inf)]
    drawn = draw(
        Line("a", [(2020, 1.0), (2024, 2.0)]), small=True, band=band, reach=[-1.0], x_ticks={2022.0: "2022-01-01"}
    )
    ((first, _),) = places(drawn)
    assert {"2022-01-01", "-1"} <= set(words(drawn))
    assert "2024" not in words(drawn)
    (polygon,) = drawn.iter(f"{SVG}polygon")
    corners = [tuple(map(float, pair.split(","))) for pair in polygon.attrib["points"].split()]
    assert len(corners) == 4  # the unknown interval is left out
    assert corners[0][0] == corners[-1][0] == first[0]
    low, high = corners[0][1], corners[-1][1]
    assert low > first[1] > high
    floor = next(float(line.attrib["y1"]) for line in drawn.iter(f"{SVG}line") if line.attrib["class"] == "soft-line")
    assert corners[1][1] == floor


def test_negative_bars_go_the_other_way_and_a_bar_has_its_interval() -> None:
    bars = [Bar("a", (1.0,), interval=(0.5, 9.0)), Bar("b", (-2.0,), interval=(-3.0, -1.0))]
    made = bar_chart(bars, names=("x",), title="T", description="D", x_label="e", small=True, reach=(-3.0, 2.0))
    drawn = ElementTree.fromstring(made)
    up, down = [rect.attrib for rect in drawn.iter(f"{SVG}rect") if rect.attrib["class"] != "paper"]
    assert float(down["x"]) + float(down["width"]) == pytest.approx(float(up["x"]))
    assert float(down["width"]) == pytest.approx(2 * float(up["width"]), rel=0.01)
    first, second = [line.attrib for line in drawn.iter(f"{SVG}line") if line.attrib["class"] == "ink-line"]
    assert float(second["x1"]) < float(down["x"]) < float(second["x2"])
    assert float(first["x2"]) > float(up["x"]) + float(up["width"])
    assert float(first["x2"]) < 300


numbers = st.floats(-1e12, 1e12)


@given(st.lists(st.tuples(numbers, numbers), max_size=30), st.booleans(), st.booleans())
def test_any_points_give_a_well_formed_chart_within_its_sheet(
    points: list[tuple[float, float]], log_x: bool, log_y: bool
) -> None:
    drawn = draw(Line("a", points), log_x=log_x, log_y=log_y)
    height = float(drawn.attrib["viewBox"].split()[3])
    for line in places(drawn):
        assert all(-1 <= x <= WIDTH + 1 and -1 <= y <= height + 1 for x, y in line)
    assert len(words(drawn)) < 40
    assert not re.search(r"nan|inf", ElementTree.tostring(drawn, encoding="unicode"))
