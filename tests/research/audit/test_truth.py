"""Every plan's epsilon, by a second route."""

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from ringfence.errors import AccountingError
from ringfence.evidence.audit.game import audit
from ringfence.evidence.audit.mechanisms import MECHANISMS
from ringfence.evidence.audit.plans import AuditQuery
from ringfence.research.audit import truth
from ringfence.research.audit.second import (
    INTERVAL,
    Counts,
    Release,
    counts,
    releases,
    second_epsilon,
    second_epsilon_of_counts,
)
from ringfence.research.audit.truth import Truth, reproduce_truth, truth_of

QUERIES = [AuditQuery(0.5, 1e-6, 1000, 30), AuditQuery(3.0, 1e-5, 64, 4), AuditQuery(8.0, 1e-4, 200, 1)]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: f"epsilon {query.epsilon}")
@pytest.mark.parametrize("name", MECHANISMS)
def test_two_accountants_agree_on_every_kind_of_plan(name: str, query: AuditQuery) -> None:
    found = truth_of(name, query)
    found.require_agreement()
    if found.is_bound:  # on the safe side, and not by much
        assert 0.95 * found.claimed < found.second < found.claimed
        return
    assert found.claimed == pytest.approx(query.epsilon, rel=1e-4)
    assert found.disagreement < 1e-3


def test_accountants_that_disagree_stop_everything() -> None:
    found = truth_of("full", QUERIES[1])
    with pytest.raises(AccountingError, match="one of them is wrong"):
        dataclasses.replace(found, second=1.02 * found.second).require_agreement()


@pytest.mark.parametrize("factor", [1.001, 0.89])
def test_a_bound_must_be_above_the_truth_and_near_it(factor: float) -> None:
    found = Truth("shuffled", QUERIES[1], claimed=3.0, second=3.0 * factor, is_bound=True)
    with pytest.raises(AccountingError, match="one of them is wrong"):
        found.require_agreement()


def test_counts_are_composed_as_their_definition_says() -> None:
    """δ(ε) = Σ max(0, P − e^ε·Q) over all totals of one coordinate; at dp-accounting's ε it is the given δ."""
    epsilon = second_epsilon_of_counts(Counts(levels=5, coins=100, dimension=1, count=1), 1e-3)
    total = np.arange(106)
    p, q = binom.pmf(total, 100, 0.5), binom.pmf(total - 5, 100, 0.5)

    def delta(at: float) -> float:
        return float(np.maximum(0.0, p - np.exp(at) * q).sum())

    assert delta(epsilon) <= 1e-3 <= delta(epsilon - 2 * INTERVAL)


def test_the_second_accountant_notices_half_of_the_coins() -> None:
    [plan] = MECHANISMS["shuffled"].plans(QUERIES[1])
    found = counts(plan, "server")
    fewer = dataclasses.replace(found, coins=found.coins // 2)
    assert second_epsilon_of_counts(fewer, 1e-5) > 1.3 * second_epsilon_of_counts(found, 1e-5)
    assert fewer == counts(plan, "anyone")


def test_the_second_accountant_notices_half_of_the_noise() -> None:
    [plan] = MECHANISMS["fixed"].plans(QUERIES[1])
    [release] = releases(plan)
    twice = Release(2 * release.shift, release.count, release.rate, release.fixed_size)
    assert second_epsilon([twice], 1e-5) > 2 * second_epsilon([release], 1e-5)


def test_an_effort_is_a_multiple_of_the_usual_runs_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silo that keeps its claim is refuted with probability 1e-6 at most."""
    monkeypatch.setattr(truth, "grid", lambda: [("full", QUERIES[1])])
    monkeypatch.setattr(truth, "audit", partial(audit, false_alarm=1e-6 / 2))
    text = reproduce_truth(tmp_path / "results", effort=0.01).read_text()
    assert "ringfence reproduce privacy-truth --out results --effort 0.01\n" in text
    assert "| 12 | no |" in text


def test_the_page_shows_every_mechanism(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All audits together refute a silo that keeps its claim with probability 1e-6 at most: each has two ways to."""
    monkeypatch.setattr(truth, "EPSILONS", (3.0,))
    monkeypatch.setattr(truth, "audit", partial(audit, false_alarm=1e-6 / 2 / len(MECHANISMS)))
    page = reproduce_truth(tmp_path / "results", quick=True)
    text = page.read_text()
    assert "ringfence reproduce privacy-truth --out results --quick" in text
    for name, mechanism in MECHANISMS.items():
        if mechanism.runs:  # coins are whole numbers
            assert f"| {name} | " in text
        else:
            assert f"| {name} | 3.0000 | 3.0000 |" in text or f"| {name} | 3.0000 | 2.9999 |" in text
    assert "YES" not in text
