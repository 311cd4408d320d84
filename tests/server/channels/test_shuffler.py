"""The server's end of a shuffler: it uses whole batches of its own round, and no totals that are out of range."""

import base64
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from ringfence.errors import MessageError, PlanError
from ringfence.protocol import Batch
from ringfence.protocol.channels.shuffler import SEALED_EXTRA
from ringfence.server.channels import Totals
from ringfence.server.channels.shuffler import mean_of_totals, read_batch
from ringfence.shuffler import sealing, shares
from tests.shuffler.shuffled_federation import Federation, federation, numbers_of, shuffle_of
from tests.support import MakePlan, clip_of

FALSE_ALARM = 1e-6


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Federation]:
    """Three silos of 40 records; all must be in a batch."""
    with federation(tmp_path) as opened:
        yield opened


def read_round(made: Federation, content: bytes, round: int = 0) -> Totals:
    return read_batch(made.plan, made.local.server, round, content)


def rewritten(batch: bytes, **changes: Any) -> bytes:
    return Batch.from_bytes(batch).model_copy(update=changes).to_bytes()


def sealed_counts(made: Federation, numbers: Sequence[int], round: int = 0) -> bytes:
    """A batch of one silo with these numbers and two with zeros, as if all had sealed them."""
    shuffle, digest = shuffle_of(made.plan), made.plan.digest()
    held = [np.array(numbers), *np.zeros((2, numbers_of(made.plan)), np.int64)]
    messages = [message for own in held for message in shares.make_shares(shuffle, own)]
    joined = b"".join(sealing.seal_messages(shuffle.server_key, digest, round, messages))
    return Batch(plan=digest, round=round, silos=3, messages=base64.b64encode(joined).decode()).to_bytes()


def test_the_mean_is_that_of_all_records_gradients_within_the_coins(made: Federation) -> None:
    """χ² with the plan's own variance, roundings included, at a false-alarm rate of 1e-6 or less."""
    plan, shuffle = made.plan, shuffle_of(made.plan)
    truth = np.zeros(plan.dimension)
    for held in made.records.values():
        gradients = -0.5 * held.targets[:, None] * held.features
        gradients *= np.minimum(1.0, clip_of(plan) / np.linalg.norm(gradients, axis=1))[:, None]
        truth += gradients.sum(axis=0)
    statistic, degrees = 0.0, 0
    for round in range(3):
        mean = mean_of_totals(shuffle, plan, 0, read_round(made, made.batch(round), round))
        deviation = 2 * clip_of(plan) / shuffle.levels * math.sqrt((120 * shuffle.coins + 3) / 4) / 120
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


def test_a_batch_that_is_truncated_or_changed_is_not_used(made: Federation) -> None:
    batch = made.batch(0)
    content = base64.b64decode(Batch.from_bytes(batch).messages)
    size = shuffle_of(made.plan).message_bytes + SEALED_EXTRA

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
        read_batch(made.plan, sealing.new_key(), 0, batch)


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
            mean_of_totals(shuffle, made.plan, 0, totals)


def test_totals_survive_their_text() -> None:
    totals = Totals(3, np.array([0, 1, 2**40, -7], dtype=np.int64))
    again = Totals.unpacked(3, totals.packed())
    assert (again.silos, again.numbers.tolist()) == (3, totals.numbers.tolist())
    with pytest.raises(MessageError, match="8-byte"):
        Totals.unpacked(3, base64.b64encode(b"123456789").decode())


def test_a_round_that_does_not_go_through_a_shuffler_has_no_batch(made: Federation, plan_of: MakePlan) -> None:
    with pytest.raises(PlanError, match="Round 0 of the plan does not go through a shuffler"):
        read_batch(plan_of(), made.local.server, 0, made.batch(0))
