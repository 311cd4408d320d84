"""Average precision of two classes, from bands that hold at every threshold at once.

Let a be the share of records that are positive and above a threshold, and b(a) that of negative ones above it. The
average precision is the mean of a/(a + b(a)) over a from 0 to the share of positives. It falls with b at every a, so
bands for all cumulative shares together bound it: no precision at a single threshold is estimated, of which the first
divide by nearly nothing. The interval is wider than it need be, since bands hold everywhere, and cells hide where in
them records lie.
"""

import math

import numpy as np

from ringfence.metrics.estimates import Cells
from ringfence.metrics.intervals import COVERAGE, DRAWS, Figure, figure
from ringfence.protocol.arrays import FloatArray

_ENDS = 65
"""At how many shares of positives, between its bounds, the mean is looked at."""


def average_precision(cells: Cells, unknown: str) -> Figure:
    """Return the figure of cells that are those of the negative class, then of the positive, by rising score."""
    bins = len(cells.shares) // 2
    above = np.triu(np.ones((bins, bins)))[::-1]  # from the highest cell on, down to all of them
    none = np.zeros_like(above)
    slopes = np.concatenate([np.hstack([none, above]), np.hstack([above, none])])
    low, high = _bands(cells, slopes)
    (positive_low, negative_low), (positive_high, negative_high) = (np.split(band, 2) for band in (low, high))
    ends = np.linspace(max(positive_low[-1], 1e-9), max(positive_high[-1], 2e-9), _ENDS)
    # A share a of positives that lies above what a cell and all higher ones can hold takes all their negatives along.
    best = max(_mean(end, positive_high, np.concatenate([[0.0], negative_low])) for end in ends)
    worst = min(_mean(end, positive_low, np.append(negative_high, negative_high[-1])) for end in ends)
    shares = slopes @ cells.shares
    positive, negative = (np.maximum.accumulate(np.maximum(part, 0.0)) for part in np.split(shares, 2))
    between = [
        _mean(max(positive[-1], 1e-9), positive, negatives)
        for negatives in (np.concatenate([[0.0], negative]), np.append(negative, negative[-1]))
    ]
    return figure("average precision", float(np.mean(between)), worst, best, least=0.0, most=1.0, unknown=unknown)


def _bands(cells: Cells, slopes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return bounds of sums of cells that hold for all of them together, and rise as these sums do."""
    spread = cells.covariance(slopes)
    scale = np.sqrt(np.maximum(np.diag(spread), 1e-300))
    values, vectors = np.linalg.eigh(spread / np.outer(scale, scale))
    draws = np.random.default_rng(0).normal(size=(DRAWS, len(slopes))) * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    reach = float(np.quantile(np.max(np.abs(draws), axis=1), COVERAGE)) * scale
    found = slopes @ cells.shares
    halves = [np.split(np.clip(found + side, 0.0, 1.0), 2) for side in (-reach, reach)]
    low = np.concatenate([np.maximum.accumulate(part) for part in halves[0]])
    high = np.concatenate([np.minimum.accumulate(part[::-1])[::-1] for part in halves[1]])
    return low, high


def _mean(end: float, steps: FloatArray, negatives: FloatArray) -> float:
    """Return the mean of a/(a + b) over a from 0 to the end, with b the negatives of a's step: one more than steps.

    ∫ a/(a + b) da is a − b·ln(a + b).
    """
    edges = np.concatenate([[0.0], np.minimum(steps, end), [end]])
    total = 0.0
    for begin, stop, b in zip(edges[:-1], edges[1:], negatives, strict=True):
        if stop > begin:
            total += stop - begin - (b * math.log((stop + b) / (begin + b)) if b > 0 else 0.0)
    return total / end
