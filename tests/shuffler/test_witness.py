"""Ended plans leave nothing behind, and an older copy of a shuffler's folder gives no second batch."""

import itertools
import json
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ringfence.errors import DoorError, ShufflerError
from ringfence.shuffler.shuffler import Receipt, Shuffler, ShufflerRefusal
from ringfence.shuffler.store import Store
from ringfence.shuffler.witness import Witness
from tests.shuffler.depositors import Depositors, deposit_all, depositors, make_shuffler, on_the_disk, release, set_up
from tests.shuffler.serving import Served, run, serving


def opened(folder: Path, *, seconds: float = 3600.0) -> Shuffler:
    """Open a folder as its service does."""
    store = Store(folder)
    shuffler = Shuffler(store, seconds=seconds, witness=Witness(store))
    try:
        shuffler.settle()
    except ShufflerError:
        shuffler.close()
        raise
    return shuffler


def stop(served: Served) -> None:
    served.process.send_signal(signal.SIGTERM)
    served.process.wait()


# -- the end of a plan --


def test_a_plan_that_was_ended_leaves_neither_batches_nor_messages_on_the_disk(folder: Path) -> None:
    shuffler, silos = make_shuffler(folder, shares=100)  # a batch of several pages
    with shuffler:
        sealed = {(name, round): silos.sealed(name, round) for name in silos.names for round in (0, 1)}
        for (name, round), messages in sealed.items():
            if (name, round) != (silos.names[2], 1):  # round 1 waits, and stays below the number asked
                shuffler.deposit(silos.update(name, round, messages))
        batch = release(shuffler, silos)
        before = on_the_disk(folder)
        middle = batch[len(batch) // 2 :][:100]
        assert middle in before
        assert any(message[:40] in before for message in sealed[silos.names[0], 1])
        shuffler.end(silos.plan.digest()[:12])
        after = on_the_disk(folder)
    assert middle not in after
    assert not any(message[:40] in after for message in itertools.chain(*sealed.values()))


def test_a_plan_that_was_ended_gives_and_takes_nothing_and_stays_ended_when_it_is_added_again(folder: Path) -> None:
    shuffler, silos = make_shuffler(folder)
    digest = silos.plan.digest()
    updates = [silos.update(name, round) for round in (0, 1) for name in silos.names]
    with shuffler:
        for update in updates[:3]:
            shuffler.deposit(update)
        release(shuffler, silos)
        with Shuffler.open(folder) as operator:  # another process, while this one serves
            assert operator.end(digest) == digest
            operator.add(silos.plan)
            assert operator.end(digest) == digest
        assert [shuffler.deposit(update) for update in updates] == [ShufflerRefusal.PLAN_ENDED] * 6
        assert [shuffler.release(digest, round) for round in (0, 1)] == [ShufflerRefusal.PLAN_ENDED] * 2
        [plan] = shuffler.status()["plans"]
        assert (plan["ended"], plan["rounds"]) == (True, [{"round": 0, "silos": 3, "state": "deleted"}])
        assert shuffler.longest_deposit() == 0


def test_ending_one_plan_leaves_the_others(folder: Path) -> None:
    shuffler, first = make_shuffler(folder)
    with shuffler:
        second = depositors(shuffler.public_key)
        shuffler.add(second.plan)
        for silos in (first, second):
            deposit_all(shuffler, silos)
        batch = release(shuffler, second)
        shuffler.end(first.plan.digest())
        assert release(shuffler, second) == batch
        assert shuffler.deposit(second.update(second.names[0], 1)) is Receipt.STORED


def test_an_operator_ends_a_plan_by_its_file_or_digest_while_the_shuffler_is_served(folder: Path) -> None:
    silos = set_up(folder)
    file, digest = folder.with_name("plan.json"), silos.plan.digest()
    file.write_bytes(silos.plan.content)
    with serving(folder) as served:
        client = served.client()
        for name in silos.names:
            client.deposit(silos.update(name))
        assert client.batch(digest, 0) is not None
        assert json.loads(run("end", folder, file, "--json")) == {"ended": digest}
        assert digest in run("end", folder, digest[:8].upper())
        with pytest.raises(DoorError, match="has ended this plan"):
            client.batch(digest, 0)
    assert "Ended." in run("status", folder)
    for wrong in (digest[:7], "f" * 64, "nothing.json"):
        with pytest.raises(ShufflerError, match="is not the digest"):
            run("end", folder, wrong)


# -- an older copy --


def two_of_three(shuffler: Shuffler, silos: Depositors, round: int = 0) -> bytes:
    """Let a round out with two silos; the third comes too late."""
    for name in silos.names[:2]:
        shuffler.deposit(silos.update(name, round))
    batch = release(shuffler, silos, round)
    assert shuffler.deposit(silos.update(silos.names[2], round)) is ShufflerRefusal.ROUND_RELEASED
    return batch


def test_an_older_copy_of_the_database_gives_no_second_batch(folder: Path) -> None:
    silos = set_up(folder)
    with opened(folder, seconds=0.0) as first:
        two_of_three(first, silos)
    shutil.copy(folder / "shuffler.db", folder.with_name("older.db"))
    with opened(folder, seconds=0.0) as second:
        two_of_three(second, silos, 1)
    newest = (folder / "shuffler.db").read_bytes()
    shutil.copy(folder.with_name("older.db"), folder / "shuffler.db")
    with pytest.raises(ShufflerError, match=r"older copy: it has made 1 decisions, but .* knows of 2"):
        opened(folder)
    (folder / "shuffler.db").write_bytes(newest)
    with opened(folder) as again:
        assert silos.read(release(again, silos, 1))[0].silos == 2


def test_a_shuffler_whose_database_is_put_back_while_it_serves_lets_nothing_out(folder: Path) -> None:
    silos = set_up(folder)
    with opened(folder, seconds=0.0) as serving_it:
        with closing(sqlite3.connect(folder / "shuffler.db")) as looking, closing(sqlite3.connect(":memory:")) as older:
            looking.backup(older)
            two_of_three(serving_it, silos)
            older.backup(looking)  # into the same file, as `cp` does
        with pytest.raises(ShufflerError, match="older copy"):
            serving_it.release(silos.plan.digest(), 0)


def test_a_folder_that_was_served_is_not_served_where_its_witness_is_not(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(folder)
    opened(folder).close()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(ShufflerError, match="was served before"):
        opened(folder)
    run("status", folder)  # whoever only looks needs no witness


def test_a_restored_copy_is_served_again_with_all_its_plans_ended_and_no_copy_passes_for_it(folder: Path) -> None:
    silos = set_up(folder)
    copies = []
    with opened(folder, seconds=0.0) as first:
        for round in (0, 1, 2):
            first.close()
            copies.append((folder / "shuffler.db").read_bytes())
            first = opened(folder, seconds=0.0)  # noqa: PLW2901
            two_of_three(first, silos, round)
        first.close()
    (folder / "shuffler.db").write_bytes(copies[0])
    assert json.loads(run("restore", folder, "--json")) == {"ended": [silos.plan.digest()]}
    with opened(folder) as restored:
        assert restored.release(silos.plan.digest(), 1) is ShufflerRefusal.PLAN_ENDED
        assert restored.deposit(silos.update(silos.names[2], 1)) is ShufflerRefusal.PLAN_ENDED
        new = depositors(restored.public_key)
        restored.add(new.plan)
        deposit_all(restored, new)
        assert new.read(release(restored, new))[0].silos == 3
    for copy in copies:
        (folder / "shuffler.db").write_bytes(copy)
        with pytest.raises(ShufflerError, match="older copy"):
            opened(folder)


def test_a_server_cannot_fetch_a_second_batch_from_a_shuffler_that_was_put_back(folder: Path, tmp_path: Path) -> None:
    """Real processes: the batch without the third silo is out, and the operator puts yesterday's folder back."""
    silos = set_up(folder)
    with serving(folder, 0.0) as served:
        stop(served)
    shutil.copytree(folder, tmp_path / "yesterday")
    updates = [silos.update(name) for name in silos.names]
    with serving(folder, 0.0) as served:
        for update in updates[:2]:
            served.client().deposit(update)
        assert served.client().batch(silos.plan.digest(), 0) is not None
        stop(served)
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "yesterday", folder)
    with serving(folder, 0.0) as served:
        assert served.process.wait(timeout=60) == 1
        assert "It would mix second batches" in served.output()


@pytest.mark.parametrize("content", [b"", b"-1", b"many", b"\xff\xfe"])
def test_a_witness_that_cannot_be_read_lets_nothing_out(folder: Path, own_state: Path, content: bytes) -> None:
    set_up(folder)
    opened(folder).close()
    [file] = (own_state / "ringfence" / "shufflers").iterdir()
    file.write_bytes(content)
    with pytest.raises(ShufflerError, match="does not say how far"):
        opened(folder)
