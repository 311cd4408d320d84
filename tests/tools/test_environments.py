"""`.ci/environments`: it tries every extra, and notices what a newcomer would trip over."""

import pytest

from tools.environments import environments
from tools.first_steps import NEEDS, OF_EXTRA, Step, fault, misuse


def test_every_extra_is_tried_in_its_newest_and_in_its_lowest_versions() -> None:
    tried = {(each.extra, each.lowest) for each in environments(["3.11", "3.12"])}
    assert tried == {(extra, lowest) for extra in OF_EXTRA for lowest in (False, True)}


def test_an_extra_without_first_steps_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(OF_EXTRA, "onnx")
    with pytest.raises(SystemExit, match="disagree about extras: onnx"):
        list(environments(["3.11"]))


def test_every_extra_has_a_command_that_names_it_when_it_is_missing() -> None:
    assert {extra for _, extra, _ in NEEDS} == set(OF_EXTRA) - {"bare"}


@pytest.mark.parametrize(
    ("status", "printed", "wrong"),
    [
        (1, "Traceback (most recent call last):", "it ended in a traceback"),
        (0, "fine", "its status is 0 instead of 1"),
        (1, "\n", "it says nothing"),
        (1, "ringfence: No.", "it does not say 'nowhere'"),
        (1, "/a/b.py:3: UserWarning: old\nringfence: nowhere", "it warns of its own code"),
        (1, "ringfence: There is no folder nowhere.", ""),
    ],
)
def test_a_step_that_ends_badly_is_a_fault(status: int, printed: str, wrong: str) -> None:
    assert fault(Step("silo serve nowhere", 1, "nowhere"), status, printed, {1}) == wrong


def test_help_that_repeats_its_arguments_is_a_fault() -> None:
    assert fault(Step("train --help"), 0, "Arguments:\n  A\nPositional arguments:\n  A\n", {0})
    assert not fault(Step("train --help"), 0, "Arguments:\n  A\n", {0})


def test_every_command_is_called_without_its_arguments_and_with_a_wrong_option() -> None:
    calls = [(" ".join(words), statuses) for words, statuses in misuse("bare")]
    assert ("silo serve", {2}) in calls
    assert ("plan --nonsense", {2}) in calls
    assert len(calls) > 200
    assert "demo" not in dict(calls)  # it needs no arguments, and would run
