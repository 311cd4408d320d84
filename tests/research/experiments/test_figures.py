"""Figures show every curve at its true epsilon, pages state the right numbers, and all files are reproducible."""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from ringfence.research.experiments import figures
from ringfence.simulation.cells import Row

EPSILONS = (0.75, 3.0, 12.0)
PANELS = ("M = 25", "M = 100")
TRIALS = 3
PRIVATE = {"ringfence": 1.0, "untuned": 1.1, "paper": 1.05, "local": 1.6}
LEVELS = {"local non-private": 0.125, "minibatch non-private": 0.12, "optimum": 0.11}
TARGETS = {"M = 25": {0.75: 0.21, 3.0: 0.15}}


def cell(panel: str, curve: str, epsilon: float, trial: int, error: float) -> Row:
    truth = math.inf if epsilon == 0.0 else epsilon * (1.5 if curve == "paper" else 1.0)
    return {
        "panel": panel,
        "curve": curve,
        "epsilon": epsilon,
        "trial": trial,
        "true_epsilon": truth,
        "error": error + 0.01 * (trial - 1),
        "training_loss": 3 * error + 0.02 * trial,
        "chosen": "step 1, clip 2",
    }


def some_rows(curves: Sequence[str] = (*PRIVATE, *LEVELS)) -> list[Row]:
    """Errors that fall from 0.2 to about 0.14 in epsilon; three trials, 0.01 apart."""
    points = [(curve, 0.0, LEVELS[curve]) for curve in curves if curve in LEVELS]
    for epsilon in EPSILONS:
        error = 0.14 + 0.06 * 0.75 / epsilon
        points += [(curve, epsilon, PRIVATE[curve] * error) for curve in curves if curve in PRIVATE]
    return [
        cell(panel, curve, epsilon, trial, error)
        for panel in PANELS
        for trial in range(TRIALS)
        for curve, epsilon, error in points
    ]


def draw(rows: Sequence[Row], out: Path) -> tuple[Path, ...]:
    return figures.draw(rows, out, title="Digits", error_label="test error", targets=TARGETS)


def page(rows: Sequence[Row], out: Path, targets: figures.Targets | None = TARGETS) -> str:
    path = figures.write_page(
        rows,
        out,
        title="Digits",
        command="ringfence experiment digits --trials 3",
        setting="25 or 100 silos.",
        targets=targets,
        notes=["A first note.", "A second note."],
    )
    assert path == out / "index.md"
    return path.read_text(encoding="utf-8")


def table_line(text: str, epsilon: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {epsilon} |"))
    return [part.strip() for part in line.strip("|").split("|")]


def test_a_summary_has_means_and_percentiles_over_the_trials() -> None:
    points = figures.summary(some_rows()[::-1])
    assert list(dict.fromkeys(point["panel"] for point in points)) == ["M = 25", "M = 100"]
    assert len(points) == len(PANELS) * (len(PRIVATE) * len(EPSILONS) + len(LEVELS))
    first = points[0]
    assert (first["panel"], first["curve"], first["epsilon"], first["trials"]) == ("M = 25", "ringfence", 0.75, TRIALS)
    assert first["error"] == pytest.approx(0.2)
    assert (first["error_low"], first["error_high"]) == pytest.approx((0.191, 0.209))
    assert first["training_loss"] == pytest.approx(0.62)
    paper = next(point for point in points if point["curve"] == "paper")
    assert paper["true_epsilon"] == pytest.approx(1.125)


def test_figures_are_not_blank_and_well_formed(tmp_path: Path) -> None:
    paths = draw(some_rows(), tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["error.png", "error.svg", "training-loss.png", "training-loss.svg"]
    for path in paths:
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
            continue
        pixels = np.rint(255 * matplotlib.image.imread(path)[..., :3]).astype(int)
        colours = set(np.unique(pixels @ [1 << 16, 1 << 8, 1]).tolist())
        assert {int(curve.colour[1:], 16) for curve in figures.CURVES} < colours


def test_the_order_of_rows_changes_no_byte(tmp_path: Path) -> None:
    shuffled = random.Random(0).sample(some_rows(), len(some_rows()))
    written = []
    for rows, out in ((some_rows(), tmp_path / "a"), (shuffled, tmp_path / "b")):
        draw(rows, out)
        page(rows, out)
        figures.write_cells(rows, out)
        written.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert len(written[0]) == 6
    assert written[0] == written[1]


def test_a_private_curve_is_drawn_at_its_true_epsilon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[Figure] = []
    save = Figure.savefig

    def watched(figure: Figure, path: Path, **options: Any) -> None:
        drawn.append(figure)
        save(figure, path, **options)

    monkeypatch.setattr(Figure, "savefig", watched)
    draw(some_rows(), tmp_path)
    error_figure, _, loss_figure, _ = drawn
    lines = {line.get_color(): line for line in error_figure.axes[0].lines if line.get_marker() in ("o", "s", "^", "v")}
    assert lines["#D55E00"].get_xdata() == pytest.approx([1.125, 4.5, 18.0])
    assert lines["#0072B2"].get_xdata() == pytest.approx(EPSILONS)
    markers = [[line.get_marker() for line in axes.lines] for axes in error_figure.axes + loss_figure.axes]
    assert ["D" in each for each in markers] == [True, False, False, False]  # targets are errors of one panel


@pytest.mark.parametrize("curves", [["ringfence"], ["paper", "optimum"], ["optimum"]])
def test_missing_curves_are_left_out(curves: list[str], tmp_path: Path) -> None:
    rows = some_rows(curves)
    draw(rows, tmp_path)
    text = page(rows, tmp_path, targets=None)
    assert ("Ringfence, tuned: mean" in text) == ("ringfence" in curves)
    assert ("optimum, not private" in text) == ("optimum" in curves)
    assert "Local SGD" not in text
    assert "| target" not in text


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_diverged_curve_or_a_mean_beyond_its_percentiles_can_be_drawn(bad: float, tmp_path: Path) -> None:
    rows = some_rows()
    rows += [cell("M = 25", "local", 24.0, trial, bad) for trial in range(TRIALS)]
    rows += [cell("M = 25", "untuned", 24.0, trial, 500.0 if trial == 0 else 0.2) for trial in range(40)]
    rows.append(cell("M = 25", "paper", 24.0, 0, 0.2) | {"true_epsilon": math.inf})
    draw(rows, tmp_path)
    assert "over 1 to 40 trials" in page(rows, tmp_path)


def test_the_page_states_command_means_and_signed_deviations(tmp_path: Path) -> None:
    text = page(some_rows(), tmp_path)
    assert text.startswith("# Digits\n")
    assert "\nringfence experiment digits --trials 3\n" in text
    assert "(error.svg)" in text
    assert "(training-loss.svg)" in text
    assert "over 3 trials" in text
    assert "- optimum, not private: 0.1100 [0.1010, 0.1190]" in text
    assert text.endswith("- A first note.\n- A second note.\n")
    better = table_line(text, "0.75")
    assert better[1:4] == ["0.2000 [0.1910, 0.2090]", "0.2100", "-0.0100 (-4.8 %)"]
    assert better[4:] == ["0.2200", "0.2100 (1.12)", "0.3200"]
    assert table_line(text, "3")[2:4] == ["0.1500", "+0.0050 (+3.3 %)"]
    assert table_line(text, "12")[2:4] == ["–", "–"]


def test_rows_that_cannot_be_reported_are_refused(tmp_path: Path) -> None:
    with pytest.raises(figures.FigureError, match="no rows"):
        figures.summary([])
    with pytest.raises(figures.FigureError, match="no curve 'other'"):
        draw([cell("M = 25", "other", 1.0, 0, 0.2)], tmp_path)
    with pytest.raises(figures.FigureError, match="no error"):
        figures.write_cells([{name: value for name, value in some_rows()[0].items() if name != "error"}], tmp_path)
