"""A run through a shuffler: it goes on where it stopped, and every round has one batch."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import TrainingError
from ringfence.protocol import RoundRequest, SealedUpdate
from ringfence.server.channels import Totals
from ringfence.server.conduct import Quorum, conduct, replay
from ringfence.server.rounds import RunResult
from ringfence.server.transcript import NAME, Answered, Closed, Mixed, read_transcript
from ringfence.silo.channels import shuffler as channel_at_silo
from tests.server.local import Local
from tests.shuffler.shuffled_federation import NAMES, Federation, federation


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Federation]:
    """Three silos of 40 records; all must be in a batch."""
    with federation(tmp_path) as opened:
        yield opened


class Stopped(Exception):  # noqa: N818 (not an error: the power goes)
    """The server dies."""


def silos_of(made: Federation, *names: str) -> Local:
    def answer(request: RoundRequest) -> dict[str, bytes]:
        return {name: answer.to_bytes() for name, answer in made.ask(request, names or NAMES).items()}

    return Local(answer)


def go(made: Federation, exchange: Local, folder: Path, **options: Any) -> RunResult:
    """Conduct the run, collecting from the federation's own shuffler unless told otherwise."""
    return conduct(made.plan, exchange, folder, **{"seconds": 0.1, "collect": made.local.collect(made.plan), **options})


def model_of(made: Federation, folder: Path, **options: Any) -> bytes:
    """The model that an uninterrupted run gives from the answers in the silos' ledgers."""
    return go(made, silos_of(made), folder, seconds=1.0, **options).weights.tobytes()


def kinds(folder: Path) -> list[str]:
    return [entry.kind for entry in read_transcript(folder)[1]]


def test_a_run_writes_down_what_was_mixed_and_replays_to_the_same_model(made: Federation, tmp_path: Path) -> None:
    run = tmp_path / "run"
    weights = model_of(made, run)
    assert kinds(run) == ["asked", "answer", "answer", "answer", "mixed", "closed"] * 3
    assert replay(run).weights.tobytes() == weights
    assert not np.array_equal(np.frombuffer(weights), np.zeros(made.plan.dimension))
    assert [outcome.answered for outcome in replay(run).history] == [NAMES] * 3


def test_a_run_that_stops_after_any_entry_goes_on_to_the_same_model_bit_for_bit(
    made: Federation, tmp_path: Path
) -> None:
    """Begun, answers in part or all, mixed but not closed, closed; in the first round and in later ones.

    What was mixed is not collected again.
    """

    def never(round: int, updates: Sequence[SealedUpdate]) -> Totals | None:
        raise AssertionError("collected again")

    whole = tmp_path / "whole"
    weights = model_of(made, whole)
    lines = (whole / NAME).read_bytes().splitlines(keepends=True)
    for entries in (1, 3, 4, 5, 6, 11, 17):
        part = tmp_path / str(entries)
        part.mkdir()
        (part / NAME).write_bytes(b"".join(lines[: 1 + entries]))
        assert model_of(made, part, **({"collect": never} if entries == 17 else {})) == weights
        assert kinds(part) == kinds(whole)


def test_a_server_that_dies_while_it_collects_goes_on_with_the_batch_that_stands(
    made: Federation, tmp_path: Path
) -> None:
    collect = made.local.collect(made.plan)
    let_out: list[str] = []

    def dies_with_it(round: int, updates: Sequence[SealedUpdate]) -> Totals | None:
        totals = collect(round, updates)
        assert totals is not None
        let_out.append(totals.packed())
        if round == 1 and len(let_out) == 2:
            raise Stopped
        return totals

    run = tmp_path / "run"
    with pytest.raises(Stopped):
        go(made, silos_of(made), run, collect=dies_with_it)
    assert kinds(run)[-1] == "answer"
    later = silos_of(made)
    trained = go(made, later, run, collect=dies_with_it)
    assert let_out[1] == let_out[2], "the round has one batch"
    assert later.rounds() == [2], "and nobody was asked again"
    assert trained.weights.tobytes() == replay(run).weights.tobytes()


@pytest.mark.parametrize("shuffled", [True, False])
def test_a_plan_with_a_shuffler_needs_one_and_no_other_plan_does(
    made: Federation, tmp_path: Path, plan_of: Any, shuffled: bool
) -> None:
    plan = made.plan if shuffled else plan_of()
    collect = None if shuffled else made.local.collect(made.plan)
    with pytest.raises(TrainingError, match="only if, the plan trusts a shuffler"):
        conduct(plan, silos_of(made), tmp_path / "run", seconds=1.0, collect=collect)
    assert not (tmp_path / "run").exists()


def test_the_plan_s_quorum_holds_whatever_the_server_asks_for(made: Federation, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for quorum in (Quorum(), Quorum(0), Quorum.parse("10%")):
        with pytest.raises(TrainingError, match=r"Round 0 has 2 of the 3 updates.*'west' did not answer"):
            go(made, silos_of(made, "clinic", "north"), run, patience=0, quorum=quorum)
    assert not any(isinstance(entry, Mixed | Closed) for entry in read_transcript(run)[1])
    assert len(model_of(made, run)) == 8 * made.plan.dimension, "when the third comes, the run goes on"


def test_a_round_that_too_many_silos_have_lost_is_passed_without_a_step(
    made: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silo that died between charge and release never answers that round; without it there is no quorum."""
    request = RoundRequest.at(made.plan.digest(), 0, np.zeros(made.plan.dimension))

    def cut(*_: Any) -> SealedUpdate:
        raise Stopped

    with monkeypatch.context() as broken:
        broken.setattr(channel_at_silo, "message", cut)
        with pytest.raises(Stopped):
            made.gates["west"].answer(request)
    run = tmp_path / "run"
    trained = go(made, silos_of(made), run)
    assert [outcome.answered for outcome in trained.history] == [(), NAMES, NAMES]
    assert trained.history[0].refused == {"west": "round-lost"}
    assert [entry.round for entry in read_transcript(run)[1] if isinstance(entry, Mixed)] == [1, 2]
    assert replay(run).weights.tobytes() == trained.weights.tobytes()


def test_a_shuffler_that_lets_nothing_out_stops_the_run_with_a_sentence(made: Federation, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(TrainingError, match=r"has not released round 0.*Nothing is lost"):
        go(made, silos_of(made), run, collect=lambda round, updates: None)
    assert sum(isinstance(entry, Answered) for entry in read_transcript(run)[1]) == 3
    model_of(made, run)


def test_an_open_answer_or_one_for_another_round_counts_for_nothing(made: Federation, tmp_path: Path) -> None:
    early = {answer.silo: answer.to_bytes() for answer in made.answers(0)}

    def stale(request: RoundRequest) -> dict[str, bytes]:
        own = {name: answer.to_bytes() for name, answer in made.ask(request, NAMES).items()}
        return {**own, "west": early["west"]} if request.round == 1 else own

    with pytest.raises(TrainingError, match=r"Round 1 has 2 of the 3 .*'west' sent no usable answer"):
        go(made, Local(stale), tmp_path / "run", patience=0)
