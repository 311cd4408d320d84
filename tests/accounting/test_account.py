"""The accountant's queries: from noise to privacy, and from privacy to noise, and back to where one began."""

import math
from typing import Any

import pytest

from ringfence.accounting.account import answer_query, batch_of
from ringfence.errors import AccountingError
from ringfence.protocol.plan.sampling import SAMPLING_NAMES

QUERY: dict[str, Any] = {"records": 1000, "rounds": 10, "clip": 2.0, "delta": 1e-6}
BATCHES = {"full": None, "fixed": 100, "poisson": 100, "one-pass": 100}


@pytest.mark.parametrize("sampling", BATCHES)
def test_the_noise_for_an_epsilon_costs_that_epsilon_and_no_more(sampling: str) -> None:
    asked: dict[str, Any] = {**QUERY, "sampling": sampling, "batch": BATCHES[sampling]}
    answer = answer_query(**asked, sigma=None, epsilon=1.5)
    assert isinstance(answer["sigma"], float)
    assert isinstance(answer["epsilon"], float)
    assert 1.4985 <= answer["epsilon"] <= 1.5
    again = answer_query(**asked, sigma=answer["sigma"], epsilon=None)
    assert again == answer
    assert again["batch"] == (BATCHES[sampling] or 1000)


def test_an_answer_repeats_the_query() -> None:
    answer = answer_query(**QUERY, sampling="full", batch=None, sigma=0.1, epsilon=None)
    assert {name: answer[name] for name in QUERY} == QUERY
    assert (answer["sampling"], answer["sigma"], answer["adjacency"]) == ("full", 0.1, "replace-one")


def test_what_fixed_batches_need_more_than_poisson_ones_is_measured_for_the_very_query() -> None:
    sigma = {
        name: answer_query(**QUERY, sampling=name, batch=100, sigma=None, epsilon=1.5)["sigma"]
        for name in ("fixed", "poisson")
    }
    more = sigma["fixed"] / sigma["poisson"] - 1  # type: ignore[operator]
    fixed, *others = (
        answer_query(**QUERY, sampling=name, batch=BATCHES[name], sigma=None, epsilon=1.5)["advice"]
        for name in ("fixed", "full", "poisson", "one-pass")
    )
    assert (
        fixed
        == f"Batches of fixed size need {more:.0%} more noise here than Poisson sampling does at the same epsilon."
    )
    assert others == [None] * 3


def test_noise_that_proves_nothing_costs_infinity() -> None:
    answer = answer_query(**QUERY, sampling="poisson", batch=10, sigma=1e-9, epsilon=None)
    assert answer["epsilon"] == math.inf


def test_full_sampling_takes_all_records_and_the_others_need_a_batch() -> None:
    assert batch_of("full", 1000, None) == batch_of("full", 1000, 1000) == 1000
    with pytest.raises(AccountingError, match="leave out the batch"):
        batch_of("full", 1000, 999)
    for sampling in SAMPLING_NAMES[1:]:
        assert batch_of(sampling, 1000, 7) == 7
        with pytest.raises(AccountingError, match=f"'{sampling}' needs --batch"):
            batch_of(sampling, 1000, None)


@pytest.mark.parametrize(("rows", "silos", "person"), [(10, 1, 13.507), (1, 3, 1.8138), (2, 4, 4.5924)])
def test_a_person_s_rows_cost_more_together_at_the_same_delta(rows: int, silos: int, person: float) -> None:
    asked = {**QUERY, "sampling": "full", "batch": None, "sigma": None, "epsilon": 1.0}
    answer = answer_query(**asked, rows_per_person=rows, silos_per_person=silos)
    assert answer["person_epsilon"] == pytest.approx(person, abs=1e-3)
    assert "person_epsilon" not in answer_query(**asked)
    with pytest.raises(AccountingError, match="silos_per_person must be a whole number"):
        answer_query(**asked, silos_per_person=0)


def test_where_the_unit_is_a_person_the_number_of_rows_does_not_matter_and_that_of_silos_does() -> None:
    asked = {**QUERY, "sampling": "full", "batch": None, "sigma": None, "epsilon": 1.0}
    of_records, of_persons = answer_query(**asked), answer_query(**asked, unit="person")
    assert (of_persons["unit"], of_persons["persons"]) == ("person", of_records["records"])
    assert (of_persons["sigma"], of_persons["epsilon"]) == (of_records["sigma"], of_records["epsilon"])
    assert "records" not in of_persons
    in_three = answer_query(**asked, unit="person", silos_per_person=3)
    assert in_three["person_epsilon"] == pytest.approx(1.8138, abs=1e-3)
    assert "rows_per_person" not in in_three
    with pytest.raises(AccountingError, match="leave out --rows-per-person"):
        answer_query(**asked, unit="person", rows_per_person=5)
    with pytest.raises(AccountingError, match="--unit must be"):
        answer_query(**asked, unit="visit")
