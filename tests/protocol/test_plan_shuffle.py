"""What a plan that trusts a shuffler needs to be one, and how files of public keys are read."""

from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import MessageError, PlanError
from ringfence.protocol.shuffle import Batch, load_keys
from tests.protocol.plan_document import ONE_PASS, SHUFFLED, SURVEY, Edits, edited, parse, refusal

SHUFFLE = SHUFFLED["shuffle"]


def test_such_a_plan_says_whom_it_trusts_and_what_a_silo_s_numbers_are() -> None:
    plan = parse(edited(SHUFFLED))
    assert plan.trust == "shuffler"
    assert plan.numbers == plan.dimension + 1
    assert parse(edited({})).trust == "nobody"


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ({"trust": "nobody"}, "if, and only if, it trusts a shuffler"),
        ({"shuffle": None}, "if, and only if, it trusts a shuffler"),
        ({"trust": "server"}, "trust"),
        (SURVEY, "without correlated noise or a survey"),
        ({"sampling": "poisson"}, "full and one-pass sampling"),
        ({"sampling": "fixed"}, "full and one-pass sampling"),
        ({"participation": {"probability": 0.5}}, "quorum must be at least 2"),
        ({"participation": {"silos": 1}}, "quorum must be at least 2"),
        ({"shuffle.quorum": 3}, "quorum must be at least 2"),
        ({"shuffle.quorum": 1}, "quorum"),
        ({"silos.0.key": None}, "'north' needs a key"),
        ({"silos.1.alone_epsilon": None}, "'süd' needs a key and the epsilon"),
        ({"silos.0.weight": 0.5, "silos.1.weight": 0.5}, "weigh as many records"),
        ({"silos.0.sigma": 0.2}, "noise of silo 'north' is not that of its coins"),
        ({"silos.1.sigma": 0.1}, "noise of silo 'süd' is not that of its coins"),
        ({"shuffle.width": 1}, "do not fit the width"),
    ],
    ids=str,
)
def test_a_plan_that_would_not_keep_its_promise_is_refused(edits: Edits, says: str) -> None:
    assert says in refusal(edited(SHUFFLED | edits))


@pytest.mark.parametrize("edits", [{"silos.0.key": "a0" * 32}, {"silos.1.alone_epsilon": 3.0}], ids=str)
def test_keys_and_the_epsilon_alone_belong_to_plans_that_trust_a_shuffler(edits: Edits) -> None:
    assert "belong to plans that trust a shuffler" in refusal(edited(edits))


def test_correlated_noise_does_not_go_through_a_shuffler() -> None:
    batches = {f"silos.{silo}.batch": 10 for silo in range(2)}
    edits = SHUFFLED | ONE_PASS | batches | {"correlation": 0.5}
    assert "without correlated noise" in refusal(edited(edits))


def test_counts_fill_the_width_of_their_shares_to_the_last_one_and_no_further() -> None:
    """100 records of 6 levels and so many coins: 100 · 655 = 65,500 < 256² and 100 · 656 > it."""
    for coins, fits in ((649, True), (650, False)):
        factor = (coins / 25) ** 0.5
        edits = SHUFFLED | {"shuffle.coins": coins}
        edits |= {f"silos.{silo}.sigma": SHUFFLED[f"silos.{silo}"]["sigma"] * factor for silo in range(2)}
        if fits:
            assert parse(edited(edits)).shuffle is not None
        else:
            assert "do not fit the width" in refusal(edited(edits))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[(field, 0) for field in ("levels", "coins", "shares", "block", "width", "slack")],
        *[(field, 2.5) for field in ("levels", "coins", "shares", "block", "width", "quorum")],
        *[(field, key) for field in ("server_key", "shuffler_key") for key in ("", "5e" * 31, "5E" * 32, 7, None)],
        ("width", 8),
        ("shares", 1),
        ("slack", 1.0),
        ("levels", 2**20 + 1),
        ("coins", 2**30 + 1),
    ],
    ids=str,
)
def test_what_is_said_about_the_shuffler_is_checked_field_by_field(field: str, value: Any) -> None:
    assert f"shuffle.{field}" in refusal(edited(SHUFFLED | {f"shuffle.{field}": value}))


def test_one_key_for_server_and_shuffler_would_let_its_holder_read_everything() -> None:
    assert "two keys" in refusal(edited(SHUFFLED | {"shuffle.shuffler_key": SHUFFLE["server_key"]}))


def test_more_blocks_than_a_message_can_number_are_refused() -> None:
    town = {"type": "categorical", "categories": [str(number) for number in range(9_400)]}
    edits = SHUFFLED | {f"data.columns.town-{number}": town for number in range(7)}  # 65,800 weights
    assert "more blocks of weights than a message can number" in refusal(edited(edits | {"shuffle.block": 1}))
    assert parse(edited(edits | {"shuffle.block": 2})).dimension > 2**16


# -- files --


def test_everybody_s_keys_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f'server = "{"5e" * 32}"\nshuffler = "{"5f" * 32}"\n[silos]\nnorth = "{"a0" * 32}"\n')
    keys = load_keys(path)
    assert (keys.server, keys.shuffler, keys.silos) == ("5e" * 32, "5f" * 32, {"north": "a0" * 32})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"server = ", "not valid TOML"),
        (b"\xff", "not valid TOML"),
        (b"", "does not hold everybody's public keys"),
        (b'server = "12"\nshuffler = "34"\n[silos]\n', "does not hold everybody's public keys"),
        (None, "could not be read"),
    ],
)
def test_a_file_that_holds_no_keys_is_refused_in_a_sentence(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "keys.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PlanError, match=says):
        load_keys(path)


def test_a_batch_is_canonical_bytes_and_nothing_of_it_is_quoted() -> None:
    batch = Batch(plan="0" * 64, round=3, silos=2, messages="c2VjcmV0")
    assert Batch.from_bytes(batch.to_bytes()) == batch
    for content in (batch.to_bytes()[:-1], batch.to_bytes().replace(b"c2VjcmV0", b"c2VjcmV="), b"secret"):
        with pytest.raises(MessageError) as refused:
            Batch.from_bytes(content)
        assert "secret" not in str(refused.value)
        assert "c2VjcmV" not in str(refused.value)
