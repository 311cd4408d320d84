"""Sections: which records are held out goes by their numbers alone, and no answer speaks of another section's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import ApprovalError, PlanError
from ringfence.evidence.verification import verify
from ringfence.federation.requests import AskRequest, TrainRequest
from ringfence.federation.workflow import ask_files, evaluation_plan_maker, train_files
from ringfence.planning.propose import propose_for
from ringfence.planning.request import PlanRequest
from ringfence.protocol import Curvature, FloatArray, Gradient, Plan, parse_schema
from ringfence.protocol.plan import sections
from ringfence.protocol.plan.plan import task
from ringfence.server import rounds
from ringfence.silo.gate import sampling
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.certificate import certify
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.operator.decisions import approve_plan
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records
from tests.generated import examples
from tests.silo.agents import silo_with

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
SCHEMA = parse_schema({"columns": {"a": NUMBER, "b": NUMBER, "y": NUMBER}}, target="y")
SCHEMA_FILE = "".join(f'[columns.{name}]\ntype = "numeric"\nlower = -1.0\nupper = 1.0\n' for name in "aby")
SHARES = st.integers(1, 99).map(lambda percent: percent / 100)


def plan_of(sizes: dict[str, int] | None = None, **asked: Any) -> Plan:
    request = PlanRequest(**{"epsilon": 1.0, "delta": 1e-6, "rounds": 3, "survey": False, "loss": "squared", **asked})
    return propose_for(request, SCHEMA, sizes or {"clinic": 40}).plan


def values_of(rows: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).uniform(-1, 1, (rows, 4))


def rows_of(count: int) -> list[str]:
    return ["a,b,y", *(",".join(f"{cell:.3f}" for cell in row[:3]) for row in values_of(count))]


def records_of(values: FloatArray) -> Records:
    return Records(SCHEMA, values[:, :3], values[:, 3])


@given(records=st.integers(1, 500), share=SHARES)
@examples(100)
def test_every_record_is_in_one_section_and_their_sizes_are_public(records: int, share: float) -> None:
    training, held_out = (sections.members(section, records, share) for section in ("training", "held-out"))
    assert sorted([*training, *held_out]) == list(range(records))
    assert len(training) == sections.size("training", records, share)
    assert len(held_out) == sections.size("held-out", records, share)
    assert abs(len(held_out) - share * records) <= 20


@given(before=st.integers(1, 300), more=st.integers(0, 300), share=SHARES)
@examples(100)
def test_records_that_are_added_move_nobody_to_another_section(before: int, more: int, share: float) -> None:
    after = sections.members("held-out", before + more, share)
    assert after[after < before].tolist() == sections.members("held-out", before, share).tolist()


def test_the_public_rule_never_changes() -> None:
    """Ledgers count on it for ever."""
    assert sections.members("held-out", 60, 0.2).tolist() == [2, 4, 6, 18, 31, 32, 33, 37, 41, 42, 43, 53]
    assert int(sections.members("held-out", 10**6, 0.2).sum()) == 99_999_904_867
    assert sections.members(None, 60, 0.2).tolist() == list(range(60))
    assert sections.members("held-out", 60, None).tolist() == list(range(60))


@pytest.mark.parametrize("rule", ["full", "fixed", "poisson", "one-pass"])
def test_each_rule_draws_from_its_section_alone(rule: str) -> None:
    plan = plan_of(sampling=rule)
    terms, seen = plan.silos[0], np.zeros(40)
    for round in range(3):
        work = task(plan, terms, round, round)
        seen += sampling.participation(work.stage.sampling, plan, terms, work, lambda n: np.arange(n, dtype=np.uint64))
    assert not seen[sections.members("held-out", 40, 0.2)].any()
    assert seen.any()


@pytest.mark.parametrize("query", [Gradient(clip=0.5), Curvature()], ids=lambda q: q.name)
@pytest.mark.parametrize(("asked", "other"), [("training", "held-out"), ("held-out", "training")])
def test_no_answer_moves_with_a_record_of_another_section(query: Any, asked: Any, other: Any) -> None:
    plan, values, others = plan_of(), values_of(40), values_of(40, seed=1)
    inside, outside = (sections.members(section, 40, 0.2) for section in (asked, other))
    chosen = np.zeros(40)
    chosen[inside] = 1.0
    mixed = values.copy()
    mixed[outside] = others[outside]

    def answer(rows: FloatArray, taking_part: FloatArray) -> list[float]:
        weights = np.full(3, 0.1)
        found = compute(query, plan, weights, records_of(rows), taking_part, len(inside))
        return [float(number) for number in found]

    assert answer(values, chosen) == answer(mixed, chosen) == answer(values[inside], np.ones(len(inside)))
    assert answer(values, chosen) != answer(others, chosen)


def test_a_silo_whose_budget_training_used_up_still_evaluates_and_proves_it(tmp_path: Path) -> None:
    folder = silo_with(tmp_path, SCHEMA_FILE, "\n".join(rows_of(40)), Budget(1.0, 1e-6))
    plan, again = plan_of(run="one"), plan_of(run="two")
    approve_plan(folder, plan)
    with folder.ledger() as ledger:
        gate = Gate(folder.records(), ledger)
        rounds.run(plan, lambda request, _: {"clinic": gate.answer(request)})
        gate.end(plan)
        with pytest.raises(ApprovalError, match="budget"):
            gate.approve(again)
        sections_asked = {getattr(event, "section", "all") for event, _ in ledger.account().charged()}
    assert sections_asked == {"training", "held-out"}
    proved = verify(certify(folder).to_file())
    assert proved.guarantee[0].epsilon == pytest.approx(1.0)


def test_a_ledger_holds_out_the_same_records_for_all_plans(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "clinic.ledger", silo="clinic", budget=Budget(9.0, 1e-6)) as ledger:
        gate = Gate(records_of(values_of(40)), ledger)
        gate.approve(plan_of())
        gate.approve(plan_of(held_out=0.0))
        with pytest.raises(ApprovalError, match=r"holds out 50% .* earlier plans held out 20%"):
            gate.approve(plan_of(held_out=0.5))


def test_a_silo_too_small_to_hold_records_out_is_refused_with_a_remedy() -> None:
    with pytest.raises(PlanError, match=r"1 record, too few .* held-out share of 0"):
        plan_of({"clinic": 1})
    assert plan_of({"clinic": 1}, held_out=0.0).held_out is None


def test_rows_that_changed_places_between_two_runs_pay_for_both_sections(tmp_path: Path) -> None:
    """Else a record that trained one model would evaluate the next, and be charged for one of the two."""
    (tmp_path / "schema.toml").write_text(SCHEMA_FILE)
    data = tmp_path / "clinic.csv"
    head, *rows = rows_of(60)
    data.write_text("\n".join([head, *rows]))
    asked = PlanRequest(epsilon=1.0, delta=1e-6, rounds=3, loss="squared")
    trained = train_files(TrainRequest([data], tmp_path / "schema.toml", "y", asked, anyway=True)).result.model
    ask = AskRequest([data], 1.0, 1e-6, anyway=True)

    def spent() -> tuple[int, float]:
        with Ledger.open(tmp_path / "clinic.ledger") as ledger:
            return ledger.account().version, ledger.account().spent()[0].epsilon

    # It composes with the run's own evaluation, and not with its training.
    ask_files(ask, trained.plan.data, evaluation_plan_maker(trained))
    version, twice = spent()
    assert version == 1
    assert 1.3 < twice < 1.5
    data.write_text("\n".join([head, *reversed(rows)]))
    ask_files(ask, trained.plan.data, evaluation_plan_maker(trained))
    version, moved = spent()
    assert version == 2
    assert 1.6 < moved < 1.9  # two evaluations before, or the training, and one after
    data.write_text("\n".join([head, *rows]))
    ask_files(ask, trained.plan.data, evaluation_plan_maker(trained))
    assert spent()[0] == 3  # the former order is not the former version
