"""What a shuffler's folder gives away, before and after a release: neither whose message is whose nor who was there."""

import base64
import itertools
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from scipy.stats import binom

from ringfence.errors import ShufflerError
from ringfence.protocol.channels.shuffler import SEALED_EXTRA
from ringfence.shuffler.shuffler import Receipt, Shuffler
from ringfence.shuffler.store import Store
from tests.shuffler.depositors import Setting, make_shuffler, on_the_disk, release

# -- what can be learned --


def orders_are_uniform(orders: Sequence[tuple[int, ...]]) -> None:
    """Check each order's count by its exact binomial distribution; false alarms at most 3·10⁻⁷, by the union bound."""
    counts = Counter(orders)
    possible = list(itertools.permutations(range(len(orders[0]))))
    level = 3e-7 / len(possible) / 2
    low, high = binom.ppf(level, len(orders), 1 / len(possible)), binom.isf(level, len(orders), 1 / len(possible))
    assert all(low <= counts[order] <= high for order in possible), counts


def test_every_order_of_a_batch_is_as_likely_whatever_the_order_of_deposits(folder: Path) -> None:
    """Likewise the order in which the database has the messages while they wait.

    Two silos of two messages have 24 orders. They are tallied by how the messages came in, half of the time one silo
    first and half the other, and by whose they are. Three tallies, false alarms 10⁻⁶ at most in all; a batch in which
    each silo's messages stay together, or come as they came in, does not pass.
    """
    rounds = 400
    shuffler, silos = make_shuffler(folder, silos=2, rounds=rounds)
    size = silos.shuffle.message_bytes + SEALED_EXTRA
    pooled, by_arrival, by_silo = [], [], []
    with shuffler, closing(sqlite3.connect(folder / "shuffler.db")) as looking:
        for round in range(rounds):
            messages = {name: [os.urandom(size), os.urandom(size)] for name in silos.names}  # as good as sealed ones
            arriving = sorted(silos.names, reverse=round % 2 == 1)
            for name in arriving:
                assert shuffler.deposit(silos.update(name, round, messages[name])) is Receipt.STORED
            came = [message for name in arriving for message in messages[name]]
            owned = [message for name in silos.names for message in messages[name]]
            waiting = [message for (message,) in looking.execute("SELECT message FROM pool")]
            batch = silos.read(release(shuffler, silos, round))[1]
            pooled.append(tuple(map(came.index, waiting)))
            by_arrival.append(tuple(map(came.index, batch)))
            by_silo.append(tuple(map(owned.index, batch)))
    for orders in (pooled, by_arrival, by_silo):
        orders_are_uniform(orders)


def test_the_database_holds_no_more_than_the_round_needs(setting: Setting, folder: Path) -> None:
    shuffler, silos = setting
    for name in silos.names[:2]:
        shuffler.deposit(silos.update(name))
    looking = sqlite3.connect(folder / "shuffler.db")
    columns = {
        table: [row[1] for row in looking.execute(f"PRAGMA table_info({table})")]
        for (table,) in looking.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    }
    assert columns == {
        "plans": ["digest", "content", "longest"],
        "rounds": ["number", "plan", "round", "opened", "silos", "batch"],
        "deposits": ["number", "silo", "content"],
        "pool": ["number", "place", "message"],
        "decisions": ["number", "witnessed"],
    }
    for table in ("deposits", "pool"):  # no hidden number that counts rows as they come
        with pytest.raises(sqlite3.OperationalError, match="no such column: rowid"):
            looking.execute(f"SELECT rowid FROM {table}")
    places = [place for (place,) in looking.execute("SELECT place FROM pool")]
    assert len(set(places)) == 4
    assert {len(place) for place in places} == {16}
    looking.close()


def test_a_deposit_leaves_neither_the_silo_s_name_nor_its_signature_on_the_disk(setting: Setting, folder: Path) -> None:
    """The plan names its silos, and is there from the beginning; deposits add no name to it."""
    shuffler, silos = setting
    shuffler.close()
    before = on_the_disk(folder)
    with Shuffler.open(folder) as reopened:
        for name in silos.names:
            update = silos.update(name)
            assert reopened.deposit(update) is Receipt.STORED
            after = on_the_disk(folder)
            assert after != before
            assert after.count(name.encode()) == before.count(name.encode())
            document = json.loads(update)
            for trace in (document["signature"], document["envelope"][:40]):
                assert trace.encode() not in after
            assert bytes.fromhex(document["signature"]) not in after
            assert base64.b64decode(document["envelope"])[:40] not in after


def test_who_has_deposited_cannot_be_computed_without_the_shuffler_s_key(folder: Path) -> None:
    shuffler, silos = make_shuffler(folder)
    other, _ = make_shuffler(folder.with_name("other"))
    with shuffler, other:
        name = silos.names[0]
        assert shuffler._store._hash(1, name) != other._store._hash(1, name)
        assert shuffler._store._hash(1, name) != shuffler._store._hash(2, name), "nor followed from round to round"


def test_after_the_release_only_the_batch_is_left_of_a_round(folder: Path) -> None:
    """Neither places nor messages as they came in, also not in what SQLite has freed, nor in its log."""
    shuffler, silos = make_shuffler(folder, shares=60, silos=5)
    with shuffler:
        sealed = {name: silos.sealed(name) for name in silos.names}
        for name, messages in sealed.items():
            shuffler.deposit(silos.update(name, 0, messages))
        looking = sqlite3.connect(folder / "shuffler.db")
        places = [place for (place,) in looking.execute("SELECT place FROM pool")]
        hashes = [value for row in looking.execute("SELECT silo, content FROM deposits") for value in row]
        looking.close()
        waiting = on_the_disk(folder)
        traces = [*places, *hashes, *(message[:40] for messages in sealed.values() for message in messages)]
        assert all(trace in waiting for trace in traces)
        release(shuffler, silos)
        left = on_the_disk(folder)
        assert sum(trace in left for trace in traces) == 0
        assert shuffler.status()["plans"][0]["rounds"] == [{"round": 0, "silos": 5, "state": "released"}]


# -- the folder --


def test_a_folder_is_closed_to_others_and_made_once(folder: Path) -> None:
    Store.create(folder).close()
    assert {path.name for path in folder.iterdir()} == {"shuffler.key", "shuffler.token", "shuffler.db"}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
    with pytest.raises(ShufflerError, match="already exists"):
        Store.create(folder)


def test_a_folder_s_files_are_needed_and_checked(folder: Path) -> None:
    with pytest.raises(ShufflerError, match="`ringfence shuffler init` makes one"):
        Shuffler.open(folder)
    with Store.create(folder) as store:
        assert len(store.token()) == 64
        (folder / "shuffler.token").write_text("short")
        with pytest.raises(ShufflerError, match="no token of 32 characters"):
            store.token()
    key = (folder / "shuffler.key").read_text()
    for nonsense in ("", "not hexadecimal", key[:-2]):
        (folder / "shuffler.key").write_text(nonsense)
        with pytest.raises(ShufflerError, match="not a key of 32 bytes"):
            Shuffler.open(folder)
    (folder / "shuffler.key").write_text(key)
    (folder / "shuffler.db").unlink()
    with pytest.raises(ShufflerError, match="no database"):
        Shuffler.open(folder)
    assert not (folder / "shuffler.db").exists(), "a fresh database would let every round be mixed again"
