"""Every plan's epsilon, by a second route."""

import dataclasses
from pathlib import Path

import pytest

from ringfence.audit import truth
from ringfence.audit.game import LOCAL_SGD
from ringfence.audit.mechanisms import MECHANISMS, Question
from ringfence.audit.second import Release, releases, second_epsilon
from ringfence.audit.truth import reproduce_truth, truth_of
from ringfence.errors import AccountingError

QUESTIONS = [Question(0.5, 1e-6, 1000, 30), Question(3.0, 1e-5, 64, 4), Question(8.0, 1e-4, 200, 1)]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: f"epsilon {question.epsilon}")
@pytest.mark.parametrize("name", [*MECHANISMS, LOCAL_SGD])
def test_two_accountants_agree_on_every_kind_of_plan(name: str, question: Question) -> None:
    found = truth_of(name, question)
    found.require_agreement()
    assert found.claimed == pytest.approx(question.epsilon, rel=1e-4)
    assert found.disagreement < 1e-3


def test_accountants_that_disagree_stop_everything() -> None:
    found = truth_of("full", QUESTIONS[1])
    with pytest.raises(AccountingError, match="one of them is wrong"):
        dataclasses.replace(found, second=1.02 * found.second).require_agreement()


def test_the_second_accountant_notices_half_of_the_noise() -> None:
    [plan] = MECHANISMS["fixed"].plans(QUESTIONS[1])
    [release] = releases(plan)
    twice = Release(2 * release.shift, release.count, release.rate, release.fixed_size)
    assert second_epsilon([twice], 1e-5) > 2 * second_epsilon([release], 1e-5)


def test_the_page_shows_every_mechanism(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "EPSILONS", (3.0,))
    page = reproduce_truth(tmp_path / "results", quick=True)
    text = page.read_text()
    assert "ringfence reproduce privacy-truth --out results --quick" in text
    for name in (*MECHANISMS, LOCAL_SGD):
        assert f"| {name} | 3.0000 | 3.0000 |" in text or f"| {name} | 3.0000 | 2.9999 |" in text
    assert "YES" not in text
