"""Estimators that are told whose rows are whose: guarantee, totals and words are a person's."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, GroupShuffleSplit, cross_validate

from ringfence.errors import ApprovalError, EstimatorError, PlanError
from ringfence.protocol import parse_schema
from tests.estimators import test_privacy
from tests.estimators.test_privacy import DELTA, X, Y, together, total

PERSONS = np.array([f"MRN-{number}" for number in np.arange(90) // 3])  # thirty persons with three rows each
SILOS = np.repeat(["a", "b"], [45, 45])
NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
COLUMNS = {"p": NUMBER, "q": NUMBER, "r": NUMBER, "ill": {"type": "categorical", "categories": ["no", "yes"]}}


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


classifier = partial(test_privacy.classifier, max_rounds=3)


def test_a_fit_with_persons_protects_each_person() -> None:
    fitted = classifier(person_rule="rows", rows_per_person=2).fit(X, Y, silos=SILOS, persons=PERSONS)
    assert (fitted.plan_.unit, fitted.plan_.person_rule, fitted.plan_.rows_per_person) == ("person", "rows", 2)
    assert [terms.records for terms in fitted.plan_.silos] == [15, 15]
    assert "a: each of 15 persons, over 5 rounds, by epsilon = 1" in str(fitted.privacy_)
    assert "records was there" not in str(fitted.privacy_)
    assert classifier(cap=(9.0, DELTA)).fit(X, Y, persons=PERSONS).plan_.person_rule == "mean"
    assert fitted.predict(X).shape == (90,)
    assert 0 <= fitted.score(X, Y) <= 1


def test_a_person_counts_once_however_many_rows_they_have_and_wherever_these_stand(repeated_noise: None) -> None:
    asked = classifier(cap=(9.0, DELTA), held_out=0)  # who is held out goes by the order
    once = asked.fit(X, Y, persons=PERSONS).coef_
    often = np.concatenate([np.arange(90), [0, 1, 2] * 20])  # the mean of the first person's rows stays what it was
    assert np.allclose(asked.fit(X[often], Y[often], persons=PERSONS[often]).coef_, once, atol=1e-6)
    assert np.allclose(asked.fit(X[::-1], Y[::-1], persons=PERSONS[::-1]).coef_, once, atol=1e-6)


def test_a_person_pays_once_for_each_fit_with_any_of_their_rows() -> None:
    assert total(classifier().fit(X, Y, persons=PERSONS)) == pytest.approx(1.0, rel=1e-4)
    twice = np.concatenate([np.arange(90), np.arange(90)])  # copies are the same person's
    assert total(classifier().fit(X[twice], Y[twice], persons=PERSONS[twice])) == pytest.approx(together(2), rel=1e-3)
    others = classifier().fit(X[::3] / 2, Y[::3], persons=PERSONS[::3])  # one row each, which was never seen
    assert total(others) == pytest.approx(together(3), rel=1e-3)
    for fits, labels in enumerate((np.arange(90) // 3, [f"{n // 3}" for n in range(90)]), 1):  # persons by their text
        assert total(classifier().fit(X, Y, persons=labels)) == pytest.approx(together(fits), rel=1e-3)


def test_a_person_with_rows_in_several_silos_pays_in_each() -> None:
    shared = np.where(PERSONS == "MRN-29", "MRN-0", PERSONS)
    fitted = classifier().fit(X, Y, silos=np.repeat(["a", "b", "c"], 30), persons=shared)
    assert total(fitted, "a") == total(fitted, "c") == pytest.approx(together(2), rel=1e-3)
    assert total(fitted, "b") == pytest.approx(1.0, rel=1e-4)
    assert str(fitted.privacy_).count("A person has rows in 2 silos of this fit") == 2
    again = classifier().fit(X[:30], Y[:30], silos=["a"] * 30, persons=shared[:30])
    assert total(again, "a") == pytest.approx(together(3), rel=1e-3)


def test_a_cap_holds_for_persons_in_several_silos_and_ledgers_refuse_them(tmp_path: Path) -> None:
    shared = np.where(PERSONS == "MRN-29", "MRN-0", PERSONS)
    with pytest.raises(ApprovalError, match=r"on persons of silo 'a' .* more than the cap.* pays in each"):
        classifier(cap=(together(2) * 0.99, DELTA)).fit(X, Y, silos=SILOS, persons=shared)
    with pytest.raises(EstimatorError, match="person of silo 'a' also has rows in other silos"):
        classifier(ledgers=tmp_path).fit(X, Y, silos=SILOS, persons=shared)
    assert not list(tmp_path.iterdir())
    assert total(classifier(cap=(together(2), DELTA)).fit(X, Y, silos=SILOS, persons=shared), "b") < together(2)


def test_costs_of_records_are_never_taken_for_costs_of_persons() -> None:
    capped = classifier(cap=(15.0, DELTA))
    capped.fit(X, Y, persons=PERSONS)
    with pytest.raises(ApprovalError, match="Records of silo 'all' were fitted earlier in this process, with other"):
        classifier().fit(X, Y)
    assert total(capped.fit(X, Y)) == pytest.approx(together(2), rel=1e-3)  # a person's cost bounds their record's
    for settings in (capped, classifier()):
        with pytest.raises(ApprovalError, match=r"without `persons`.*does not bound its cost to a person"):
            settings.fit(X[:40], Y[:40], persons=PERSONS[:40])
    two_owners = np.concatenate([X[:1] / 3, X / 3])
    capped.fit(two_owners, np.append(Y[:1], Y), persons=np.append(["MRN-another"], PERSONS))
    assert total(capped.fit(X / 3, Y)) == pytest.approx(together(1 + 2**2), rel=1e-3)  # of a row that two persons have


def test_folds_by_person_reach_the_fit_by_the_splitters_own_name_for_them(routing: None) -> None:
    asked = classifier(person_rule="mean", cap=(15.0, DELTA)).set_fit_request(persons="groups")
    folds = GroupShuffleSplit(4, test_size=0.5, random_state=0)
    asked_for: dict[str, Any] = {"return_estimator": True, "return_indices": True, "error_score": "raise"}
    found = cross_validate(asked, X, Y, cv=folds, params={"groups": PERSONS}, **asked_for)
    inside = [set(PERSONS[rows]) for rows in found["indices"]["train"]]
    for fit, fitted in enumerate(found["estimator"]):
        most = max(sum(person in fold for fold in inside[: fit + 1]) for person in inside[fit])
        assert fitted.plan_.silos[0].records == len(inside[fit])
        assert total(fitted) == pytest.approx(together(most), rel=1e-3)


def test_a_search_is_paid_by_persons_and_a_rule_makes_sure_that_they_were_named(routing: None) -> None:
    folds = GroupShuffleSplit(2, random_state=0)
    capped = classifier(person_rule="mean", cap=(9.0, DELTA))
    search = GridSearchCV(
        capped.set_fit_request(persons="groups"), {"ridge": [0.0, 0.1]}, cv=folds, error_score="raise"
    )
    search.fit(X, Y, groups=PERSONS)
    assert total(search.best_estimator_) == pytest.approx(together(5), rel=1e-3)  # two candidates twice, and the refit
    forgotten = GridSearchCV(capped.set_fit_request(persons=False), {"ridge": [0.0]}, cv=folds, error_score="raise")
    with pytest.raises(EstimatorError, match=r"lacks the person of each row.*set_fit_request\(persons=True\)"):
        forgotten.fit(X, Y, groups=PERSONS)


def test_a_bootstrap_sample_holds_no_copies_of_a_person(routing: None) -> None:
    asked = classifier(classes=[0, 1]).set_fit_request(persons=True)
    bags = BaggingClassifier(asked, n_estimators=4, random_state=0).fit(X, Y, persons=PERSONS)
    inside = [set(PERSONS[sample]) for sample in bags.estimators_samples_]
    assert [fitted.plan_.silos[0].records for fitted in bags.estimators_] == [len(bag) for bag in inside]
    most = max(sum(person in bag for bag in inside) for person in set(PERSONS))
    assert max(total(fitted) for fitted in bags.estimators_) == pytest.approx(together(most), rel=1e-3)
    assert "times in this fit" not in str(bags.estimators_[0].privacy_)


def test_ledgers_count_persons_and_take_no_fit_of_records(tmp_path: Path) -> None:
    twice, asked = np.repeat(np.arange(90), 2), classifier(ledgers=tmp_path, cap=(9.0, DELTA))
    assert asked.fit(X[twice], Y[twice], persons=PERSONS[twice]).privacy_.silos["all"].records == 30
    with pytest.raises(ApprovalError, match=r"each record of silo 'all', but its ledger counts .* each person"):
        asked.fit(X, Y)


@pytest.mark.parametrize("given", ["column", "array"])
def test_a_schema_may_name_the_column_that_tells_whose_a_row_is(given: str) -> None:
    schema = parse_schema({"columns": COLUMNS, "person": "patient"}, target="ill")
    table = pd.DataFrame(X, columns=["p", "q", "r"])
    with_column = table.assign(patient=PERSONS)
    asked = classifier(schema=schema, bounds=None, classes=None)
    with pytest.raises(EstimatorError, match=r"'patient' identifies the person of each row.*`persons`, not both"):
        asked.fit(table, Y)
    with pytest.raises(EstimatorError, match="not both"):
        asked.fit(with_column, Y, persons=PERSONS)
    fitted = asked.fit(with_column, Y) if given == "column" else asked.fit(table, Y, persons=PERSONS)
    assert (fitted.plan_.unit, fitted.plan_.data.person, fitted.plan_.silos[0].records) == ("person", "patient", 30)
    assert fitted.feature_names_in_.tolist() == ["p", "q", "r"]
    assert fitted.predict(table).tolist() == fitted.predict(with_column).tolist()


def test_rows_are_recognised_whether_or_not_the_schema_tells_persons_apart() -> None:
    table = pd.DataFrame(X, columns=["p", "q", "r"]).assign(patient=PERSONS)
    schemas = [parse_schema({"columns": COLUMNS, **more}, target="ill") for more in ({}, {"person": "patient"})]
    of_records, of_persons = (
        classifier(schema=schema, bounds=None, classes=None, cap=(9.0, DELTA)) for schema in schemas
    )
    of_persons.fit(table[:45], Y[:45])
    assert total(of_records.fit(table[:60], Y[:60])) == pytest.approx(together(2), rel=1e-3)
    with pytest.raises(ApprovalError, match="were fitted earlier in this process without `persons`"):
        of_persons.fit(table[50:], Y[50:])


def test_tables_by_silo_come_with_persons_by_silo() -> None:
    tables, targets = [X[:45], X[45:]], [Y[:45], Y[45:]]
    by_list = classifier().fit(tables, targets, persons=[PERSONS[:45], PERSONS[45:]])
    assert [terms.records for terms in by_list.plan_.silos] == [15, 15]
    named = [dict(zip("ab", part, strict=True)) for part in (tables, targets, [PERSONS[:45], PERSONS[45:]])]
    by_name = classifier().fit(named[0], named[1], persons=named[2])
    assert total(by_name, "a") == pytest.approx(together(2), rel=1e-3)  # by the label, whatever the silo is called
    for X_given, y_given, wrong in (
        (tables, targets, PERSONS),
        (tables, targets, [PERSONS[:44], PERSONS[45:]]),
        (named[0], named[1], PERSONS),
    ):
        with pytest.raises(EstimatorError, match="`persons`"):
            classifier().fit(X_given, y_given, persons=wrong)


def test_the_column_of_persons_has_a_public_name_that_no_other_column_has() -> None:
    table = pd.DataFrame(X, columns=["p", "person", "r"])
    assert classifier().fit(table, Y, persons=PERSONS).plan_.data.person == "person_"
    assert classifier().fit(table, Y, persons=pd.Series(PERSONS, name="patient")).plan_.data.person == "patient"


def test_what_does_not_say_whose_each_row_is_is_refused_without_a_label_in_the_message() -> None:
    missing = PERSONS.astype(object)
    missing[7] = None
    for wrong, says in ((missing, "Row 7 of `persons`"), (PERSONS[:-1], "one label for each of the 90 rows")):
        with pytest.raises(EstimatorError, match=says) as refused:
            classifier().fit(X, Y, persons=wrong)
        assert "MRN" not in str(refused.value)
    with pytest.raises(EstimatorError, match="give `persons`"):
        classifier(person_rule="mean").fit(X, Y)
    for unfit in ({"person_rule": "rows"}, {"rows_per_person": 2}, {"person_rule": "median"}):
        with pytest.raises(PlanError):
            classifier(**unfit).fit(X, Y, persons=PERSONS)
    assert total(classifier().fit(X, Y, persons=PERSONS)) == pytest.approx(1.0, rel=1e-4)  # nothing was counted
