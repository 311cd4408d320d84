"""The statement says who is protected from whom, by how much, and what that relies on."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from scipy.special import ndtr

from ringfence.accounting.profiles import gaussian_epsilon
from ringfence.federation.local_shuffler import local_shuffler
from ringfence.federation.training import Silo, train
from ringfence.model.statement import SiloGuarantee, Statement
from ringfence.protocol import Guarantee, Observer, Plan, ShufflerChannel, against_words
from tests.server.quadratics import make_plan
from tests.shuffler.shuffled_federation import NAMES, make_shuffled_plan, records_of, schema_of
from tests.support import restaged


def at(epsilon: float, against: Observer = "anyone") -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=1e-6, against=against)


def costing(*this_run: Guarantee, all_runs: tuple[Guarantee, ...] = (), rounds: int = 5) -> SiloGuarantee:
    return SiloGuarantee(records=10, rounds=rounds, this_run=this_run, all_runs=all_runs or this_run, used=this_run)


SHIFT = 2 / 10 * math.sqrt(5)
"""Of the plans of own noise below: five rounds over ten records, at a clip and noise of 1."""


@pytest.fixture
def mixed() -> Plan:
    """A plan for three silos through a shuffler."""
    with local_shuffler(NAMES) as local:
        return make_shuffled_plan(schema_of(3), local.keys, dict.fromkeys(NAMES, 40))


def guess(epsilon: float, delta: float = 1e-6) -> float:
    """How often telling two equally likely worlds apart can be right under (ε, δ)-differential privacy."""
    return (math.exp(epsilon) + delta) / (1 + math.exp(epsilon))


def words(statement: Statement) -> str:
    """Return the statement without its line breaks."""
    return " ".join(str(statement).split())


# A silo's own noise


def test_with_own_noise_the_statement_holds_against_everybody_and_relies_on_nobody() -> None:
    statement = Statement(make_plan(), {"s0": costing(at(1.0)), "s1": costing(at(0.5), rounds=1)})
    assert words(statement) == (
        "What is protected "
        "s0: each of 10 records, over 5 rounds, by epsilon = 1, delta = 1e-06 "
        "s1: each of 10 records, over 1 round, by epsilon = 0.5, delta = 1e-06 "
        "In words: anyone who sees everything that a silo sends (the server, all other silos together, an "
        "eavesdropper) and tries to tell whether one of a silo's records or another in its place was used, is right "
        "with probability at most 73.1%; a coin toss is right with 50%. Epsilon and delta guarantee this over all "
        "runs in the ledger, however they were chosen and whenever you stop. Computed exactly from the noise of "
        f"this run alone, the probability is at most {ndtr(SHIFT / 2):.1%}. "
        "This holds whatever they know and do: each silo adds its own noise before anything leaves it. "
        "What is not protected "
        "- How many records a silo has, and the schema: both are public. "
        "- Facts about the population that hold with or without any one record: learning them is the purpose. "
        "- A person with several records, in one silo or in many: the unit is one record of one silo. "
        "In this run, at delta = 1e-06 and with the silos that protect least, a person with a record in each of two "
        f"silos pays epsilon = {gaussian_epsilon(math.sqrt(2) * SHIFT, 1e-6):.4g}. "
        "- Anything done with the data outside this ledger: numbers measured without noise, for example."
    )


def test_the_words_are_about_all_runs_of_the_silo_that_is_protected_least() -> None:
    silos = {"s0": costing(at(1.0), all_runs=(at(1.5),)), "s1": costing(at(1.2))}
    text = Statement(make_plan(), silos).text()
    assert "s0: each of 10 records, over 5 rounds, by epsilon = 1, delta = 1e-06 (all runs on this data, " in text
    assert "epsilon = 1.5, delta = 1e-06)" in text
    assert f"at most {guess(1.5):.1%}" in text


def test_earlier_runs_through_a_shuffler_count_in_a_run_of_own_noise_by_what_anyone_may_learn() -> None:
    """The silo's own noise is what protected them too, from whoever the words of this run speak of."""
    silos = {"s0": costing(at(1.0), all_runs=(at(1.4, "server"), at(6.0)))}
    text = Statement(make_plan((1.0,)), silos).text()
    assert "(all runs on this data, whenever you stop: epsilon = 6, delta = 1e-06)" in text
    assert f"at most {guess(6.0):.1%}" in text


@pytest.mark.parametrize(("epsilon", "says"), [(0.0, "50.0%"), (710.0, "100.0%"), (math.inf, "100.0%")])
def test_no_cost_and_no_bound_have_their_words_too(epsilon: float, says: str) -> None:
    assert f"at most {says}; a coin" in words(Statement(make_plan(), {"s0": costing(at(epsilon))}))


def test_without_a_ledger_the_best_guess_is_about_this_run_alone() -> None:
    claimed = costing(at(1.0)).model_copy(update={"used": ()})
    assert "Epsilon and delta guarantee this for this run alone." in words(Statement(make_plan(), {"s0": claimed}))


def test_a_person_in_three_silos_is_told_by_the_three_that_protect_least() -> None:
    document = make_plan((0.25,) * 4, survey=None).model_dump(mode="json")
    for terms, sigma in zip(document["silos"], (1.0, 4.0, 2.0, 3.0), strict=True):
        terms["stages"][0]["sigma"] = sigma
    plan = Plan.model_validate_json(json.dumps(document))
    text = words(Statement(plan, {terms.name: costing(at(1.0)) for terms in plan.silos}))
    for silos, sigmas in (("two", (1, 2)), ("three", (1, 2, 3))):
        shift = SHIFT * math.hypot(*(1 / sigma for sigma in sigmas))
        assert f"{silos} silos pays epsilon = {gaussian_epsilon(shift, 1e-6):.4g}" in text


def test_a_person_s_records_in_the_same_part_of_two_silos_are_two() -> None:
    plan = make_plan(rounds=2)
    document = plan.model_dump(mode="json")
    document["stages"][0]["sampling"] = {"name": "one-pass"}
    for terms in document["silos"]:
        terms["stages"][0]["batch"] = 5
    one_pass = Plan.model_validate_json(json.dumps(document))
    text = words(Statement(one_pass, {terms.name: costing(at(1.0)) for terms in plan.silos}))
    assert f"two silos pays epsilon = {gaussian_epsilon(math.sqrt(2) * 2 / 5, 1e-6):.4g}" in text


# Through a shuffler


def test_through_a_shuffler_the_statement_names_what_it_relies_on_and_what_is_left_without(mixed: Plan) -> None:
    silos = dict.fromkeys(NAMES, costing(at(1.0, "server"), at(4.0), rounds=3))
    text = words(Statement(mixed, silos))
    assert text.startswith(
        "What is protected "
        "clinic: each of 10 records, over 3 rounds, by epsilon = 1, delta = 1e-06 against the server and up to 1 other "
        "silo together, as long as the shuffler does not collude with them; against the server, the shuffler and all "
        "other silos together epsilon = 4 north: "
    )
    assert (
        "In words: a server that sees everything that the shuffler releases, has 1 other silo on its side and tries to "
        "tell whether one of a silo's records or another in its place was used, is right with probability at most "
        "73.1%; a coin toss is right with 50%. "
        "Epsilon and delta guarantee this over all runs in the ledger, however they were chosen and whenever you "
        "stop. Computed exactly from the noise of this run alone, the probability is at most 54.7%. "
        "Apart from the silo itself, this relies on two things: "
        "- The shuffler does not collude with the server. It cannot read a message, but it knows who sent it. "
        "- At least 2 silos of every round, this one included, add the noise they promised, and reveal it to "
        "nobody. "
        "If the server colludes with the shuffler, or with more silos, only the silo's own noise protects it. "
        "Against the server, the shuffler and all other silos together, only the silo's own noise protects its "
        "records: epsilon = 4, delta = 1e-06. Their guess is then right with probability at most 98.2%, "
        "which is weak protection. "
        "What is not protected "
    ) in text
    assert max(map(len, Statement(mixed, {"clinic": costing(at(1.0))}).text().splitlines())) < 120


def test_a_plan_that_counts_on_no_colluders_promises_nothing_against_other_silos_and_says_so(mixed: Plan) -> None:
    """As plans of earlier versions, which name no number, and whose channels have the default."""
    (stage,) = mixed.stages
    channel = ShufflerChannel.model_validate(
        {name: value for name, value in stage.channel.model_dump().items() if name != "colluders"}
    )
    text = words(Statement(restaged(mixed, channel=channel), {"clinic": costing(at(1.0, "server"), at(4.0))}))
    assert f"epsilon = 1, delta = 1e-06 {against_words('server', 0)}; against" in text
    assert "has no other silo on its side" in text
    assert "At least 3 silos" in text
    assert "It does not hold against another silo, which knows its own noise." in text


def test_own_noise_that_is_strong_by_itself_is_not_called_weak(mixed: Plan) -> None:
    text = Statement(mixed, dict.fromkeys(NAMES, costing(at(0.5, "server"), at(2.0)))).text()
    assert f"{guess(2.0):.1%}." in text
    assert "weak" not in text


def test_each_view_is_told_by_the_silo_that_it_protects_least(mixed: Plan) -> None:
    silos = {
        "clinic": costing(at(1.0, "server"), at(3.0)),
        "north": costing(at(0.5, "server"), at(2.0), all_runs=(at(0.9, "server"), at(5.0))),
    }
    text = words(Statement(mixed, silos))
    assert f"at most {guess(1.0):.1%}; a coin" in text
    assert f"epsilon = 5, delta = 1e-06. Their guess is then right with probability at most {guess(5.0):.1%}" in text
    assert "collude with them (all runs on this data, whenever you stop: epsilon = 0.9, delta = 1e-06); against" in text
    assert "Earlier runs on the same data count as their plans state" in text


def test_a_run_through_a_shuffler_states_what_its_ledgers_show(tmp_path: Path) -> None:
    schema = schema_of(3)
    with local_shuffler(NAMES) as local:
        plan = make_shuffled_plan(schema, local.keys, dict.fromkeys(NAMES, 40))
        silos = {
            name: Silo(records_of(schema, 40, seed), tmp_path / f"{name}.ledger", None, local.silos[name])
            for seed, name in enumerate(NAMES)
        }
        statement = train(plan, silos, collect=local.collect(plan)).statement
    for name, silo in statement.silos.items():
        server, anyone = silo.this_run
        line = f"{name}: each of 40 records, over 3 rounds, by epsilon = {server.epsilon:.4g}, delta = 1e-06 against "
        assert line + against_words("server", 1).removeprefix("against ") in str(statement)
        assert f"{against_words('anyone')} epsilon = {anyone.epsilon:.4g}" in str(statement)


# What a guarantee must state


@pytest.mark.parametrize(
    "shown",
    [
        (),
        (at(1.0, "server"),),
        (at(4.0), at(1.0, "server")),
        (at(1.0), at(4.0)),
        (at(1.0, "server"), at(2.0, "server"), at(4.0)),
    ],
    ids=["nothing", "nothing against anyone", "anyone first", "anyone twice", "the server twice"],
)
def test_a_guarantee_states_costs_once_against_each_observer_the_last_of_them_anyone(
    shown: tuple[Guarantee, ...],
) -> None:
    fields: dict[str, Any] = {"this_run": (at(1.0),), "all_runs": (at(1.0),)}
    for name in fields:
        says = "once against each kind of observer, with 'anyone' last" if shown else name
        with pytest.raises(ValidationError, match=says):
            SiloGuarantee(records=10, rounds=1, **{**fields, name: shown})
