"""Metrics of models of times until an event, and survival curves."""

import math
from typing import NamedTuple

import numpy as np

from ringfence.estimates.answers import BinEdges, EvaluationAnswers
from ringfence.estimates.intervals import half_width
from ringfence.estimates.metrics import FigureBlocks, Figures, Metric, clipped_mean_metric, needed_shares, share_metric
from ringfence.protocol import FloatArray, Loss, Schema
from ringfence.protocol.arrays import TINY

MOST_EXPECTED = 4.0
"""Clip of a record's expected number of events: under a model that fits, one record in 50 expects more."""
_LEAST = 1e-9
_EVENTS, _EXPECTED = "share with an event", "events that the model expects per record"


def _loss_name(loss: Loss) -> str:
    """Return the name of a survival model's loss, for its metric."""
    return f"{loss.name} loss of scaled times"


def survival_metrics(answers: EvaluationAnswers) -> list[Metric]:
    """Return the share of records with an event, the number that the model expects by their times, and the loss."""
    metrics = []
    if answers.has("event"):
        ended, noise = answers.averaged("event").scalar()
        metrics.append(share_metric(_EVENTS, (1 + ended) / 2, (noise / 2) ** 2, answers.records))
    for block, name, what in (
        ("expected", _EXPECTED, "expectation"),
        ("loss", _loss_name(answers.loss), "loss"),
    ):
        if answers.has(block):
            means = answers.latest(block)
            (value, deviation), clip = means.scalar(), means.clip
            variance = deviation**2 + max(1.0 - value**2, 0.0) / answers.records  # the largest of a number in ±1
            least = 0.0 if block == "expected" else -clip
            metrics.append(clipped_mean_metric(name, clip * value, clip**2 * variance, clip, least=least, what=what))
    return metrics


def survival_bin_edges(data: Schema, loss: Loss, largest: float, answers: EvaluationAnswers | None) -> BinEdges:
    """Return the clips of expectations and losses, by the public bounds on the logarithm of the hazard."""
    reach = MOST_EXPECTED + min(largest, MOST_EXPECTED)
    return {"expected": np.array([MOST_EXPECTED]), "loss": np.array([max(reach, TINY)])}


def survival_figures(loss: Loss) -> FigureBlocks:
    """Return the blocks that each figure of a survival model needs."""
    return {_EVENTS: ("event",), _EXPECTED: ("expected",), _loss_name(loss): ("loss",)}


def survival_block_shares(loss: Loss, last: bool, figures: Figures) -> dict[str, float]:
    """Return each block's share of the sensitivity: the same in every round, since no bin edges are estimated."""
    shares = {"event": 0.3, "expected": 0.3, "loss": 0.4, "paired": 0.4}
    return needed_shares(shares, survival_figures(loss), figures)


class SurvivalPoint(NamedTuple):
    """The share without an event up to a time, and its interval, which covers sampling and noise."""

    time: float
    share: float
    low: float
    high: float


def survival_points(cuts: tuple[float, ...], shares: FloatArray, noise: float, records: int) -> list[SurvivalPoint]:
    """Return the survival curve of shares of so many records: by the delta method, on the curve's logarithm.

    `shares` are on the simplex. Each has noise of the same deviation, and sampling varies them as a multinomial.
    """
    spread = noise**2 * np.eye(len(shares)) + (np.diag(shares) - np.outer(shares, shares)) / records
    points = []
    for place, time in enumerate(cuts):
        value = _log_survival(shares, place)
        steps = 1e-6 * np.eye(len(shares))
        slope = np.array([(_log_survival(shares + step, place) - value) / 1e-6 for step in steps])
        reach = half_width(float(slope @ spread @ slope))
        low, share, high = (min(math.exp(end), 1.0) for end in (value - reach, value, value + reach))
        points.append(SurvivalPoint(time, share, low, high))
    return points


def _log_survival(shares: FloatArray, place: int) -> float:
    """Return the logarithm of the survival curve at a cut, from the shares that left or had an event before each."""
    left, ended = shares.reshape(-1, 2).T
    before = np.concatenate([[0.0], np.cumsum(left + ended)[:-1]])
    at_risk = np.maximum(shares.sum() - before - left / 2, _LEAST)
    return float(np.sum(np.log(np.maximum(1.0 - (ended / at_risk)[: place + 1], _LEAST))))
