"""A shuffler within the process: it is the real one, with keys that no two federations share."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from ringfence.accounting.charges import costs, plan_events
from ringfence.errors import TrainingError
from ringfence.federation.local_shuffler import LocalShuffler, local_shuffler
from ringfence.federation.training import Silo, train
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Answer, Curvature, Full, Plan, RoundRequest, SealedUpdate, Stage, StageTerms, unpack
from ringfence.server import rounds
from ringfence.server.channels import Collect, Totals
from ringfence.server.channels.shuffler import mean_of_totals
from ringfence.server.conduct import conduct, replay
from ringfence.server.rounds import RunResult
from ringfence.shuffler import sealing
from ringfence.shuffler.sealing import verifying_key
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from tests.server.local import Local
from tests.shuffler.shuffled_federation import (
    DELTA,
    NAMES,
    federation,
    make_shuffled_plan,
    records_of,
    schema_of,
    shuffle_of,
)
from tests.support import rebuilt


def test_every_federation_has_keys_of_its_own_and_leaves_nothing_behind() -> None:
    with local_shuffler(NAMES) as one, local_shuffler(NAMES) as other:
        keys = [one.keys.server, one.keys.shuffler, *one.keys.silos.values()]
        keys += [other.keys.server, other.keys.shuffler, *other.keys.silos.values()]
        assert len(set(keys)) == 2 * (2 + len(NAMES))
        assert one.keys.server == sealing.public_key(one.server)
        assert one.keys.silos == {name: verifying_key(key) for name, key in one.silos.items()}
        folder = one.shuffler._store.folder
        assert folder.exists()
    assert not folder.exists()


def test_what_it_collects_is_what_the_silos_sealed_and_the_same_again(tmp_path: Path) -> None:
    with federation(tmp_path) as made:
        collect = made.local.collect(made.plan)
        answers = made.answers(0)
        first = collect(0, answers)
        assert first is not None
        assert (first.silos, int(first.numbers[-1])) == (3, 120)
        again = collect(0, answers)
        assert again is not None
        assert again.packed() == first.packed()


def test_below_the_quorum_nothing_comes_out(tmp_path: Path) -> None:
    with federation(tmp_path) as made:
        collect = made.local.collect(made.plan)
        assert collect(0, made.answers(0, "clinic", "north")) is None
        assert collect(0, made.answers(0, "west")) is not None, "and what was handed in was kept"


def test_a_smaller_quorum_is_enough_and_the_noise_is_that_of_those_who_came(tmp_path: Path) -> None:
    with federation(tmp_path, quorum=2, colluders=0) as made:
        totals = made.local.collect(made.plan)(0, made.answers(0, "clinic", "west"))
        assert totals is not None
        assert (totals.silos, int(totals.numbers[-1])) == (2, 80)
        assert np.all(np.isfinite(mean_of_totals(shuffle_of(made.plan), made.plan, 0, totals)))


def test_a_round_without_a_quorum_leaves_the_weights_where_they_were(tmp_path: Path) -> None:
    asked_at: list[bytes] = []
    with federation(tmp_path) as made:

        def two_then_all(request: RoundRequest, silos: Sequence[str]) -> dict[str, Answer]:
            asked_at.append(unpack(request.argument).tobytes())
            return made.ask(request, silos if request.round else silos[:2])

        trained = rounds.run(made.plan, two_then_all, collect=made.local.collect(made.plan))
    assert [outcome.answered for outcome in trained.history] == [(), NAMES, NAMES]
    assert asked_at[1] == asked_at[0]
    assert asked_at[2] != asked_at[1]


def local_silos(local: LocalShuffler, plan: Plan, folder: Path) -> dict[str, Silo]:
    return {
        terms.name: Silo(
            records_of(plan.data, terms.records, seed), folder / f"{terms.name}.ledger", None, local.silos[terms.name]
        )
        for seed, terms in enumerate(plan.silos)
    }


@pytest.mark.parametrize("sampling", ["full", "one-pass"])
def test_training_through_it_gives_a_model_and_ledgers_of_both_views(tmp_path: Path, sampling: str) -> None:
    schema = schema_of(2)
    with local_shuffler(NAMES) as local:
        plan = make_shuffled_plan(
            schema, local.keys, dict.fromkeys(NAMES, 400), sampling=sampling, epsilon=4.0, rounds=8
        )
        result = train(plan, local_silos(local, plan, tmp_path), collect=local.collect(plan))
    held_out = records_of(schema, 1000, 99)
    assert np.mean(result.model.predict_encoded(held_out.features) == held_out.targets) > 0.85
    for terms in plan.silos:
        stated = result.statement.silos[terms.name]
        server, anyone = stated.this_run
        assert (server.against, anyone.against) == ("server", "anyone")
        assert server.epsilon <= terms.guarantee.epsilon < anyone.epsilon <= terms.against("anyone").epsilon
        assert stated.all_runs == stated.this_run


def test_a_plan_with_a_shuffler_needs_one_and_no_other_plan_does(tmp_path: Path) -> None:
    schema = schema_of(2)
    with local_shuffler(NAMES) as local:
        mixed = make_shuffled_plan(schema, local.keys, dict.fromkeys(NAMES, 40))
        plain = make_plan(schema, [Member(name, 40, 1.0, DELTA) for name in NAMES], PlanRequest(rounds=3, survey=False))
        silos = local_silos(local, mixed, tmp_path)
        for plan, collect, peer_to_peer in (
            (mixed, None, False),
            (plain, local.collect(mixed), False),
            (mixed, local.collect(mixed), True),
        ):
            with pytest.raises(TrainingError, match="needs a shuffler and a server"):
                train(plan, silos, collect=collect, peer_to_peer=peer_to_peer)
    assert not list(tmp_path.glob("*.ledger")), "nothing was even approved"


def surveyed(plan: Plan) -> Plan:
    """Return a shuffled plan that first asks for the curvature, which leaves each silo under its own noise."""
    sigma = 20 * Curvature().sensitivity(plan, plan.silos[0].records)
    first = Stage(query=Curvature(), rounds=1, sampling=Full())

    def with_survey(promised: float) -> Plan:
        silos = []
        for terms in plan.silos:
            stages = (StageTerms(batch=terms.records, sigma=sigma), *terms.stages)
            guarantees = tuple(each.model_copy(update={"epsilon": promised}) for each in terms.guarantees)
            silos.append(terms.model_copy(update={"stages": stages, "guarantees": guarantees}))
        return rebuilt(plan, stages=(first, *plan.stages), silos=tuple(silos))

    asked = with_survey(1.0)
    found = costs(plan_events(asked, asked.silos[0]), asked.observers, DELTA)
    return with_survey(max(cost.epsilon for cost in found) * (1 + 1e-9))


@pytest.mark.parametrize("conducted", [False, True], ids=["in one process", "by a server with a transcript"])
def test_a_plan_may_ask_one_query_under_own_noise_and_another_through_the_shuffler(
    tmp_path: Path, conducted: bool
) -> None:
    with federation(tmp_path) as made, local_shuffler(NAMES) as local:
        plan = surveyed(make_shuffled_plan(schema_of(3), local.keys, dict.fromkeys(NAMES, 40), algorithm="accelerated"))
        ledgers = {name: tmp_path / f"new-{name}.ledger" for name in NAMES}
        silos = {name: Silo(made.records[name], ledgers[name], None, local.silos[name]) for name in NAMES}
        assert plan.observers == ("server", "anyone")
        collected: list[int] = []
        collect = local.collect(plan)

        def counted(round: int, updates: Sequence[SealedUpdate]) -> Totals | None:
            collected.append(round)
            return collect(round, updates)

        if conducted:
            trained = conducted_run(plan, silos, tmp_path / "run", counted)
            assert replay(tmp_path / "run").weights.tobytes() == trained.weights.tobytes()
            findings, history = trained.findings, trained.history
        else:
            result = train(plan, silos, collect=counted)
            findings, history = result.findings, result.history
            for guarantee in result.statement.silos.values():
                server, anyone = guarantee.used
                assert server.epsilon < anyone.epsilon <= plan.silos[0].against("anyone").epsilon
    assert collected == [1, 2, 3], "the survey's answers are the server's at once"
    assert [outcome.answered for outcome in history] == [NAMES] * 4
    assert findings.keys() == {"curvature"}


def conducted_run(plan: Plan, silos: dict[str, Silo], folder: Path, collect: Collect) -> RunResult:
    with ExitStack() as opened:
        gates = {}
        for name, silo in silos.items():
            terms = plan.terms(name)
            assert terms is not None
            ledger = opened.enter_context(Ledger.create(silo.ledger, silo=name, budget=Budget.of(terms.guarantees)))
            gates[name] = Gate(silo.records, ledger, silo.key)
            gates[name].approve(plan)

        def answers(request: RoundRequest) -> dict[str, bytes]:
            return {name: gate.answer(request).to_bytes() for name, gate in gates.items()}

        return conduct(plan, Local(answers), folder, seconds=1.0, collect=collect)
