"""The hostile server reads what the plan says is there, by public knowledge alone."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from ringfence.errors import MessageError, TrainingError
from ringfence.evidence.audit.adversary import Observation, ask_all_rounds, mean_answer_reader, partition
from ringfence.evidence.audit.game import play
from ringfence.evidence.audit.mechanisms import MECHANISMS
from ringfence.evidence.audit.plans import SILO, AuditQuery
from ringfence.protocol import RoundRequest
from ringfence.silo.gate import sampling
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from tests.hostile_server import forged_request, hostile_bodies, hostile_weights
from tests.support import refusal

QUERY = AuditQuery(3.0, 1e-5, 32, 4)


def test_the_server_computes_the_same_public_partition_as_the_silo() -> None:
    [plan] = MECHANISMS["one-pass"].plans(QUERY)
    assert partition(plan, SILO, 32) == sampling._partition(plan.digest(), SILO, 32).tolist()


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_evidence_is_the_log_likelihood_ratio(rate: float) -> None:
    numbers, strength = np.array([[0.3, -1.2], [2.0, 0.1]]), np.array([[0.4, 0.4], [0.4, 0.4]])

    def likelihood(x: float, s: float, coin: float) -> float:
        return float(rate * norm.pdf(x - coin * s) + (1 - rate) * norm.pdf(x))

    expected = [
        sum(
            math.log(likelihood(x, s, 1.0) / likelihood(x, s, -1.0))
            for x, s in zip(numbers[:, j], strength[:, j], strict=True)
        )
        for j in range(2)
    ]
    assert Observation(numbers, strength, rate).evidence() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_the_server_expects_of_a_canary_is_what_the_ledger_charges_for(name: str) -> None:
    """The worst-case canaries move as much as any record can: the strengths come to the charged shift, ± rounding.

    Except where the plan's bound is not reached by any pair (counts), or holds for sampled records.
    """
    [run] = play(MECHANISMS[name], QUERY, 1)
    power = max(np.sum([seen.power() for seen in run.observations], axis=0))
    if name in ("fixed", "poisson", "several-plans", "person-rows"):
        assert 0 < 2 * math.sqrt(power) < run.claim.epsilon
        return
    shift = 2 * norm.ppf(run.claim.score)
    if run.observations[0].coins is not None:
        assert 0.93 * shift < 2 * math.sqrt(power) < shift
        return
    if name == "statistics":  # the bound of places within bins is reached as bins become many
        assert 0.99 * shift < 2 * math.sqrt(power) < shift
        return
    assert 2 * math.sqrt(power) == pytest.approx(shift, rel=1e-5)


def test_an_honest_gate_refuses_every_hostile_request_and_charges_for_none(tmp_path: Path) -> None:
    [plan] = MECHANISMS["full"].plans(QUERY)
    records = MECHANISMS["full"].records(plan, np.ones(32))
    with Ledger.create(tmp_path / "ledger", silo=SILO, budget=Budget(3.0, 1e-5)) as ledger:
        gate = Gate(records, ledger)
        gate.approve(plan)
        for body in hostile_bodies():
            with pytest.raises(MessageError):
                RoundRequest.from_bytes(body)
        for weights in hostile_weights(plan.dimension).values():
            refusal(gate.answer(RoundRequest.from_bytes(forged_request(plan.digest(), 0, weights))))
        assert all(spent.epsilon == 0.0 for spent in ledger.account().spent())


def test_a_refused_round_ends_the_audit_with_the_reason(tmp_path: Path) -> None:
    [plan] = MECHANISMS["full"].plans(QUERY)
    records = MECHANISMS["full"].records(plan, np.ones(32))
    with Ledger.create(tmp_path / "ledger", silo=SILO, budget=Budget(3.0, 1e-5)) as ledger:
        gate = Gate(records, ledger)  # the plan was never approved
        with pytest.raises(TrainingError, match="not approved"):
            ask_all_rounds(mean_answer_reader(plan, [gate]), plan)
