"""What an operator is told of a plan: all that would leave, to whom, and what it costs against each observer."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from ringfence.accounting.charges import cost, plan_events
from ringfence.federation.local_shuffler import LocalShuffler, local_shuffler
from ringfence.planning.request import Member
from ringfence.protocol import Guarantee, Localized, Phase, against_words
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.ledger.summary import summarise
from ringfence.silo.operator.review import reveals, review
from tests.shuffler.shuffled_federation import DELTA, NAMES, make_shuffled_plan, records_of, schema_of
from tests.support import MakePlan, ask_all, own_terms, rebuilt, spent

NOTHING_ELSE = "Nothing else leaves the silo. The number of records and the schema are public."


def test_the_review_says_what_every_stage_asks_who_takes_part_and_with_what_noise(plan_of: MakePlan) -> None:
    plan = plan_of(survey=True, algorithm="accelerated", sampling="fixed", clip=0.5)
    assert reveals(plan, plan.silos[0]) == [
        "Once, one number: the largest eigenvalue of the features' second-moment matrix.",
        "All 40 records take part.",
        f"Each number gets noise of standard deviation {own_terms(plan, 0).sigma:.4g}.",
        "In each of 5 rounds, 4 numbers: the average gradient of the logistic loss, for predicting 'ill' from a, b, c, "
        "at weights that the server chooses.",
        "In each round 18 of 40 records take part, drawn afresh and in secret.",
        "Each record's gradient is clipped to norm 0.5, and each number gets noise of standard deviation "
        f"{own_terms(plan, 1).sigma:.4g}.",
        f"The plan has 6 rounds: 1 survey, 5 training. {NOTHING_ELSE}",
    ]


def test_purpose_controller_and_contact_are_read_before_what_leaves_and_cannot_forge_a_line(
    ledger: Ledger, plan_of: MakePlan
) -> None:
    plain, forged = plan_of(), "research\u202e; epsilon is 0"
    plan = rebuilt(plain, purpose="research", controller="A Clinic", contact="dpo@clinic.example")
    text = review(plan, ledger.account(), "")
    said = ["  Purpose: research", "  Controller: A Clinic", "  Contact: dpo@clinic.example"]
    lines = text.text().splitlines()
    first = lines.index(said[0])
    assert lines[first : first + 3] == said
    assert first < lines.index("What it would reveal")
    assert (text.data()["purpose"], text.data()["contact"]) == ("research", "dpo@clinic.example")
    assert "Purpose" not in review(plain, ledger.account(), "").text()
    assert plan.digest() != plain.digest()
    assert b"purpose" not in plain.content
    for wrong in (forged, "two\nlines", " spaces ", "", "x" * 501):
        with pytest.raises(ValidationError):
            rebuilt(plain, purpose=wrong)


def test_the_review_says_that_batches_of_fixed_size_need_more_noise_than_poisson_ones(
    ledger: Ledger, plan_of: MakePlan
) -> None:
    said = "more noise here than Poisson sampling does at the same epsilon."
    for sampling, is_said in (("fixed", True), ("poisson", False), ("full", False)):
        assert (said in review(plan_of(sampling=sampling), ledger.account(), "").text()) == is_said


def test_the_review_lists_phases_one_by_one_and_their_query_once(plan_of: MakePlan) -> None:
    phases = (Phase(rounds=3, penalty=0.1), Phase(rounds=2, penalty=0.8))
    plan = plan_of(algorithm=Localized(smoothness=1.0, phases=phases), rounds=5)
    first, one, noise, two, more_noise, last = reveals(plan, plan.silos[0])
    assert first.startswith("In each of 5 rounds, 4 numbers: the average gradient")
    assert one == "The 3 rounds of phase 1 take 20 of 40 records, which take part in no other phase."
    assert two == "The 2 rounds of phase 2 take 10 of 40 records, which take part in no other phase."
    assert f"{own_terms(plan, 0).sigma:.4g}" in noise
    assert f"{own_terms(plan, 1).sigma:.4g}" in more_noise
    assert last == f"The plan has 5 rounds. {NOTHING_ELSE}"


def test_the_review_says_that_noise_is_correlated(plan_of: MakePlan) -> None:
    plan = plan_of(sampling="one-pass", correlation=0.5)
    assert any(
        "cancels part of the earlier rounds' noise (correlation 0.5)" in line for line in reveals(plan, plan.silos[0])
    )


def test_the_review_states_the_costs_that_the_gate_uses(gate: Gate, ledger: Ledger, plan_of: MakePlan) -> None:
    first, second = plan_of(epsilon=0.7), plan_of(epsilon=0.9)
    gate.approve(first)
    ask_all(gate, first, [0, 1])
    entries = ledger.entries()
    text = review(second, ledger.account(), "")
    events = plan_events(second, second.silos[0])
    (own,), (total,), (so_far,) = text.own, text.total, text.used
    assert own.epsilon == cost(events, own) <= 0.9
    assert total.epsilon == cost([*plan_events(first, first.silos[0]), *events], total)
    assert so_far.epsilon == spent(ledger)
    assert text.remaining == pytest.approx([2.0 - total.epsilon], abs=2e-3)
    assert "epsilon 0.9" in text.text()
    assert text.text().endswith("The gate would approve it. Nothing is answered until you approve it.")
    assert ledger.entries() == entries


def test_a_plan_without_this_silo_costs_it_nothing_and_says_why_it_cannot_be_approved(
    ledger: Ledger, plan_of: MakePlan
) -> None:
    text = review(plan_of(members=[Member("bank", 40, 1.0, 1e-6)]), ledger.account(), "It has no part in it.")
    assert (text.own, text.total, text.data()["reveals"]) == ((), (), [])
    assert text.text().endswith("The gate would NOT approve it. It has no part in it.")


@pytest.fixture(scope="module")
def local() -> Iterator[LocalShuffler]:
    with local_shuffler(NAMES) as made:
        yield made


@pytest.mark.parametrize("budget", [Budget(2.0, DELTA), Budget(2.0, DELTA, anyone=5.0)])
def test_the_review_of_a_shuffled_plan_states_costs_against_each_observer(
    local: LocalShuffler, tmp_path: Path, budget: Budget
) -> None:
    plan = make_shuffled_plan(schema_of(3), local.keys, dict.fromkeys(NAMES, 40))
    with Ledger.create(tmp_path / "own.ledger", silo="clinic", budget=budget) as ledger:
        Gate(records_of(schema_of(3), 40, 0), ledger, local.silos["clinic"]).check(plan)
        text = review(plan, ledger.account(), "")
    events = plan_events(plan, plan.silos[0])
    for found in (text.own, text.total):
        assert found == tuple(
            Guarantee(epsilon=cost(events, limit), delta=DELTA, against=limit.against)
            for limit in plan.silos[0].guarantees
        )
    everybody = f"{against_words('anyone').capitalize()}: epsilon {text.own[1].epsilon:.4g} for this plan"
    assert everybody in text.text()
    assert f"the budget allows {budget.limits[-1].epsilon:.4g}" in text.text()
    assert f"for each of 40 records {against_words('server', 1)}; it claims 1" in text.text()
    assert "The stated epsilon holds even if 1 of them tell the server everything they know." in text.text()
    assert "coins tossed for each record and number" in text.text()
    assert "The shuffler: sealed messages, which it cannot read." in text.text()


def test_costs_of_plans_with_different_numbers_of_colluders_hold_against_the_least_of_them(
    local: LocalShuffler, tmp_path: Path
) -> None:
    """Each is counted with its own number; the second says so where it stands beside the first."""
    first, second = (
        make_shuffled_plan(schema_of(3), local.keys, dict.fromkeys(NAMES, 40), colluders=number) for number in (0, 1)
    )
    with Ledger.create(tmp_path / "own.ledger", silo="clinic", budget=Budget(2.0, DELTA, anyone=9.0)) as ledger:
        gate = Gate(records_of(schema_of(3), 40, 0), ledger, local.silos["clinic"])
        alone = review(first, ledger.account(), "").text()
        assert "The stated epsilon does not hold against them: a silo knows its own noise" in alone
        assert f"for each of 40 records {against_words('server', 0)}; it claims 1" in alone
        gate.approve(first)
        text = review(second, ledger.account(), "")
        gate.approve(second)
    assert f"for each of 40 records {against_words('server', 1)}; it claims 1" in text.text()
    assert f"{against_words('server', 0)}. Both are" in text.text(), "of everything together"
    assert text.total[0].epsilon == pytest.approx(
        cost([*plan_events(first, first.silos[0]), *plan_events(second, second.silos[0])], text.total[0])
    )
    assert summarise(tmp_path / "own.ledger")["colluders"] == 0
