"""Silos count by records unless noise would cost more than the bias of counting by noise, and that is said."""

import math
from pathlib import Path

import numpy as np
import pytest

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.model.statement import Statement
from ringfence.planning.explain import explain_proposal
from ringfence.planning.propose import propose
from ringfence.planning.request import Member, PlanRequest, Weights
from ringfence.planning.silo_weights import BETWEEN, GATHERED, expected_error, silo_weights
from ringfence.protocol import Plan, Schema
from ringfence.protocol.plan.prospects import weighting
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.operator.review import review

STRICT = [Member("strict", 1000, 0.1, 1e-6), Member("one", 1000, 3.0, 1e-6), Member("other", 1000, 3.0, 1e-6)]
MIXED = [Member(f"silo {epsilon}", 1000, epsilon, 1e-6) for epsilon in (0.3, 1.0, 3.0, 8.0)]
HALF = [Member("strict", 1000, 0.5, 1e-6), Member("one", 1000, 2.0, 1e-6), Member("other", 1000, 2.0, 1e-6)]
ALIKE = [Member("one", 1000, 1.0, 1e-6), Member("other", 4000, 1.0, 1e-6)]


def shifts(members: list[Member]) -> list[float]:
    return [gaussian_shift(own.epsilon, own.allowed_delta) for own in members]


def shares(members: list[Member], asked: Weights | None, dimension: int = 20) -> tuple[float, ...]:
    return silo_weights(members, shifts(members), dimension, asked)


def variances(members: list[Member], dimension: int) -> list[float]:
    sized = zip(members, shifts(members), strict=True)
    return [GATHERED * dimension * (2 / (own.records * shift)) ** 2 + 1 / own.records for own, shift in sized]


def noise(members: list[Member], weights: tuple[float, ...]) -> float:
    sized = zip(weights, members, shifts(members), strict=True)
    return math.hypot(*(weight / (own.records * shift) for weight, own, shift in sized))


@pytest.mark.parametrize(("members", "times"), [(STRICT, 11.0), (MIXED, 5.8), (HALF, 1.9)])
def test_weights_by_noise_have_the_least_noise_of_all_and_as_much_less_than_records_as_was_computed(
    members: list[Member], times: float
) -> None:
    best = shares(members, "noise")
    assert math.fsum(best) == pytest.approx(1.0)
    assert noise(members, shares(members, "records")) / noise(members, best) == pytest.approx(times, rel=0.02)
    generator = np.random.default_rng(1)
    for other in generator.dirichlet(np.ones(len(members)), size=200):
        assert noise(members, best) <= noise(members, tuple(other))


def test_silos_count_as_asked_for_and_as_they_say_themselves() -> None:
    assert shares(ALIKE, "records") == (0.2, 0.8)
    assert shares(ALIKE, "equal") == (0.5, 0.5)
    assert shares([Member("one", 10, 1.0, weight=3.0), Member("other", 10, 1.0, weight=1.0)], "noise") == (0.75, 0.25)


@pytest.mark.parametrize("members", [STRICT, MIXED, HALF])
def test_where_nobody_says_no_other_weights_are_expected_to_err_less(members: list[Member]) -> None:
    chosen, records, noisy = (shares(members, asked) for asked in (None, "records", "noise"))
    own = variances(members, 20)
    assert expected_error(own, chosen, records) < 0.9 * expected_error(own, records, records)
    generator = np.random.default_rng(1)
    others = [noisy, *(tuple(other) for other in generator.dirichlet(np.ones(len(members)), size=200))]
    assert all(expected_error(own, chosen, records) <= expected_error(own, other, records) for other in others)
    assert all(min(p, q) <= c <= max(p, q) for p, q, c in list(zip(records, noisy, chosen, strict=True))[:1])


def test_silos_count_by_records_where_budgets_are_alike_or_noise_is_none() -> None:
    assert shares(ALIKE, None) == shares(ALIKE, "records")
    large = [Member(own.name, 10**6, own.epsilon, own.delta) for own in STRICT]  # so many that noise is none
    assert shares(large, None) == shares(large, "records")


def test_the_expected_error_is_that_of_silos_that_differ_at_random() -> None:
    """The mean of silos' gradients, weighed by noise, misses the pooled one by noise, sampling and bias.

    400,000 draws of each silo's own deviation, of its records' mean and of its noise: the mean square has a relative
    standard deviation of at most √(2/400,000) = .0023, so that 5.5 of them leave less than one false alarm in 10⁷.
    """
    draws, dimension = 400_000, 1
    generator = np.random.default_rng(7)
    for members in (STRICT, HALF):
        p = np.array(shares(members, "records"))
        q = np.array(shares(members, "noise"))
        n = np.array([own.records for own in members])
        deviation = math.sqrt(BETWEEN) * generator.normal(size=(draws, len(members)))
        sampled = generator.normal(size=(draws, len(members))) / np.sqrt(n)
        spoken = (
            math.sqrt(GATHERED) * 2 / (n * np.array(shifts(members))) * generator.normal(size=(draws, len(members)))
        )
        missed = (deviation + sampled + spoken) @ q - deviation @ p
        expected = expected_error(variances(members, dimension), tuple(q), tuple(p))
        assert float(np.mean(missed**2)) == pytest.approx(expected, rel=5.5 * math.sqrt(2 / draws))


def stated(plan: Plan) -> str:
    return " ".join(str(Statement.claimed(plan, {own.name: 1 for own in plan.silos})).split())


def made(schema: Schema, members: list[Member], weights: Weights | None = None) -> Plan:
    return propose(schema, members, PlanRequest(weights=weights)).plan


def test_explanation_review_and_statement_say_whom_a_model_is_for_that_counts_by_noise(
    schema: Schema, tmp_path: Path
) -> None:
    proposal = propose(schema, STRICT, PlanRequest(weights="noise"))
    clause = weighting(proposal.plan)
    assert "silos are weighted by the noise in their answers: the model is best for records weighted that way" in clause
    assert "least suited to 'strict', which has 0.33 of all" in clause
    assert clause in explain_proposal(proposal)[0]
    with Ledger.create(tmp_path / "strict.ledger", silo="strict", budget=Budget(1.0, 1e-6)) as ledger:
        assert clause in review(proposal.plan, ledger.account(), "").text()
    assert "Silos are weighted by the noise in their answers: the model" in stated(proposal.plan)


def test_nothing_is_said_where_silos_count_by_records_and_shares_of_their_own_are_called_so(schema: Schema) -> None:
    assert weighting(made(schema, ALIKE)) == ""
    few = [Member(own.name, 200, own.epsilon, own.delta) for own in STRICT]
    assert "by the noise in their answers as well as by their records" in weighting(made(schema, few))
    assert "silos are weighted by shares of their own" in weighting(made(schema, ALIKE, "equal"))
    assert "count by" not in stated(made(schema, ALIKE))
