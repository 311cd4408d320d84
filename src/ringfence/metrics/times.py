"""Times until an event: how many events there were, how many the model expects, and the mean loss."""

import numpy as np

from ringfence.metrics.estimates import Found
from ringfence.metrics.intervals import Figure, cut_figure, normal, proportion
from ringfence.protocol.arrays import TINY, FloatArray
from ringfence.protocol.questions.base import Facts

MOST_EXPECTED = 4.0
"""A record is taken to expect no more events than this: of a model that fits, one in 50 expects more."""


def figures(found: Found) -> list[Figure]:
    """Return the share of records with an event, beside what the model expects by their times, and the loss."""
    ended, noise = found.together("event").scalar()
    shown = [proportion("share with an event", (1 + ended) / 2, (noise / 2) ** 2, found.records)]
    for block, name, what in (
        ("expected", "events that the model expects, per record", "expectation"),
        ("loss", f"{found.facts.loss.name} loss of scaled times", "loss"),
    ):
        if found.has(block):
            told = found.latest(block)
            (value, deviation), cap = told.scalar(), float(told.ruler[0])
            # Of a number in ±1 with that mean, no variance is larger.
            variance = deviation**2 + max(1.0 - value**2, 0.0) / found.records
            least = 0.0 if block == "expected" else -cap
            figure = normal(name, cap * value, cap**2 * variance, least=least, most=cap)
            shown.append(cut_figure(name, figure, cap, what))
    return shown


def ruler(facts: Facts, largest: float, found: Found | None) -> dict[str, FloatArray]:
    """Return where expectations and losses are cut: what a hazard's logarithm may be, by the public bounds."""
    del found
    reach = MOST_EXPECTED + min(largest, MOST_EXPECTED)
    return {"expected": np.array([MOST_EXPECTED]), "loss": np.array([max(reach, TINY)])}


def shares(facts: Facts, *, last: bool) -> dict[str, float]:
    """Return how much of the sensitivity each block gets: the same in every round, for nothing has to be looked for."""
    del facts, last
    return {"event": 0.3, "expected": 0.3, "loss": 0.4, "paired": 0.4}
