"""The data set changes under a silo: another order, other rows, more of them."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import ApprovalError, CertificateError, RegistryError
from ringfence.evidence.verification import verify
from ringfence.planning.request import Member
from ringfence.protocol import Answer, NoisyUpdate, Plan, RefusalReason, RoundRequest
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger import custody
from ringfence.silo.ledger.certificate import certify
from ringfence.silo.operator.decisions import approve_plan, review_plan, update_data
from ringfence.storage.chain import Draft
from tests.silo.agents import approved, make_silo_folder, serving
from tests.support import MakePlan, refusal


def rows_of(silo_folder: SiloFolder) -> list[list[str]]:
    with Path(silo_folder.settings.data_file).open(newline="") as file:
        return list(csv.reader(file))


def write(silo_folder: SiloFolder, rows: list[list[str]]) -> None:
    with Path(silo_folder.settings.data_file).open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def sort(silo_folder: SiloFolder) -> None:
    head, *rows = rows_of(silo_folder)
    write(silo_folder, [head, *sorted(rows)])


def add(silo_folder: SiloFolder, count: int) -> None:
    write(
        silo_folder,
        [*rows_of(silo_folder), *([f"0.{number}", "0.5", "-0.5", "no"] for number in range(10, 10 + count))],
    )


def answer(silo_folder: SiloFolder, plan: Plan, round: int) -> Answer:
    """Start anew, and ask."""
    with silo_folder.ledger() as ledger:
        gate = Gate(silo_folder.current_records(ledger), ledger, silo_folder.key())
        return gate.answer(RoundRequest.at(plan.digest(), round, np.zeros(plan.dimension)))


def sized(plan_of: MakePlan, records: int, **changes: object) -> Plan:
    return plan_of(members=[Member("clinic", records, 0.5, 1e-6)], **{"rounds": 4, **changes})


@pytest.mark.parametrize(
    ("changes", "goes_on"),
    [
        ({"sampling": "full"}, True),
        ({"sampling": "fixed"}, True),
        ({"sampling": "poisson"}, True),
        ({"sampling": "one-pass"}, False),
        ({"algorithm": "localized", "rounds": 6}, False),
    ],
)
def test_the_same_rows_in_another_order_stop_plans_that_go_by_places_and_no_others(
    silo_folder: SiloFolder, plan_of: MakePlan, changes: dict[str, Any], goes_on: bool
) -> None:
    plan = approved(silo_folder, sized(plan_of, 40, **changes))
    assert isinstance(answer(silo_folder, plan, 0), NoisyUpdate)
    sort(silo_folder)
    with serving(silo_folder) as agent:
        found = agent.ask(plan, 1)
    assert isinstance(found, NoisyUpdate) == goes_on
    if not goes_on:
        assert refusal(found) is RefusalReason.NOT_APPROVED
        assert "not in the order" in review_plan(silo_folder, plan).objection
        with pytest.raises(ApprovalError, match="not in the order"):
            approve_plan(silo_folder, plan)


def test_a_plan_that_divided_the_records_is_over_once_they_were_updated(
    silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    begun = approved(silo_folder, sized(plan_of, 40, sampling="one-pass"))
    waiting = approved(silo_folder, sized(plan_of, 40, sampling="one-pass"))
    assert isinstance(answer(silo_folder, begun, 0), NoisyUpdate)
    sort(silo_folder)
    assert update_data(silo_folder, "the file was sorted").before == 40
    assert refusal(answer(silo_folder, begun, 1)) is RefusalReason.NOT_APPROVED
    with pytest.raises(ApprovalError, match="might take part twice"):
        approve_plan(silo_folder, begun)
    assert refusal(answer(silo_folder, waiting, 0)) is RefusalReason.NOT_APPROVED, (
        "it was approved for the former order"
    )
    approve_plan(silo_folder, waiting)
    assert isinstance(answer(silo_folder, waiting, 0), NoisyUpdate)


def test_with_other_rows_nothing_is_answered_until_the_operator_says_what_happened(
    silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan = approved(silo_folder, sized(plan_of, 40))
    head, *rows = rows_of(silo_folder)
    write(silo_folder, [head, ["0.5", "0.5", "0.5", "no"], *rows[1:]])
    for refused in (answer, lambda *_: review_plan(silo_folder, plan), lambda *_: approve_plan(silo_folder, plan)):
        with pytest.raises(RegistryError, match=r"silo update FOLDER --reason") as text:
            refused(silo_folder, plan, 0)
        assert "0.5" not in str(text.value)
    update_data(silo_folder, "one record was corrected")
    assert isinstance(answer(silo_folder, plan, 0), NoisyUpdate)


def test_growing_data_keeps_its_ledger_and_all_that_was_charged(silo_folder: SiloFolder, plan_of: MakePlan) -> None:
    plan = approved(silo_folder, sized(plan_of, 40))
    for round in range(4):
        answer(silo_folder, plan, round)
    with silo_folder.ledger() as ledger:
        ledger.end(plan.digest())
        before = ledger.account().spent()
    add(silo_folder, 10)
    change = update_data(silo_folder, "ten patients were admitted")
    assert (change.before, change.after) == (40, 50)
    later = approved(silo_folder, sized(plan_of, 50))
    assert isinstance(answer(silo_folder, later, 0), NoisyUpdate)
    with silo_folder.ledger() as ledger:
        assert ledger.account().spent()[0].epsilon > before[0].epsilon
        assert [entry.body for entry in ledger.entries() if entry.kind == "data"] == [change.model_dump()]
    with pytest.raises(ApprovalError, match="names 40 records, but there are 50"):
        approve_plan(silo_folder, sized(plan_of, 40))
    assert "“ten patients were admitted”" in verify(certify(silo_folder).to_file()).text()


def test_an_agent_that_runs_keeps_its_records_until_they_are_updated(
    silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan = approved(silo_folder, sized(plan_of, 40))
    with serving(silo_folder) as agent:
        add(silo_folder, 10)
        assert isinstance(agent.ask(plan, 0), NoisyUpdate), "it read them when it was started"
        update_data(silo_folder, "ten patients were admitted")
        assert refusal(agent.ask(plan, 1)) is RefusalReason.UNAVAILABLE
    with serving(silo_folder) as agent:
        assert refusal(agent.ask(plan, 1)) is RefusalReason.NOT_APPROVED, "it counts another number of records"


def test_nothing_to_update_and_a_reason_of_two_lines_are_refused_and_write_nothing(silo_folder: SiloFolder) -> None:
    with pytest.raises(RegistryError, match="nothing to update"):
        update_data(silo_folder, "no reason")
    add(silo_folder, 1)
    for reason in ("", "two\nlines", "\x1b[2J", "x" * 501):
        with pytest.raises(RegistryError, match="cannot be recorded in a ledger"):
            update_data(silo_folder, reason)
    with silo_folder.ledger() as ledger:
        assert ledger.account().number == 2


def test_an_update_to_records_of_another_ledger_is_refused(silo_folder: SiloFolder, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_silo_folder(tmp_path / "other", seed=8)
    write(silo_folder, rows_of(other))
    with pytest.raises(RegistryError, match=str(other.ledger_path)):
        update_data(silo_folder, "the files were mixed up")
    with silo_folder.ledger() as ledger, pytest.raises(RegistryError, match=str(other.ledger_path)):
        custody.were_moved(ledger, silo_folder.records().marks)


def test_a_certificate_in_which_a_divided_plan_outlives_an_update_is_refused(
    silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan = approved(silo_folder, sized(plan_of, 40, sampling="one-pass"))
    assert isinstance(answer(silo_folder, plan, 0), NoisyUpdate)
    with silo_folder.ledger() as ledger:
        gate = Gate(silo_folder.records(), ledger, silo_folder.key())
        (charge,) = [entry.body for entry in ledger.entries() if entry.kind == "charged"]
        gate.answer(RoundRequest.at(plan.digest(), 1, np.zeros(plan.dimension)))
        (second,) = [entry.body for entry in ledger.entries() if entry.kind == "charged" and entry.body != charge]
        verify(certify(silo_folder).to_file())
        data = {"before": 40, "after": 40, "reason": "sorted", "by": "somebody"}
        forged = {**second, "round": 2, "event": {**second["event"], "part": 2}}
        ledger.update(lambda _: (None, [Draft("data", data), Draft("charged", forged)]))
    with pytest.raises(CertificateError, match="data changed during a plan"):
        verify(certify(silo_folder).to_file())
