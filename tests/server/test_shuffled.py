"""The server's end of a shuffler: it uses whole batches of its own round, and a run goes on where it stopped."""

import base64
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from ringfence.errors import MessageError, TrainingError
from ringfence.protocol.messages import RoundRequest, SealedUpdate
from ringfence.protocol.shuffle import Batch
from ringfence.server.conduct import Quorum, conduct, replay
from ringfence.server.shuffled import Collect, Totals, mean_gradient, read_batch
from ringfence.server.transcript import NAME, Answered, Closed, Mixed, read
from ringfence.shuffle import sealing, shares
from ringfence.silo import sealed
from tests.server.local import Local
from tests.shuffle.mixed import NAMES, Federation, federation, shuffle_of

FALSE_ALARM = 1e-6


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Federation]:
    """Three silos of 40 records; all must be in a batch."""
    with federation(tmp_path) as opened:
        yield opened


def read_round(made: Federation, content: bytes, round: int = 0) -> Totals:
    return read_batch(made.plan, shuffle_of(made.plan), made.local.server, round, content)


def rewritten(batch: bytes, **changes: Any) -> bytes:
    return Batch.from_bytes(batch).model_copy(update=changes).to_bytes()


def sealed_counts(made: Federation, numbers: Sequence[int], round: int = 0) -> bytes:
    """A batch of one silo with these numbers and two with zeros, as if all had sealed them."""
    shuffle, digest = shuffle_of(made.plan), made.plan.digest()
    held = [np.array(numbers), np.zeros(made.plan.numbers, np.int64), np.zeros(made.plan.numbers, np.int64)]
    messages = [message for own in held for message in shares.split(shuffle, own)]
    joined = b"".join(sealing.seal_messages(shuffle.server_key, digest, round, messages))
    return Batch(plan=digest, round=round, silos=3, messages=base64.b64encode(joined).decode()).to_bytes()


# -- a batch --


def test_the_mean_is_that_of_all_records_gradients_within_the_coins(made: Federation) -> None:
    """χ² with the plan's own variance, roundings included, at a false-alarm rate of 1e-6 or less."""
    plan, shuffle = made.plan, shuffle_of(made.plan)
    truth = np.zeros(plan.dimension)
    for held in made.records.values():
        gradients = -0.5 * held.targets[:, None] * held.features
        gradients *= np.minimum(1.0, plan.clip / np.linalg.norm(gradients, axis=1))[:, None]
        truth += gradients.sum(axis=0)
    statistic, degrees = 0.0, 0
    for round in range(3):
        mean = mean_gradient(plan, shuffle, read_round(made, made.batch(round), round))
        deviation = 2 * plan.clip / shuffle.levels * math.sqrt((120 * shuffle.coins + 3) / 4) / 120
        statistic += float(np.sum(((mean - truth / 120) / deviation) ** 2))
        degrees += plan.dimension
    # Binomial tails lie below normal ones; the factor is for what a grid of levels adds.
    assert statistic < 1.1 * chi2.isf(FALSE_ALARM, degrees)
    assert statistic > 0.01, "and there is noise"


def test_a_batch_of_another_plan_or_round_is_not_used(made: Federation) -> None:
    batch = made.batch(0)
    read_round(made, batch)
    with pytest.raises(MessageError, match="another plan or round"):
        read_round(made, batch, 1)
    with pytest.raises(MessageError, match="another plan or round"):
        read_round(made, rewritten(batch, plan="0" * 64))
    # And one that only says so does not open: the seals hold what they were made for.
    with pytest.raises(MessageError, match="does not open"):
        read_round(made, rewritten(batch, round=1), 1)


def test_a_batch_that_is_cut_or_changed_is_not_used(made: Federation) -> None:
    batch = made.batch(0)
    content = base64.b64decode(Batch.from_bytes(batch).messages)
    size = shuffle_of(made.plan).message_bytes + sealing.SEALED_EXTRA

    def with_messages(messages: bytes, **changes: Any) -> bytes:
        return rewritten(batch, messages=base64.b64encode(messages).decode(), **changes)

    with pytest.raises(MessageError, match="equal size"):
        read_round(made, with_messages(content[:-1]))
    with pytest.raises(MessageError, match="does not hold"):
        read_round(made, with_messages(content[:-size]))
    with pytest.raises(MessageError, match="does not hold"):
        read_round(made, with_messages(content + content[:size]))
    with pytest.raises(MessageError, match="does not hold"):
        read_round(made, rewritten(batch, silos=2))
    with pytest.raises(MessageError, match="does not open"):
        read_round(made, with_messages(bytes([content[0] ^ 1]) + content[1:]))
    with pytest.raises(MessageError):
        read_round(made, batch[:-9])
    with pytest.raises(MessageError, match="does not open"):
        read_batch(made.plan, shuffle_of(made.plan), sealing.new_key(), 0, batch)


def test_totals_that_no_honest_silos_give_are_not_used(made: Federation) -> None:
    shuffle, d = shuffle_of(made.plan), made.plan.dimension
    most = 120 * (shuffle.levels + shuffle.coins)
    good = [most // 2] * d
    assert read_round(made, sealed_counts(made, [*good, 120])).silos == 3
    assert read_round(made, sealed_counts(made, [*[most] * d, 120])).silos == 3
    for numbers in ([*good, 0], [*good, 121], [*good[:-1], most + 1, 120], [*good, 59], [*[40000] * d, 120]):
        with pytest.raises(MessageError, match="out of range"):
            read_round(made, sealed_counts(made, numbers))
    for totals in (Totals(3, np.array([-1, *good[1:], 120])), Totals(3, np.array([*good, 5, 120]))):
        with pytest.raises(MessageError, match="out of range"):
            mean_gradient(made.plan, shuffle, totals)


def test_totals_survive_their_text() -> None:
    totals = Totals(3, np.array([0, 1, 2**40, -7], dtype=np.int64))
    again = Totals.unpacked(3, totals.packed())
    assert (again.silos, again.numbers.tolist()) == (3, totals.numbers.tolist())
    with pytest.raises(MessageError, match="8-byte"):
        Totals.unpacked(3, base64.b64encode(b"123456789").decode())


# -- a run --


class Stopped(Exception):  # noqa: N818 (not an error: the power goes)
    """The server dies."""


def silos_of(made: Federation, *names: str) -> Local:
    def answer(request: RoundRequest) -> dict[str, bytes]:
        return {name: answer.to_bytes() for name, answer in made.ask(request, names or NAMES).items()}

    return Local(answer)


def model_of(made: Federation, folder: Path) -> bytes:
    """The model that an uninterrupted run gives from the answers in the silos' ledgers."""
    return conduct(
        made.plan, silos_of(made), folder, seconds=1.0, collect=made.local.collect(made.plan)
    ).weights.tobytes()


def kinds(folder: Path) -> list[str]:
    return [entry.kind for entry in read(folder)[1]]


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
    """Begun, answers in part or all, mixed but not closed, closed; in the first round and in later ones."""
    whole = tmp_path / "whole"
    weights = model_of(made, whole)
    lines = (whole / NAME).read_bytes().splitlines(keepends=True)
    for entries in (1, 3, 4, 5, 6, 11, 17):
        part = tmp_path / str(entries)
        part.mkdir()
        (part / NAME).write_bytes(b"".join(lines[: 1 + entries]))
        assert model_of(made, part) == weights
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
        conduct(made.plan, silos_of(made), run, seconds=1.0, collect=dies_with_it)
    assert kinds(run)[-1] == "answer"
    later = silos_of(made)
    trained = conduct(made.plan, later, run, seconds=1.0, collect=dies_with_it)
    assert let_out[1] == let_out[2], "the round has one batch"
    assert later.rounds() == [2], "and nobody was asked again"
    assert trained.weights.tobytes() == replay(run).weights.tobytes()


def test_a_mixed_round_is_not_collected_again(made: Federation, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    weights = model_of(made, whole)
    part.mkdir()
    lines = (whole / NAME).read_bytes().splitlines(keepends=True)
    (part / NAME).write_bytes(b"".join(lines[:-1]))  # all but the last round's end
    assert kinds(part)[-1] == "mixed"

    def never(round: int, updates: Sequence[SealedUpdate]) -> Totals | None:
        raise AssertionError("collected again")

    trained = conduct(made.plan, silos_of(made), part, seconds=1.0, collect=never)
    assert trained.weights.tobytes() == weights


@pytest.mark.parametrize("shuffled", [True, False])
def test_a_plan_with_a_shuffler_needs_one_and_no_other_plan_does(
    made: Federation, tmp_path: Path, plan_of: Any, shuffled: bool
) -> None:
    plan = made.plan if shuffled else plan_of()
    collect = None if shuffled else made.local.collect(made.plan)
    with pytest.raises(TrainingError, match="trusts a shuffler needs one"):
        conduct(plan, silos_of(made), tmp_path / "run", seconds=1.0, collect=collect)
    assert not (tmp_path / "run").exists()


def test_the_plan_s_quorum_holds_whatever_the_server_asks_for(made: Federation, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for quorum in (Quorum(), Quorum(0), Quorum.parse("10%")):
        with pytest.raises(TrainingError, match=r"Round 0 has 2 of the 3 updates.*'west' did not answer"):
            conduct(
                made.plan,
                silos_of(made, "clinic", "north"),
                run,
                seconds=0.01,
                patience=0,
                quorum=quorum,
                collect=made.local.collect(made.plan),
            )
    assert not any(isinstance(entry, Mixed | Closed) for entry in read(run)[1])
    assert len(model_of(made, run)) == 8 * made.plan.dimension, "when the third comes, the run goes on"


def test_a_round_that_too_many_silos_have_lost_is_passed_without_a_step(
    made: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silo that died between charge and release never answers that round; without it there is no quorum."""
    request = RoundRequest.at(made.plan.digest(), 0, np.zeros(made.plan.dimension))

    def cut(*_: Any) -> SealedUpdate:
        raise Stopped

    with monkeypatch.context() as broken:
        broken.setattr(sealed, "seal", cut)
        with pytest.raises(Stopped):
            made.gates["west"].answer(request)
    run = tmp_path / "run"
    trained = conduct(made.plan, silos_of(made), run, seconds=0.1, collect=made.local.collect(made.plan))
    assert [outcome.answered for outcome in trained.history] == [(), NAMES, NAMES]
    assert trained.history[0].refused == {"west": "round-lost"}
    assert [entry.round for entry in read(run)[1] if isinstance(entry, Mixed)] == [1, 2]
    assert replay(run).weights.tobytes() == trained.weights.tobytes()


def test_a_shuffler_that_lets_nothing_out_stops_the_run_with_a_sentence(made: Federation, tmp_path: Path) -> None:
    run = tmp_path / "run"
    nothing: Collect = lambda round, updates: None  # noqa: E731 (one line says it)
    with pytest.raises(TrainingError, match=r"has not let out round 0.*Nothing is lost"):
        conduct(made.plan, silos_of(made), run, seconds=0.01, collect=nothing)
    assert sum(isinstance(entry, Answered) for entry in read(run)[1]) == 3
    model_of(made, run)


def test_an_open_answer_or_one_for_another_round_counts_for_nothing(made: Federation, tmp_path: Path) -> None:
    early = {answer.silo: answer.to_bytes() for answer in made.answers(0)}

    def stale(request: RoundRequest) -> dict[str, bytes]:
        own = {name: answer.to_bytes() for name, answer in made.ask(request, NAMES).items()}
        return {**own, "west": early["west"]} if request.round == 1 else own

    with pytest.raises(TrainingError, match=r"Round 1 has 2 of the 3 .*'west' sent no usable answer"):
        conduct(
            made.plan,
            Local(stale),
            tmp_path / "run",
            seconds=0.01,
            patience=0,
            collect=made.local.collect(made.plan),
        )
