"""Training in one process: through real gates, within real budgets, and honest about both."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import ApprovalError, LedgerError
from ringfence.federation.training import Silo, train
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Participation, Plan, Schema
from ringfence.server.rounds import RoundOutcome
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.ledger.summary import summarise
from ringfence.silo.records.records import Records


def federation(schema: Schema, folder: Path, sizes: dict[str, int], cap: Budget | None = None) -> dict[str, Silo]:
    random = np.random.default_rng(1)
    silos = {}
    for name, size in sizes.items():
        features = np.concatenate([random.uniform(-1, 1, (size, 3)), np.ones((size, 1))], axis=1)
        targets = np.where(features @ [1.0, 1.0, 0.0, 0.2] > 0, 1.0, -1.0)
        silos[name] = Silo(Records(schema, features, targets), folder / f"{name}.ledger", cap)
    return silos


def plan_for(schema: Schema, silos: dict[str, Silo], epsilon: float = 2.0, rounds: int = 20, **changes: Any) -> Plan:
    members = [Member(name, len(silo.records), epsilon, 1e-6) for name, silo in silos.items()]
    return make_plan(schema, members, PlanRequest(rounds=rounds, curves=0, **changes))


def test_a_model_is_learned_and_every_silo_s_ledger_shows_what_it_cost(schema: Schema, tmp_path: Path) -> None:
    silos = federation(schema, tmp_path, {"north": 400, "south": 800})
    seen: list[RoundOutcome] = []
    plan = plan_for(schema, silos)
    result = train(plan, silos, watch=seen.append)
    assert [outcome.round for outcome in seen] == list(range(plan.rounds))
    for name, silo in silos.items():
        assert result.model.evaluate(silo.records.features, silo.records.targets)["accuracy"] > 0.9
        assert result.statement.silos[name].run.epsilon == pytest.approx(2.0, rel=1e-4)
        with Ledger.open(silo.ledger) as ledger:
            (approved,) = ledger.account().plans.values()
            assert approved.ended == "finished"
            assert len(approved.rounds) == plan.rounds
            assert plan.rounds == 20 + sum(stage.rounds for stage in plan.stages if not stage.query.trains)


def test_with_little_privacy_budget_the_noise_shows(schema: Schema, tmp_path: Path) -> None:
    silos = federation(schema, tmp_path, {"north": 60})
    weights = [train(plan_for(schema, silos, epsilon=0.01), silos).model.coefficients for _ in range(2)]
    assert np.linalg.norm(weights[0] - weights[1]) > 0.1


def test_a_cap_that_does_not_cover_the_plan_stops_it_before_any_silo_releases(schema: Schema, tmp_path: Path) -> None:
    silos = federation(schema, tmp_path, {"north": 100, "south": 100})
    silos["south"] = Silo(silos["south"].records, silos["south"].ledger, Budget(0.5, 1e-6))
    with pytest.raises(ApprovalError, match="silo 'south'"):
        train(plan_for(schema, silos), silos)
    for silo in silos.values():
        with Ledger.open(silo.ledger) as ledger:
            assert ledger.account().charged() == []
            assert [spent.epsilon for spent in ledger.account().spent()] == [0.0]


def test_an_interrupted_run_keeps_only_what_it_released_on_its_account(schema: Schema, tmp_path: Path) -> None:
    silos = federation(schema, tmp_path, {"north": 100})

    def interrupt(outcome: RoundOutcome) -> None:
        if outcome.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(plan_for(schema, silos, survey=False), silos, watch=interrupt)
    with Ledger.open(silos["north"].ledger) as ledger:
        account = ledger.account()
        (approved,) = account.plans.values()
        assert approved.ended == "finished"
        assert sum(count for _, count in approved.reserved()) == len(approved.rounds) == 5
        assert account.reserved() == account.charged()
        assert 0 < account.spent()[0].epsilon < 2.0


def test_a_silo_asked_in_half_of_the_rounds_uses_less_than_it_was_guaranteed(schema: Schema, tmp_path: Path) -> None:
    silos = federation(schema, tmp_path, dict.fromkeys("abcd", 100))
    plan = plan_for(schema, silos, participation=Participation(silos=2), survey=False)
    guarantees = train(plan, silos).statement.silos
    assert sum(guarantee.rounds for guarantee in guarantees.values()) == 2 * 20
    assert {guarantee.run.epsilon for guarantee in guarantees.values()} == {2.0}
    for name, guarantee in guarantees.items():
        (text,) = summarise(silos[name].ledger)["costs"]
        assert text["guarantee"]["epsilon"] == 2.0
        assert text["used"] < 2.0 or guarantee.rounds == 20


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_without_a_cap_a_second_run_states_a_guarantee_that_holds_whenever_one_stops(
    schema: Schema, tmp_path: Path, sampling: str
) -> None:
    silos = federation(schema, tmp_path, {"north": 100})
    first, second = (
        train(plan_for(schema, silos, rounds=3, sampling=sampling), silos).statement.silos["north"] for _ in range(2)
    )
    assert first.all_runs == first.this_run == second.this_run
    (text,) = summarise(silos["north"].ledger)["costs"]
    assert 2.0 < text["used"] <= text["budget"] < second.total.epsilon
    assert second.total.delta == 2e-6


def test_a_cap_from_the_first_run_on_is_what_all_runs_are_guaranteed(schema: Schema, tmp_path: Path) -> None:
    cap = Budget(4.0, 1e-6)
    silos = federation(schema, tmp_path, {"north": 100}, cap)
    for _ in range(2):
        stated = train(plan_for(schema, silos, rounds=3), silos).statement.silos["north"]
        assert stated.all_runs == cap.limits


def test_another_silo_s_ledger_is_not_used(schema: Schema, tmp_path: Path) -> None:
    silos = federation(schema, tmp_path, {"north": 100})
    train(plan_for(schema, silos), silos)
    borrowed = {"south": Silo(silos["north"].records, silos["north"].ledger)}
    with pytest.raises(LedgerError, match="belongs to silo 'north'"):
        train(plan_for(schema, borrowed), borrowed)
