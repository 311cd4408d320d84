"""A shuffler within the process: it is the real one, with keys that no two federations share."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import TrainingError
from ringfence.planning.prescribe import Member, make_plan
from ringfence.protocol.messages import Answer, RoundRequest, unpack
from ringfence.server import rounds
from ringfence.server.shuffled import mean_gradient
from ringfence.shuffle import sealing
from ringfence.shuffle.local import local_shuffler
from ringfence.silo.ledger import Budget
from ringfence.silo.sealed import public_key
from ringfence.training import Silo, train
from tests.shuffle.mixed import DELTA, NAMES, federation, make_mixed, records_of, schema_of, shuffle_of


def test_every_federation_has_keys_of_its_own_and_leaves_nothing_behind() -> None:
    with local_shuffler(NAMES) as one, local_shuffler(NAMES) as other:
        keys = [one.keys.server, one.keys.shuffler, *one.keys.silos.values()]
        keys += [other.keys.server, other.keys.shuffler, *other.keys.silos.values()]
        assert len(set(keys)) == 2 * (2 + len(NAMES))
        assert one.keys.server == sealing.public_key(one.server)
        assert one.keys.silos == {name: public_key(key) for name, key in one.silos.items()}
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
    with federation(tmp_path, quorum=2) as made:
        totals = made.local.collect(made.plan)(0, made.answers(0, "clinic", "west"))
        assert totals is not None
        assert (totals.silos, int(totals.numbers[-1])) == (2, 80)
        assert np.all(np.isfinite(mean_gradient(made.plan, shuffle_of(made.plan), totals)))


def test_a_round_without_a_quorum_leaves_the_weights_where_they_were(tmp_path: Path) -> None:
    asked_at: list[bytes] = []
    with federation(tmp_path) as made:

        def two_then_all(request: RoundRequest, silos: Sequence[str]) -> dict[str, Answer]:
            asked_at.append(unpack(request.weights).tobytes())
            return made.ask(request, silos if request.round else silos[:2])

        trained = rounds.run(made.plan, two_then_all, collect=made.local.collect(made.plan))
    assert [outcome.answered for outcome in trained.history] == [(), NAMES, NAMES]
    assert asked_at[1] == asked_at[0]
    assert asked_at[2] != asked_at[1]


@pytest.mark.parametrize("sampling", ["full", "one-pass"])
def test_training_through_it_gives_a_model_and_ledgers_of_both_views(tmp_path: Path, sampling: str) -> None:
    schema = schema_of(2)
    with local_shuffler(NAMES) as local:
        plan = make_mixed(schema, local.keys, dict.fromkeys(NAMES, 400), sampling=sampling, epsilon=4.0, rounds=8)
        silos = {
            name: Silo(records_of(schema, 400, seed), tmp_path / f"{name}.ledger", None, local.silos[name])
            for seed, name in enumerate(NAMES)
        }
        result = train(plan, silos, collect=local.collect(plan))
    held_out = records_of(schema, 1000, 99)
    assert np.mean(result.model.predict_encoded(held_out.features) == held_out.targets) > 0.85
    for terms in plan.silos:
        stated = result.statement.silos[terms.name]
        assert stated.epsilon <= terms.epsilon < stated.alone_epsilon
        assert terms.alone_epsilon is not None
        assert stated.alone_epsilon <= terms.alone_epsilon
        assert (stated.epsilon, stated.alone_epsilon) == (stated.total_epsilon, stated.total_alone_epsilon)


def test_a_plan_with_a_shuffler_needs_one_and_no_other_plan_does(tmp_path: Path) -> None:
    schema = schema_of(2)
    with local_shuffler(NAMES) as local:
        mixed = make_mixed(schema, local.keys, dict.fromkeys(NAMES, 40))
        plain = make_plan(schema, [Member(name, 40, 1.0, DELTA) for name in NAMES], rounds=3, survey=False)
        silos = {
            name: Silo(records_of(schema, 40, 1), tmp_path / f"{name}.ledger", Budget(9.0, DELTA), local.silos[name])
            for name in NAMES
        }
        for plan, collect, peer_to_peer in (
            (mixed, None, False),
            (plain, local.collect(mixed), False),
            (mixed, local.collect(mixed), True),
        ):
            with pytest.raises(TrainingError, match="trusts a shuffler needs one"):
                train(plan, silos, collect=collect, peer_to_peer=peer_to_peer)
    assert not list(tmp_path.glob("*.ledger")), "nothing was even approved"
