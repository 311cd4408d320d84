"""The loop over rounds: whom it asks, what it keeps, and what hostile silos cannot do to it."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from ringfence.errors import TrainingError
from ringfence.protocol import Answer, RefusalReason, RoundRequest
from ringfence.server.rounds import Ask, RoundOutcome, run
from tests.server.quadratics import Journal, altered, make_plan, quadratics, refuse, update

HONEST = quadratics((1, 0), (0, 1), (2, 2))
THIRDS = (1 / 3, 1 / 3, 1 / 3)


def instead(ask: Ask, silo: str, answer: Callable[[RoundRequest], Answer | None]) -> Ask:
    """Let one silo answer otherwise, or not at all, whether it was asked or not."""

    def changed(request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        answers = {name: given for name, given in ask(request, asked).items() if name != silo}
        other = answer(request)
        return answers if other is None else {**answers, silo: other}

    return changed


# The rounds


def test_every_round_of_the_plan_is_asked_once_in_order_under_its_digest() -> None:
    plan = make_plan(THIRDS, rounds=7)
    journal = Journal(HONEST)
    trained = run(plan, journal)
    assert [request.round for request in journal.requests] == list(range(7))
    assert {request.plan for request in journal.requests} == {plan.digest()}
    assert journal.asked == [("s0", "s1", "s2")] * 7
    assert [outcome.round for outcome in trained.history] == list(range(7))
    assert all(outcome.answered == ("s0", "s1", "s2") for outcome in trained.history)
    assert not any(outcome.refused or outcome.unusable for outcome in trained.history)


def test_watch_is_called_with_every_outcome_as_it_happens() -> None:
    seen: list[RoundOutcome] = []
    rounds_asked: list[int] = []

    def ask(request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        rounds_asked.append(len(seen))
        return HONEST(request, asked)

    trained = run(make_plan(THIRDS), ask, watch=seen.append)
    assert tuple(seen) == trained.history
    assert rounds_asked == [0, 1, 2, 3, 4]


def test_a_round_in_which_nobody_answers_leaves_the_state_unchanged() -> None:
    def ask(request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        return {} if request.round in (2, 3) else HONEST(request, asked)

    plan = make_plan(THIRDS, rounds=7, algorithm={"step": 0.3, "momentum": 0.5})
    journal, steady = Journal(ask), Journal(HONEST)
    trained = run(plan, journal)
    run(make_plan(THIRDS, rounds=5, algorithm={"step": 0.3, "momentum": 0.5}), steady)
    np.testing.assert_array_equal(journal.queries[2], journal.queries[3])
    np.testing.assert_array_equal(journal.queries[2], journal.queries[4])
    np.testing.assert_array_equal([*journal.queries[:3], *journal.queries[5:]], steady.queries)
    assert [bool(outcome.answered) for outcome in trained.history] == [True, True, False, False, True, True, True]


# Refusals


FINAL = (RefusalReason.NOT_APPROVED, RefusalReason.REVOKED, RefusalReason.BUDGET, RefusalReason.FORGOTTEN)


@pytest.mark.parametrize("reason", RefusalReason)
def test_a_silo_that_refuses_for_good_is_not_asked_again_and_one_that_refuses_a_round_is_asked_the_next(
    reason: RefusalReason,
) -> None:
    def answer(request: RoundRequest) -> Answer:
        return refuse(request, "s1", reason) if request.round == 1 else update(request, "s1", np.ones(2))

    journal, stays = Journal(instead(HONEST, "s1", answer)), reason not in FINAL
    trained = run(make_plan(THIRDS), journal)
    assert journal.asked == [("s0", "s1", "s2")] * 2 + [("s0", "s1", "s2") if stays else ("s0", "s2")] * 3
    assert [dict(outcome.refused) for outcome in trained.history] == [{}, {"s1": reason.value}, {}, {}, {}]
    assert (trained.history[1].answered, trained.history[1].unusable) == (("s0", "s2"), ())
    assert [("s1" in outcome.answered) for outcome in trained.history] == [True, False, *[stays] * 3]


def test_when_all_silos_have_left_nobody_is_asked_and_the_model_stays() -> None:
    def ask(request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        if request.round < 2:
            return HONEST(request, asked)
        return {name: refuse(request, name, RefusalReason.BUDGET) for name in asked}

    journal = Journal(ask)
    trained = run(make_plan(THIRDS, rounds=6), journal)
    assert len(journal.asked) == 3
    assert len(trained.history) == 6
    short = Journal(HONEST)
    np.testing.assert_allclose(trained.weights, run(make_plan(THIRDS, rounds=2), short).weights)


@pytest.mark.parametrize(
    "wrong", [{"round": 4}, {"plan": "0" * 64}, {"silo": "s0"}], ids=["another round", "another plan", "another silo"]
)
def test_a_final_refusal_of_something_else_does_not_send_a_silo_away(wrong: dict[str, object]) -> None:
    """A delayed or forged refusal is as unusable as a delayed or forged update."""

    def answer(request: RoundRequest) -> Answer:
        if request.round != 1:
            return update(request, "s1", np.ones(2))
        return altered(refuse(request, "s1", RefusalReason.REVOKED), **wrong)

    journal = Journal(instead(HONEST, "s1", answer))
    trained = run(make_plan(THIRDS), journal)
    assert journal.asked == [("s0", "s1", "s2")] * 5
    assert trained.history[1].unusable == ("s1",)
    assert not trained.history[1].refused


def test_training_that_nobody_ever_answers_says_why() -> None:
    with pytest.raises(TrainingError, match=r"No silo answered any of the 5 training rounds \(no answer came back\)"):
        run(make_plan(), lambda request, asked: {})
    with pytest.raises(TrainingError, match="budget, not-approved") as caught:
        run(
            make_plan(),
            lambda request, asked: {
                name: refuse(request, name, RefusalReason.BUDGET if name == "s0" else RefusalReason.NOT_APPROVED)
                for name in asked
            },
        )
    assert "\n" not in str(caught.value)
    with pytest.raises(TrainingError, match="no answer came back"):
        run(make_plan(), lambda request, asked: {name: update(request, name, np.full(2, np.nan)) for name in asked})


# Hostile silos


Hostile = Callable[[RoundRequest], Answer]
HOSTILE: dict[str, Hostile] = {
    "not a number": lambda request: update(request, "s1", np.array([0.0, math.nan])),
    "infinity": lambda request: update(request, "s1", np.array([math.inf, 0.0])),
    "minus infinity": lambda request: update(request, "s1", np.array([-math.inf, 0.0])),
    "too short": lambda request: update(request, "s1", np.zeros(1)),
    "too long": lambda request: update(request, "s1", np.zeros(3)),
    "earlier round": lambda request: altered(update(request, "s1", np.ones(2)), round=(request.round - 1) % 5),
    "later round": lambda request: altered(update(request, "s1", np.ones(2)), round=request.round + 1),
    "another plan": lambda request: altered(update(request, "s1", np.ones(2)), plan="0" * 64),
    "another silo's name": lambda request: update(request, "s0", np.ones(2)),
    "a stranger's name": lambda request: update(request, "intruder", np.ones(2)),
}


@pytest.mark.parametrize("kind", list(HOSTILE))
def test_a_hostile_answer_is_reported_and_otherwise_as_if_it_had_not_come(kind: str) -> None:
    plan = make_plan(THIRDS, algorithm={"step": 0.3, "momentum": 0.5})
    journal = Journal(instead(HONEST, "s1", HOSTILE[kind]))
    hostile = run(plan, journal)
    assert journal.asked == [("s0", "s1", "s2")] * 5, "it is asked again"
    silent = run(plan, instead(HONEST, "s1", lambda request: None))
    np.testing.assert_array_equal(hostile.weights, silent.weights)
    for outcome in hostile.history:
        assert outcome.answered == ("s0", "s2")
        assert outcome.unusable == ("s1",)
        assert not outcome.refused


@pytest.mark.parametrize(
    "answer",
    [
        lambda request, name: update(request, name, np.full(2, 1e6)),
        lambda request, name: refuse(request, name, RefusalReason.REVOKED),
    ],
    ids=["update", "refusal"],
)
def test_answers_of_silos_that_were_not_asked_are_ignored(answer: Callable[[RoundRequest, str], Answer]) -> None:
    plan = make_plan(THIRDS, rounds=30, participation={"silos": 1})

    def eager(request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        uninvited = [name for name in ("s0", "s1", "s2", "intruder") if name not in asked]
        return {**{name: answer(request, name) for name in uninvited}, **HONEST(request, asked)}

    noisy = run(plan, eager, choices=np.random.default_rng(1))
    quiet = run(plan, HONEST, choices=np.random.default_rng(1))
    np.testing.assert_array_equal(noisy.weights, quiet.weights)
    assert noisy.history == quiet.history


@pytest.mark.parametrize("size", [1e200, 1.7e308])
@pytest.mark.parametrize("domain", [{"name": "ball", "radius": 1.0}, {"name": "box", "lower": -1.0, "upper": 1.0}])
def test_enormous_finite_numbers_cannot_spoil_the_model_for_good(domain: dict[str, object], size: float) -> None:
    plan = make_plan((0.1, 0.9), rounds=5, domain=domain, algorithm={"step": 2.0, "momentum": 0.5})

    def answer(request: RoundRequest) -> Answer:
        return update(request, "s1", np.array([size, -size]) if request.round == 0 else np.zeros(2))

    journal = Journal(instead(quadratics((1, 0), (0, 1)), "s1", answer))
    model = run(plan, journal).weights
    for weights in (*journal.queries, model):
        assert np.all(np.isfinite(weights))
        assert plan.domain.contains(weights)


# Participation


def test_a_fixed_number_of_silos_is_asked_and_never_one_twice() -> None:
    plan = make_plan((1 / 7,) * 7, dimension=1, rounds=700, participation={"silos": 3})
    journal = Journal(quadratics(*[[0.0]] * 7))
    run(plan, journal, choices=np.random.default_rng(1))
    assert all(len(asked) == len(set(asked)) == 3 for asked in journal.asked)
    counts = Counter(name for asked in journal.asked for name in asked)
    # Each of 7 silos is asked in 700·3/7 = 300 rounds, give or take a standard deviation of 13.
    assert set(counts) == {f"s{place}" for place in range(7)}
    assert all(abs(count - 300) < 6 * 13.1 for count in counts.values())
    assert len(set(journal.asked)) == math.comb(7, 3)


def test_with_a_probability_every_silo_is_asked_independently_that_often() -> None:
    plan = make_plan((0.25,) * 4, dimension=1, rounds=1000, participation={"probability": 0.3})
    journal = Journal(quadratics(*[[0.0]] * 4))
    trained = run(plan, journal, choices=np.random.default_rng(1))
    asked = [set(outcome.answered) for outcome in trained.history]
    counts = Counter(name for names in asked for name in names)
    assert all(abs(counts[f"s{place}"] - 300) < 6 * 14.5 for place in range(4))
    sizes = Counter(len(names) for names in asked)
    for size in range(5):
        expected = 1000 * math.comb(4, size) * 0.3**size * 0.7 ** (4 - size)
        assert abs(sizes[size] - expected) < 6 * math.sqrt(expected) + 1
    assert len(journal.asked) == 1000 - sizes[0]
