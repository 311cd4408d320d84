"""What a user's state, silos' signatures, a shuffler's witness and a federation's folder remember still holds."""

import csv
import shutil
import tomllib
from pathlib import Path

import pytest

from ringfence.storage.toml_files import toml_text
from tests.golden import reading, remembered
from tests.golden.expected import EXPECTED, HERE, Copied, Seen, agree, having


@pytest.fixture
def memory(copied: Copied, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A silo, and the state folder of the user who ran it, as they were left; both are in another place now."""
    folder = copied("v1_0_0", "memory") / "memory"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    return folder


MEMORY = EXPECTED["v1_0_0"]["memory"]


def test_a_user_s_registry_watermarks_and_carried_heads_are_read_as_they_were(memory: Path) -> None:
    ledger = reading.ledger_of(memory / "silo")
    agree(remembered.registry_facts(), MEMORY["registry"])
    agree([remembered.head_of(ledger), remembered.marked(ledger)], [MEMORY["head"], MEMORY["marked"]])
    agree(remembered.carried("unix:a-door"), MEMORY["carried"])


def test_a_silo_that_the_registry_knows_goes_on_in_another_place_and_its_records_get_no_second_ledger(
    memory: Path, tmp_path: Path
) -> None:
    ledger = reading.ledger_of(memory / "silo")
    assert remembered.registered_at(ledger) != ledger
    assert remembered.agent_objection(memory / "silo") == ""
    assert remembered.registered_at(ledger) == ledger
    asked = (memory / "requests.jsonl").read_bytes().splitlines()
    assert [reading.describe(answer)["kind"] for answer in reading.ask(memory / "silo", asked)] == ["update"] * 4
    assert remembered.marked(ledger) == remembered.head_of(ledger)[1:]
    assert f"already have a ledger: {ledger}" in remembered.second_ledger_objection(
        memory / "silo", tmp_path / "another"
    )


def test_data_that_was_registered_is_recognised_doubled_and_once_it_was_read_again_without_a_column(
    memory: Path, tmp_path: Path
) -> None:
    """What was registered by a version that kept no sketches by columns gets them when its silo is opened."""
    settings = tomllib.loads((memory / "silo" / "silo.toml").read_text())
    with Path(settings["data_file"]).open(newline="") as file:
        rows = list(csv.reader(file))
    schema = tomllib.loads(Path(settings["schema_file"]).read_text())
    left_out = next(name for name, column in schema["columns"].items() if column["type"] == "numeric")
    del schema["columns"][left_out]
    (tmp_path / "schema.toml").write_text(toml_text(schema))
    place = rows[0].index(left_out)
    made = {"doubled": [*rows, *rows[1:]], "narrower": [[*row[:place], *row[place + 1 :]] for row in rows]}
    for name, content in made.items():
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(content)
    doubled = remembered.second_ledger_objection(memory / "silo", tmp_path / "another", tmp_path / "doubled.csv")
    assert "already have a ledger" in doubled
    assert remembered.agent_objection(memory / "silo") == ""
    assert remembered.agent_objection(memory / "silo") == ""
    narrower = remembered.second_ledger_objection(
        memory / "silo", tmp_path / "another", tmp_path / "narrower.csv", tmp_path / "schema.toml"
    )
    assert "some columns in common" in narrower
    kept, now = (
        [len(known["records"]) for known in facts.values()]
        for facts in (MEMORY["registry"], remembered.registry_facts())
    )
    assert sum(now) == sum(kept) + 1


def test_an_older_copy_of_the_ledger_is_refused_by_its_watermark(memory: Path) -> None:
    shutil.copyfile(memory / "older.ledger", reading.ledger_of(memory / "silo"))
    said = remembered.agent_objection(memory / "silo")
    assert f"it ends with entry {MEMORY['older'][1]}, but once had entry {MEMORY['head'][1]}" in said


def test_without_the_watermark_it_is_refused_until_registered_and_then_by_a_head_that_it_signed(memory: Path) -> None:
    shutil.copyfile(memory / "older.ledger", reading.ledger_of(memory / "silo"))
    shutil.rmtree(memory / "state" / "ringfence" / "heads")
    assert "is missing" in remembered.agent_objection(memory / "silo")
    remembered.register(memory / "silo")
    assert remembered.agent_objection(memory / "silo") == ""
    last = (memory / "requests.jsonl").read_bytes().splitlines()[-1]
    assert reading.describe(reading.ask(memory / "silo", [last])[0])["reason"] == "forgotten"


def test_without_its_registry_the_silo_waits_until_its_operator_registers_it(memory: Path) -> None:
    for lost in ("registry.sqlite", "fingerprint.key"):
        (memory / "state" / "ringfence" / lost).unlink()
    assert "this user's registry does not know it" in remembered.agent_objection(memory / "silo")
    remembered.register(memory / "silo")
    assert remembered.agent_objection(memory / "silo") == ""


def test_a_later_certificate_of_a_ledger_begins_as_the_earlier_one_and_no_other_does() -> None:
    folder = HERE / "v1_0_0" / "certificates"
    earlier, later = folder / "half-finished-earlier.json", folder / "half-finished.json"
    assert remembered.fork(earlier, later) == remembered.fork(later, earlier) == ""
    assert "not of the same ledger" in remembered.fork(earlier, folder / "composed.json")


@pytest.mark.parametrize(("run", "silo", "shown"), [("surveyed", "north", 3), ("shuffled", "west", 3)])
def test_the_heads_in_a_run_s_transcript_are_entries_of_the_silo_s_certificate(
    seen: Seen, run: str, silo: str, shown: int
) -> None:
    certificate = HERE / "v1_0_0" / "certificates" / f"{run}-{silo}.json"
    found = remembered.heads_shown(certificate, seen("v1_0_0") / "runs" / run / "server")
    assert found == {"heads": shown, "elsewhere": 0, "unsigned": 0}


# Shufflers


def test_a_shuffler_is_served_where_its_witness_is_and_nowhere_else(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied("v1_0_0", "runs/shuffled") / "runs" / "shuffled"
    assert "which records how far it came, is missing" in remembered.shuffler_objection(folder / "shuffler")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    assert remembered.shuffler_objection(folder / "shuffler") == ""
    [witness] = (folder / "state" / "ringfence" / "shufflers").iterdir()
    witness.write_text("2")
    assert "it has made 1 decisions" in remembered.shuffler_objection(folder / "shuffler")


# Kits


@having("kit")
def test_a_silo_s_startup_kit_is_still_strict_enough_and_its_federation_renews_it(copied: Copied, version: str) -> None:
    expected = EXPECTED[version]["kit"]
    kit = copied(version, "kit") / "kit"
    assert remembered.kit_faults(kit / "silos" / "north", kit / "silo") == ""
    assert remembered.administrator(kit / "admin") == expected["administrator"]
    assert remembered.federation_facts(kit / "federation") == expected["federation"]
    assert remembered.renewed(kit / "federation", kit / "silos" / "north", kit / "silo") == ""
    (kit / "silos" / "north" / "local" / "resources.json").write_text("{}")
    assert "Run `ringfence silo join` again" in remembered.kit_faults(kit / "silos" / "north", kit / "silo")
