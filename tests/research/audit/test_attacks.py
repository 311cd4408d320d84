"""Known attacks always succeed without privacy, and with it no more often than the guarantee allows."""

import math
import secrets
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from ringfence.research.audit import attack_page, attacks
from ringfence.research.audit.attacks import (
    CANDIDATES,
    RECORDS,
    Scene,
    Tally,
    load_pictures,
    picture,
    plan_at,
    success_limit,
)
from ringfence.silo.records.records import Records


@pytest.fixture(scope="module")
def pictures() -> Records:
    return load_pictures()


@pytest.fixture
def order(pictures: Records) -> NDArray[np.int64]:
    return np.random.default_rng(5).permutation(len(pictures))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("candidates", [2, 7, 100])
def test_randomised_response_reaches_the_limit(candidates: int, epsilon: float) -> None:
    """Saying the truth e^ε times as often as each lie is (ε, 0)-DP: no limit below its success would be true."""
    truth = math.exp(epsilon) / (math.exp(epsilon) + candidates - 1)
    assert success_limit(candidates, epsilon, 0.0) == pytest.approx(truth, rel=1e-12)


def test_telling_all_with_probability_delta_stays_within_the_limit() -> None:
    for delta in (1e-3, 0.1):
        honest = delta + (1 - delta) / CANDIDATES
        assert honest <= success_limit(CANDIDATES, 0.0, delta) * (1 + 1e-12)


def test_without_privacy_both_attacks_always_succeed(pictures: Records, order: NDArray[np.int64]) -> None:
    scene = Scene(plan_at(10.0), private=False)
    known = pictures.take(order[: RECORDS - 1])
    for truth in (0, 1):
        assert scene.membership(known, pictures.take(order[100:102]), truth)
    for truth in (0, 57, 99):
        assert scene.reconstruction(known, pictures.take(order[100:200]), truth)


def test_without_privacy_the_leftover_is_the_picture_itself(pictures: Records, order: NDArray[np.int64]) -> None:
    scene = Scene(plan_at(10.0), private=False)
    rows = order[:RECORDS]
    with scene.silo(pictures.take(rows)) as ask:
        left = scene.leftover(pictures.take(rows[1:]), ask)
    original = pictures.features[rows[0], :-1]
    assert left[:-1] / left[-1] == pytest.approx(original, abs=1e-9)
    assert np.corrcoef(picture(left).ravel(), original)[0, 1] > 1 - 1e-9


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_through_the_gate_success_stays_under_the_limit(
    pictures: Records, order: NDArray[np.int64], epsilon: float
) -> None:
    """Fails by chance with probability 1e-6 at most: successes are compared with a binomial at the limit.

    The limit is for candidates that are equally likely, so the truth is drawn.
    """
    trials = 25
    scene = Scene(plan_at(epsilon), private=True)
    known, suspects = pictures.take(order[: RECORDS - 1]), pictures.take(order[100:200])
    successes = sum(scene.reconstruction(known, suspects, secrets.randbelow(CANDIDATES)) for _ in range(trials))
    assert binom.sf(successes - 1, trials, success_limit(CANDIDATES, epsilon, 1e-5)) > 1e-6


def test_an_interval_holds_the_rate_and_ends_at_the_edges() -> None:
    assert Tally("membership", 3.0, 0, 20, 2).interval()[0] == 0.0
    assert Tally("membership", 3.0, 20, 20, 2).interval()[1] == 1.0
    low, high = Tally("membership", 3.0, 13, 20, 2).interval()
    assert low < 0.65 < high
    assert binom.sf(12, 20, low) == pytest.approx(0.025)


def test_the_page_has_its_figure_and_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack_page, "QUICK_TRIALS", 1)
    monkeypatch.setattr(attacks, "CANDIDATES", 5)
    page = attack_page.reproduce_attacks(tmp_path / "audit", quick=True)
    assert page.read_text().count("| reconstruction |") == 4
    assert (page.parent / "attacks.png").read_bytes().startswith(b"\x89PNG")
    assert len((page.parent / "attacks.csv").read_text().splitlines()) == 9
