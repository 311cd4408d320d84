"""How many silos answer a round: against all outcomes one by one, and for so many silos that factorials overflow."""

import math
from itertools import product

import pytest

from ringfence.errors import PlanError
from ringfence.planning.problem import answer_probabilities, harmonic_mean_of_answers


@pytest.mark.parametrize(("silos", "probability"), [(1, 0.3), (4, 0.5), (7, 0.9), (3, 1.0)])
def test_rounds_with_an_answer_are_as_likely_as_counting_says(silos: int, probability: float) -> None:
    counted = dict.fromkeys(range(silos + 1), 0.0)
    for answers in product((0, 1), repeat=silos):
        counted[sum(answers)] += math.prod(probability if answer else 1 - probability for answer in answers)
    some = 1 - counted.pop(0)
    expected = {m: p / some for m, p in counted.items() if p}
    assert answer_probabilities(silos, probability) == pytest.approx(expected)
    assert harmonic_mean_of_answers(answer_probabilities(silos, probability)) == pytest.approx(
        1 / sum(p / m for m, p in expected.items())
    )


def test_a_thousand_silos_are_not_too_many() -> None:
    assert harmonic_mean_of_answers(answer_probabilities(5000, 0.5)) == pytest.approx(2499.5, rel=1e-4)


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.1, math.nan])
def test_a_silo_answers_with_some_probability(probability: float) -> None:
    with pytest.raises(PlanError, match="above 0 and at most 1"):
        answer_probabilities(5, probability)
