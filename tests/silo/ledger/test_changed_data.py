"""The data set changes under a silo: another order, other rows, more of them."""

import csv
from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import ApprovalError, CertificateError, RegistryError
from ringfence.planning.request import Member
from ringfence.protocol.messages import Answer, NoisyUpdate, RefusalReason, RoundRequest
from ringfence.protocol.plan import Plan
from ringfence.silo import custody
from ringfence.silo.certificate import certify
from ringfence.silo.decisions import approve_plan, review_plan, update_data
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate import Gate
from ringfence.storage.chain import Draft
from ringfence.verification import verify
from tests.silo.agents import approved, make_silo_folder, serving
from tests.support import MakePlan, refusal


@pytest.fixture
def silo(tmp_path: Path) -> SiloFolder:
    """Forty records, and a budget of 2."""
    return make_silo_folder(tmp_path)


def rows_of(silo: SiloFolder) -> list[list[str]]:
    with Path(silo.settings.data_file).open(newline="") as file:
        return list(csv.reader(file))


def write(silo: SiloFolder, rows: list[list[str]]) -> None:
    with Path(silo.settings.data_file).open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def sort(silo: SiloFolder) -> None:
    head, *rows = rows_of(silo)
    write(silo, [head, *sorted(rows)])


def add(silo: SiloFolder, count: int) -> None:
    write(silo, [*rows_of(silo), *([f"0.{number}", "0.5", "-0.5", "no"] for number in range(10, 10 + count))])


def answer(silo: SiloFolder, plan: Plan, round: int) -> Answer:
    """Start anew, and ask."""
    with silo.ledger() as ledger:
        gate = Gate(silo.current_records(ledger), ledger, silo.key())
        return gate.answer(RoundRequest.at(plan.digest(), round, np.zeros(plan.dimension)))


def sized(plan_of: MakePlan, records: int, **changes: object) -> Plan:
    return plan_of(members=[Member("clinic", records, 0.5, 1e-6)], rounds=4, **changes)


@pytest.mark.parametrize(
    ("sampling", "goes_on"), [("full", True), ("fixed", True), ("poisson", True), ("one-pass", False)]
)
def test_the_same_rows_in_another_order_stop_plans_that_go_by_places_and_no_others(
    silo: SiloFolder, plan_of: MakePlan, sampling: str, goes_on: bool
) -> None:
    plan = approved(silo, sized(plan_of, 40, sampling=sampling))
    assert isinstance(answer(silo, plan, 0), NoisyUpdate)
    sort(silo)
    with serving(silo) as agent:
        found = agent.ask(plan, 1)
    assert isinstance(found, NoisyUpdate) == goes_on
    if not goes_on:
        assert refusal(found) is RefusalReason.NOT_APPROVED
        assert "not in the order" in review_plan(silo, plan).objection
        with pytest.raises(ApprovalError, match="not in the order"):
            approve_plan(silo, plan)


def test_phases_go_by_places_too(silo: SiloFolder, plan_of: MakePlan) -> None:
    plan = approved(silo, plan_of(rounds=6, algorithm="localized"))
    assert isinstance(answer(silo, plan, 0), NoisyUpdate)
    sort(silo)
    assert refusal(answer(silo, plan, 1)) is RefusalReason.NOT_APPROVED


def test_a_plan_that_divided_the_records_is_over_once_they_were_updated(silo: SiloFolder, plan_of: MakePlan) -> None:
    begun = approved(silo, sized(plan_of, 40, sampling="one-pass"))
    waiting = approved(silo, sized(plan_of, 40, sampling="one-pass"))
    assert isinstance(answer(silo, begun, 0), NoisyUpdate)
    sort(silo)
    assert update_data(silo, "the file was sorted").before == 40
    assert refusal(answer(silo, begun, 1)) is RefusalReason.NOT_APPROVED
    with pytest.raises(ApprovalError, match="might take part twice"):
        approve_plan(silo, begun)
    assert refusal(answer(silo, waiting, 0)) is RefusalReason.NOT_APPROVED, "it was approved for the former order"
    approve_plan(silo, waiting)
    assert isinstance(answer(silo, waiting, 0), NoisyUpdate)


def test_with_other_rows_nothing_is_answered_until_the_operator_says_what_happened(
    silo: SiloFolder, plan_of: MakePlan
) -> None:
    plan = approved(silo, sized(plan_of, 40))
    head, *rows = rows_of(silo)
    write(silo, [head, ["0.5", "0.5", "0.5", "no"], *rows[1:]])
    for refused in (answer, lambda *_: review_plan(silo, plan), lambda *_: approve_plan(silo, plan)):
        with pytest.raises(RegistryError, match=r"silo update FOLDER --reason") as told:
            refused(silo, plan, 0)
        assert "0.5" not in str(told.value)
    update_data(silo, "one record was corrected")
    assert isinstance(answer(silo, plan, 0), NoisyUpdate)


def test_growing_data_keeps_its_ledger_and_all_that_was_charged(silo: SiloFolder, plan_of: MakePlan) -> None:
    plan = approved(silo, sized(plan_of, 40))
    for round in range(4):
        answer(silo, plan, round)
    with silo.ledger() as ledger:
        ledger.end(plan.digest())
        before = ledger.account().spent()
    add(silo, 10)
    change = update_data(silo, "ten patients were admitted")
    assert (change.before, change.after) == (40, 50)
    later = approved(silo, sized(plan_of, 50))
    assert isinstance(answer(silo, later, 0), NoisyUpdate)
    with silo.ledger() as ledger:
        assert ledger.account().spent()[0].epsilon > before[0].epsilon
        assert [entry.body for entry in ledger.entries() if entry.kind == "data"] == [change.model_dump()]
    with pytest.raises(ApprovalError, match="names 40 records, but there are 50"):
        approve_plan(silo, sized(plan_of, 40))
    assert "“ten patients were admitted”" in verify(certify(silo).to_file()).text()


def test_an_agent_that_runs_keeps_its_records_until_they_are_updated(silo: SiloFolder, plan_of: MakePlan) -> None:
    plan = approved(silo, sized(plan_of, 40))
    with serving(silo) as agent:
        add(silo, 10)
        assert isinstance(agent.ask(plan, 0), NoisyUpdate), "it read them when it was started"
        update_data(silo, "ten patients were admitted")
        assert refusal(agent.ask(plan, 1)) is RefusalReason.UNAVAILABLE
    with serving(silo) as agent:
        assert refusal(agent.ask(plan, 1)) is RefusalReason.NOT_APPROVED, "it counts another number of records"


def test_nothing_to_update_and_a_reason_of_two_lines_are_refused_and_write_nothing(silo: SiloFolder) -> None:
    with pytest.raises(RegistryError, match="nothing to update"):
        update_data(silo, "no reason")
    add(silo, 1)
    for reason in ("", "two\nlines", "\x1b[2J", "x" * 501):
        with pytest.raises(RegistryError, match="cannot be recorded in a ledger"):
            update_data(silo, reason)
    with silo.ledger() as ledger:
        assert ledger.account().number == 2


def test_an_update_to_records_of_another_ledger_is_refused(silo: SiloFolder, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_silo_folder(tmp_path / "other", seed=8)
    write(silo, rows_of(other))
    with pytest.raises(RegistryError, match=str(other.ledger_path)):
        update_data(silo, "the files were mixed up")
    with silo.ledger() as ledger, pytest.raises(RegistryError, match=str(other.ledger_path)):
        custody.were_moved(ledger, silo.records().marks)


def test_a_certificate_in_which_a_divided_plan_outlives_an_update_is_refused(
    silo: SiloFolder, plan_of: MakePlan
) -> None:
    plan = approved(silo, sized(plan_of, 40, sampling="one-pass"))
    assert isinstance(answer(silo, plan, 0), NoisyUpdate)
    with silo.ledger() as ledger:
        gate = Gate(silo.records(), ledger, silo.key())
        (charge,) = [entry.body for entry in ledger.entries() if entry.kind == "charged"]
        gate.answer(RoundRequest.at(plan.digest(), 1, np.zeros(plan.dimension)))
        (second,) = [entry.body for entry in ledger.entries() if entry.kind == "charged" and entry.body != charge]
        verify(certify(silo).to_file())
        data = {"before": 40, "after": 40, "reason": "sorted", "by": "somebody"}
        forged = {**second, "round": 2, "event": {**second["event"], "part": 2}}
        ledger.update(lambda _: (None, [Draft("data", data), Draft("charged", forged)]))
    with pytest.raises(CertificateError, match="data changed during a plan"):
        verify(certify(silo).to_file())
