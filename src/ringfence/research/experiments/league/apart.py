"""Models of records that stay apart, in one message per silo: noisy sufficient statistics, and averaged models."""

import math

import numpy as np

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.protocol import FloatArray, Loss
from ringfence.research.experiments.abstract import Geometry
from ringfence.research.experiments.league.central import private_fit, symmetric_noise
from ringfence.research.experiments.league.tables import LeagueTable


def averaged(table: LeagueTable, epsilon: float, random: np.random.Generator) -> FloatArray:
    """Let every silo fit a private model of its own, as a curator would, and average them by their records."""
    fit, total = private_fit(table.loss, Geometry.of(table.schema)), len(table.pooled[1])
    weights = np.zeros(table.shape)
    for name, own in table.silos.items():
        weights += len(own) / total * fit(own.features, own.targets, epsilon, table.deltas[name], random)
    return weights


def noisy_statistics(table: LeagueTable, epsilon: float, random: np.random.Generator) -> FloatArray:
    """Let every silo send Σxxᵀ and Σxyᵀ with noise, half of the squared shift for each; solve for their sums.

    Labels are ±1, or a column for each class, and fitted by least squares. Eigenvalues below 0 count as 0, and the
    ridge is the edge of the noise's spectrum, √(2d) times its spread: nothing is tuned.
    """
    geometry, (width, outputs) = Geometry.of(table.schema), table.shape
    X, Y = geometry.feature_norm, geometry.target_bound if table.is_number else 1.0
    moments, cross, variance = np.zeros((width, width)), np.zeros((width, outputs)), 0.0
    for name, own in table.silos.items():
        share = math.sqrt(2) / gaussian_shift(epsilon, table.deltas[name])
        moments += own.features.T @ own.features + share * math.sqrt(2) * X**2 * symmetric_noise(width, random)
        noise = random.standard_normal((width, outputs))
        cross += own.features.T @ label_columns(table.loss, own.targets) + share * 2 * X * Y * noise
        variance += 2 * share**2 * X**4
    values, axes = np.linalg.eigh(moments)
    ridge = math.sqrt(2 * width * variance)
    solved: FloatArray = (axes / (np.maximum(values, 0.0) + ridge)) @ (axes.T @ cross)
    return solved


def label_columns(loss: Loss, targets: FloatArray) -> FloatArray:
    """Return targets as columns whose rows are at most Y long, so that Σxyᵀ has sensitivity 2XY."""
    if loss.target_kind != "class":
        return targets[:, None]
    columns: FloatArray = np.eye(loss.outputs)[targets.astype(np.int64)]
    return columns
