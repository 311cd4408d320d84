"""Figures as a document: of all silos' records together, and of each silo's."""

from typing import Literal

from ringfence.metrics.intervals import COVERAGE, Figure, shown
from ringfence.protocol.public import Public
from ringfence.protocol.questions import Unit

_GUESSING = " of guessing "


class Cell(Public):
    """The share of the records of a class that are predicted to be of one."""

    actual: str
    predicted: str
    share: Figure


class Point(Public):
    """A point of the ROC curve: which shares of the classes have scores above the threshold."""

    threshold: float
    false_positive_rate: Figure
    true_positive_rate: Figure


class Bin(Public):
    """A point of the calibration curve: about which probability was predicted, and how often it was so."""

    predicted: float
    share: Figure


class Evaluated(Public):
    """What is known of a model's predictions for so many records (persons, where they are the unit)."""

    records: int
    figures: tuple[Figure, ...]
    confusion: tuple[Cell, ...] = ()
    roc: tuple[Point, ...] = ()
    calibration: tuple[Bin, ...] = ()

    def figure(self, name: str) -> Figure:
        """Return a figure by its name; KeyError if there is none."""
        return {figure.name: figure for figure in self.figures}[name]

    @property
    def score(self) -> Figure:
        """The figure that scikit-learn calls score: accuracy, or R² where numbers are predicted; of times, none."""
        unknown = Figure(name="score", value=None, low=None, high=None, unknown="there is no single score for times")
        return next((figure for figure in self.figures if figure.name in ("accuracy", "R²")), unknown)

    def sentences(self) -> list[str]:
        """Return the figures in words, each with what guessing gives, if that is known."""
        guesses = {name: (what, f) for f in self.figures for name, _, what in [f.name.partition(_GUESSING)] if what}
        found = []
        for one in self.figures:
            if _GUESSING in one.name:
                continue
            what, guess = guesses.get(one.name, ("", one))
            known = f"; guessing {what} gives {shown(guess.value)}" if what and guess.value is not None else ""
            found.append(one.sentence() + known)
        return found


class EvaluationReport(Public):
    """An evaluation: intervals cover the value for all whom the records are a random sample of, and the silos' noise,
    with probability `coverage` each."""

    kind: Literal["ringfence-evaluation"] = "ringfence-evaluation"
    format: Literal[1] = 1
    unit: Unit
    coverage: float = COVERAGE
    together: Evaluated
    silos: dict[str, Evaluated]

    def __str__(self) -> str:
        head = f"Measured privately on {self.together.records} {self.unit}s, with {self.coverage:.0%} intervals"
        return "\n  ".join([head, *self.together.sentences()])
