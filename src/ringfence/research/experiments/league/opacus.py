"""Opacus in every silo, and federated averaging: DP-SGD on Poisson batches, at a matched replace-one epsilon.

Opacus's own accountant is for a record that is added or removed. Here noise is found by Ringfence's accountant, for a
record that is replaced, over all steps of all rounds. Steps and clip are chosen on the test set.
"""

import itertools
import math
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ringfence.accounting import calibrate
from ringfence.protocol import FloatArray
from ringfence.research.experiments.abstract import Geometry
from ringfence.research.experiments.league.own import Trained
from ringfence.research.experiments.league.tables import LeagueTable

ROUNDS, EPOCHS, BATCHES = 5, 1, 20
"""Rounds of averaging, passes between two of them, and Poisson batches in a pass."""
RATES = (0.3, 1.0, 3.0, 10.0, 30.0)
CLIPS = (0.03, 0.1, 0.3)
"""Steps, in units of 1/β by the schema's bounds, and clips in units of the features' bound, that are tried."""
TUNING_SEED = 10_001
STEPS = ROUNDS * EPOCHS * BATCHES


def tuned(table: LeagueTable, epsilon: float, seeds: Sequence[int]) -> list[Trained]:
    """Run the settings with the least test error, with fresh noise for each seed."""
    settings = list(itertools.product(RATES, CLIPS))
    errors = [table.error(run(table, epsilon, *setting, TUNING_SEED)) for setting in settings]
    rate, clip = settings[int(np.argmin(np.nan_to_num(errors, nan=math.inf)))]
    chosen = f"rate {rate:g}, clip {clip:g}"
    return [Trained(run(table, epsilon, rate, clip, seed), ROUNDS, chosen) for seed in seeds]


@lru_cache(maxsize=256)
def noise_multiplier(records: int, epsilon: float, delta: float) -> float:
    """Return the noise in the sum of a batch, in units of the clip, that is (ε, δ)-DP if a record is replaced."""
    batch = max(1, round(records / BATCHES))
    shape: Any = {"records": records, "batch": batch, "rounds": STEPS, "clip": 1.0}
    return batch * calibrate.noise("poisson", **shape, epsilon=epsilon, delta=delta)


def run(table: LeagueTable, epsilon: float, rate: float, clip: float, seed: int) -> FloatArray:
    """Train once, with one of the steps and clips that are tried."""
    import torch

    geometry = Geometry.of(table.schema)
    step = rate / table.loss.constants(geometry.feature_norm, geometry.target_bound, math.inf).smoothness
    draws = torch.Generator().manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns that seeded noise is not secure: this is a simulation
        silos = [
            _Client(
                table,
                torch.tensor(own.features, dtype=torch.float32),
                torch.tensor(own.targets, dtype=torch.float32 if table.loss.target_kind != "class" else torch.int64),
                noise_multiplier(len(own), epsilon, table.deltas[name]),
                clip * geometry.feature_norm,
                step,
                draws,
            )
            for name, own in table.silos.items()
        ]
        weights, total = torch.zeros(table.shape[1], table.shape[0]), len(table.pooled[1])
        for _ in range(ROUNDS):
            weights = sum(len(own.targets) / total * own.trained(weights) for own in silos)
    found: FloatArray = weights.T.numpy().astype(np.float64)
    return found


class _Client:
    """A silo's model under Opacus's optimiser."""

    def __init__(
        self, table: LeagueTable, features: Any, targets: Any, noise: float, clip: float, step: float, draws: Any
    ) -> None:
        import torch
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer
        from opacus.utils.uniform_sampler import UniformWithReplacementSampler

        self.features, self.targets, self._kind = features, targets, table.loss.target_kind
        batch = max(1, round(len(targets) / BATCHES))
        self._linear = torch.nn.Linear(*table.shape, bias=False)
        self._model = GradSampleModule(self._linear, loss_reduction="sum")
        self._optimiser = DPOptimizer(
            torch.optim.SGD(self._model.parameters(), lr=step / batch),
            noise_multiplier=noise,
            max_grad_norm=clip,
            expected_batch_size=None,
            loss_reduction="sum",
            generator=draws,
        )
        self._batches = UniformWithReplacementSampler(
            num_samples=len(targets), sample_rate=batch / len(targets), generator=draws, steps=EPOCHS * BATCHES
        )

    def trained(self, weights: Any) -> Any:
        """Return the weights after the silo's own steps from those given."""
        import torch

        with torch.no_grad():
            self._linear.weight.copy_(weights)
        for rows in self._batches:
            self._optimiser.zero_grad()
            self._loss(self._model(self.features[rows]), self.targets[rows]).backward()
            self._optimiser.step()
        return self._linear.weight.detach().clone()

    def _loss(self, scores: Any, targets: Any) -> Any:
        """Sum the loss that the league's models have."""
        from torch.nn import functional

        if self._kind == "number":
            return ((scores[:, 0] - targets) ** 2).sum() / 2
        if self._kind == "class":
            return functional.cross_entropy(scores, targets, reduction="sum")
        return functional.softplus(-targets * scores[:, 0]).sum()
