"""Many small fits, each with ledgers of its own."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

from ringfence.estimators import base
from ringfence.estimators.fit_memory import Memory
from ringfence.protocol import FloatArray
from ringfence.silo.noise import randomness

MEMORY_FOLDER = Path("/dev/shm")


@pytest.fixture(autouse=True)
def _short_lived_ledgers_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a fit throws away off the disk, where the system has a folder in memory: syncing takes the time."""
    if MEMORY_FOLDER.is_dir():
        monkeypatch.setattr(tempfile, "tempdir", str(MEMORY_FOLDER))


@pytest.fixture(autouse=True)
def _a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every test begin without any fit, as a new process would."""
    monkeypatch.setattr(base, "MEMORY", Memory())


@pytest.fixture
def repeated_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every release draw the same noise, on the mechanism's grid: what two fits then differ in is not noise."""

    def noise(dimension: int, sigma: float, exponent: int) -> FloatArray:
        grid = 2.0**exponent
        drawn: FloatArray = np.round(np.random.default_rng(1).normal(0.0, sigma, dimension) / grid) * grid
        return drawn

    monkeypatch.setattr(randomness, "gaussian_noise", noise)


@pytest.fixture
def said_to_repeat(monkeypatch: pytest.MonkeyPatch, repeated_noise: None) -> None:
    """Repeat the noise, and let estimators tell scikit-learn that they do."""
    real = base.FederatedLinearModel.__sklearn_tags__

    def tags(self: base.FederatedLinearModel) -> object:
        found = real(self)
        found.non_deterministic = False
        return found

    monkeypatch.setattr(base.FederatedLinearModel, "__sklearn_tags__", tags)
