"""A ledger outlives the version that began it: older entries count on, and newer ones are never guessed at."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import ApprovalError, LedgerDamagedError, LedgerError
from ringfence.protocol.messages import NoisyUpdate, RefusalReason
from ringfence.silo import ledger as ledger_module
from ringfence.silo.account import FORMATS
from ringfence.silo.budget import Budget
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.silo.records import Records
from ringfence.silo.summary import describe_entry
from ringfence.storage.chain import Chain, Draft
from tests.golden import reading
from tests.support import MakePlan, ask, refusal, spent, watch_draws

GOLDEN = Path(__file__).parents[1] / "golden" / "v0_1_0"


def begin(path: Path, budget: dict[str, Any]) -> Ledger:
    """Begin a ledger as version 0.1.0 did, whose entries of a budget stated no format."""
    ledger = Ledger(Chain(path, ledger_module._KIND, create=True))
    opened = Draft("opened", {"format": 1, "silo": "clinic", "adjacency": "replace-one"})
    ledger.update(lambda _: (None, [opened, Draft("budget", budget)]))
    return ledger


def add(ledger: Ledger, draft: Draft) -> None:
    """Write an entry, with a right hash, as another version might that knows what it means."""
    last = ledger.entries()[-1]
    with ledger._chain.writing():
        ledger._chain.append(draft, last.number, last.hash)


@pytest.fixture
def former(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger that began in format 1."""
    with begin(tmp_path / "former.ledger", {"epsilon": 2.0, "delta": 1e-6}) as ledger:
        yield ledger


def budgets(ledger: Ledger) -> list[dict[str, Any]]:
    bodies = [dict(entry.body) for entry in ledger.entries() if entry.kind == "budget"]
    return [{name: body[name] for name in body if name != "by"} for body in bodies]


def test_a_ledger_of_format_1_goes_on_with_budgets_of_format_2(
    former: Ledger, records: Records, plan_of: MakePlan
) -> None:
    gate, plan = Gate(records, former), plan_of(epsilon=1.0)
    assert former.account().budget == Budget(2.0, 1e-6)
    gate.approve(plan)
    first = ask(gate, plan, 0)
    before = spent(former)
    former.grant(Budget(3.0, 1e-6, anyone=4.0))
    assert budgets(former) == [
        {"epsilon": 2.0, "delta": 1e-6},
        {
            "format": 2,
            "limits": [
                {"epsilon": 3.0, "delta": 1e-6, "against": "server"},
                {"epsilon": 4.0, "delta": 1e-6, "against": "anyone"},
            ],
        },
    ]
    with Ledger.open(former.path) as reopened:
        assert reopened.account().budget == Budget(3.0, 1e-6, anyone=4.0)
        assert spent(reopened) == spent(reopened, "server") == before
        restarted = Gate(records, reopened)
        assert ask(restarted, plan, 0).to_bytes() == first.to_bytes()
        assert isinstance(ask(restarted, plan, 1), NoisyUpdate), "a larger budget still covers the plan"
        assert spent(reopened) > before


def test_a_budget_of_format_2_that_is_lower_than_one_of_format_1_stops_its_plans(
    former: Ledger, records: Records, plan_of: MakePlan
) -> None:
    gate, plan = Gate(records, former), plan_of(epsilon=1.0)
    gate.approve(plan)
    former.grant(Budget(0.5, 1e-6))
    assert refusal(ask(gate, plan, 0)) is RefusalReason.BUDGET
    with pytest.raises(ApprovalError, match="more than its budget"):
        gate.approve(plan)


@pytest.mark.parametrize(
    ("stated", "meant"),
    [
        ({"epsilon": 1.0, "delta": 1e-5}, Budget(1.0, 1e-5)),
        ({"epsilon": 1.0, "delta": 1e-5, "alone": 3.0}, Budget(1.0, 1e-5, anyone=3.0)),
    ],
)
def test_the_same_budget_in_either_format_allows_the_same(
    tmp_path: Path, records: Records, plan_of: MakePlan, stated: dict[str, Any], meant: Budget
) -> None:
    with begin(tmp_path / "former.ledger", stated) as ledger:
        gate, plan = Gate(records, ledger), plan_of(epsilon=0.9, delta=1e-5)
        gate.approve(plan)
        assert ledger.account().budget == meant
        ledger.grant(meant)
        assert ledger.account().budget == meant
        assert isinstance(ask(gate, plan, 0), NoisyUpdate), "nothing was lowered"
        told = [describe_entry({"kind": "budget", **body}) for body in budgets(ledger)]
        assert told == [str(meant)] * 2


def test_a_ledger_that_0_1_0_left_half_way_goes_on_under_a_new_budget(tmp_path: Path, plan_of: MakePlan) -> None:
    silo_folder = SiloFolder.open(reading.copy(GOLDEN, tmp_path) / "silos" / "half-finished")
    with silo_folder.ledger() as ledger:
        gate, (approved,) = Gate(silo_folder.records(), ledger), ledger.account().plans.values()
        before = spent(ledger)
        stored = {number: round.answer for number, round in approved.rounds.items()}
        ledger.grant(Budget(2.5, 1e-6))
        assert isinstance(ask(gate, approved.plan, max(stored) + 1), NoisyUpdate)
        assert spent(ledger) > before
        again = ledger.account().plans[approved.plan.digest()].rounds
        assert {number: again[number].answer for number in stored} == stored
        assert ["format" in body for body in budgets(ledger)] == [False, True]


# -- entries of a later version --


def later(kind: str, plan: str) -> Draft:
    """An entry as a later version might write it: today's fields, and a format that we do not know."""
    bodies: dict[str, dict[str, Any]] = {
        "opened": {"silo": "clinic", "adjacency": "replace-one"},
        "budget": {"limits": [{"epsilon": 9.0, "delta": 1e-6, "against": "anyone"}]},
        "approved": {"events": []},
        "charged": {"plan": plan, "round": 1, "weights": "0" * 64, "event": {"kind": "gaussian", "shift": 0.001}},
        "released": {"plan": plan, "round": 0},
        "refused": {"plan": plan, "round": 0, "reason": "budget"},
        "ended": {"plan": plan, "why": "finished"},
        "courier": {"same_user": True},
        "registered": {"by": "somebody"},
        "used": {"use": "compared", "model": "0" * 64, "plan": plan, "by": "somebody"},
        "data": {"before": 40, "after": 41, "reason": "one more", "by": "somebody"},
    }
    return Draft(kind, {**bodies[kind], "format": FORMATS[kind] + 1})


def assert_nothing_is_released(ledger: Ledger, gate: Gate, plan: Any, drawn: list[Any], says: str) -> None:
    """Neither by the gate that was running, nor after a restart, nor by a decision of the operator."""
    before = ledger.entries()
    assert refusal(ask(gate, plan, 0)) is RefusalReason.UNAVAILABLE
    assert refusal(ask(gate, plan, 1)) is RefusalReason.UNAVAILABLE
    with pytest.raises(LedgerError, match=says):
        gate.approve(plan)
    with pytest.raises(LedgerError, match=says):
        ledger.grant(Budget(9.0, 1e-6))
    with pytest.raises(LedgerError, match=says):
        Ledger.open(ledger.path)
    assert drawn == []
    assert ledger.entries() == before


@pytest.mark.parametrize("kind", FORMATS)
def test_an_entry_of_a_newer_format_says_what_to_install_and_nothing_is_released(
    kind: str, gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of()
    gate.approve(plan)
    assert isinstance(ask(gate, plan, 0), NoisyUpdate)
    drawn = watch_draws(monkeypatch)
    add(ledger, later(kind, plan.digest()))
    newest = FORMATS[kind]
    says = (
        rf"ledger's entry 6 has format {newest + 1}, .* reads formats up to {newest}: install a newer version of "
        "Ringfence"
    )
    assert_nothing_is_released(ledger, gate, plan, drawn, says)
    with pytest.raises(LedgerError) as refused:
        Ledger.open(ledger.path)
    assert not isinstance(refused.value, LedgerDamagedError), "it is not damaged: nobody should restore an older one"


def test_an_approved_plan_of_a_newer_format_says_what_to_install_and_nothing_is_released(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of()
    gate.approve(plan)
    drawn = watch_draws(monkeypatch)
    add(ledger, Draft("approved", {"events": []}, plan.content.replace(b'"format":2', b'"format":3')))
    assert_nothing_is_released(ledger, gate, plan, drawn, r"plan .* has format 3, .* up to 2: install a newer version")


@pytest.mark.parametrize(
    "draft",
    [
        Draft("lent", {"format": 1, "plan": "0" * 64}),
        Draft("budget", {"format": 2, "epsilon": 9.0, "delta": 1e-6}),
        Draft("budget", {"format": "2", "limits": []}),
        Draft("budget", {"format": 2, "limits": [{"epsilon": 9.0, "delta": 1e-6, "against": "nobody"}]}),
        Draft("budget", {"format": 2, "limits": [{"epsilon": 9.0, "delta": 1e-6, "against": "server"}]}),
    ],
    ids=["kind", "fields", "number", "observer", "not against anyone"],
)
def test_an_entry_that_cannot_be_understood_releases_nothing(
    draft: Draft, gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of()
    gate.approve(plan)
    drawn = watch_draws(monkeypatch)
    add(ledger, draft)
    assert_nothing_is_released(ledger, gate, plan, drawn, "an entry that this version cannot read")
