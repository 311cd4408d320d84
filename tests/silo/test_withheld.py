"""What was computed and must not leave: not stored, not sent, and never drawn again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.protocol.messages import RefusalReason
from ringfence.protocol.schema import parse_schema
from ringfence.silo import mechanism
from ringfence.silo.budget import Budget
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.silo.records import Records
from ringfence.storage.chain import Draft
from tests.support import MakePlan, ask, refusal, vector


def kinds(ledger: Ledger) -> list[str]:
    return [entry.kind for entry in ledger.entries()]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_answer_that_is_not_finite_is_lost_and_stays_charged(
    bad: float, gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, true_release = plan_of(), mechanism.release

    def spoilt(*given: Any, **named: Any) -> Any:
        numbers = true_release(*given, **named)
        numbers[1] = bad
        return numbers

    gate.approve(plan)
    monkeypatch.setattr(mechanism, "release", spoilt)
    assert refusal(ask(gate, plan, 0)) is RefusalReason.ROUND_LOST
    monkeypatch.undo()
    assert refusal(ask(gate, plan, 0)) is RefusalReason.ROUND_LOST
    assert kinds(ledger).count("charged") == 1
    assert "released" not in kinds(ledger)
    assert np.all(np.isfinite(vector(ask(gate, plan, 1))))


def test_a_withheld_round_of_correlated_noise_is_not_remembered(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, true_release = plan_of(sampling="one-pass", correlation=0.5, rounds=4), mechanism.release
    gate.approve(plan)
    memories: list[int] = []

    def watched(*given: Any, **named: Any) -> Any:
        memories.append(len(given[5].means))
        numbers = true_release(*given, **named)
        if len(memories) == 2:
            with Ledger.open(ledger.path) as other:
                other.end(plan.digest())
        return numbers

    monkeypatch.setattr(mechanism, "release", watched)
    vector(ask(gate, plan, 0))
    assert refusal(ask(gate, plan, 1)) is RefusalReason.REVOKED
    gate.approve(plan)
    vector(ask(gate, plan, 2))
    assert memories == [0, 1, 0]


def test_a_plan_of_before_whose_norm_vanishes_is_not_answered_any_more(tmp_path: Path, plan_of: MakePlan) -> None:
    """An earlier version approved it, and would have answered a survey of it with 0/0."""
    tiny = {"type": "numeric", "lower": -1.0, "upper": 1.0, "scale": 1e200}
    label = {"type": "categorical", "categories": ["no", "yes"]}
    schema = parse_schema({"columns": {"a": tiny, "ill": label}, "intercept": False}, target="ill")
    records = Records(schema, np.full((40, 1), 1e-200), np.ones(40))
    plan = plan_of().model_copy(update={"data": schema})
    with Ledger.create(tmp_path / "clinic.ledger", silo="clinic", budget=Budget(2.0, 1e-6)) as ledger:
        ledger.update(lambda _: (None, [Draft("approved", {"events": []}, plan.content)]))
        assert refusal(ask(Gate(records, ledger), plan, 0)) is RefusalReason.NOT_APPROVED
        assert "charged" not in kinds(ledger)
