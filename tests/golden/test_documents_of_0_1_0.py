"""What 0.1.0 wrote is read, continued and accounted for as 0.1.0 did; `expected.json` says how that was.

The documents are copied before they are opened: nothing here may change them.
"""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.golden import reading

GOLDEN = Path(__file__).parent / "v0_1_0"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
SILOS, RUNS, PLANS = EXPECTED["silos"], EXPECTED["runs"], EXPECTED["plans"]
STOPPED = [name for name, run in RUNS.items() if not run["transcript"]["finished"]]
SHUFFLED = [name for name, run in RUNS.items() if "shuffler" in run]

EXACT, SAMPLED = 1e-12, 1e-9
"""How far, relatively, numbers may be from those of 0.1.0.

Sampled releases are composed by Fourier transforms, whose last digits depend on the processor: what they round off,
about 1e-16, is more in proportion to a small delta.
"""


def agree(found: Any, expected: Any, place: str = "") -> None:
    """Compare plain data: numbers up to rounding, all else exactly."""
    found = json.loads(json.dumps(found))
    text = json.dumps(expected)
    _agree(found, expected, SAMPLED if '"fixed-size"' in text or '"poisson"' in text else EXACT, place)


def _agree(found: Any, expected: Any, tolerance: float, place: str) -> None:
    if isinstance(expected, dict):
        assert isinstance(found, dict), place
        assert found.keys() == expected.keys(), place
        for name, value in expected.items():
            _agree(found[name], value, tolerance, f"{place}/{name}")
    elif isinstance(expected, list):
        assert isinstance(found, list), place
        assert len(found) == len(expected), place
        for number, value in enumerate(expected):
            _agree(found[number], value, tolerance, f"{place}/{number}")
    elif isinstance(expected, float):
        assert isinstance(found, float | int), place
        assert math.isclose(found, expected, rel_tol=tolerance), f"{place}: {found!r} is not {expected!r}"
    else:
        assert found == expected, place


def without_hashes(account: dict[str, Any]) -> dict[str, Any]:
    """Return what an account comes to, whatever noise and times are in it."""
    plans = {
        digest: {**plan, "answered": sorted(plan["answered"], key=int)} for digest, plan in account["plans"].items()
    }
    return {**{name: account[name] for name in ("silo", "budget", "spent", "reserved")}, "plans": plans}


def requests_of(silo: str) -> list[bytes]:
    return (GOLDEN / "requests" / f"{silo}.jsonl").read_bytes().splitlines()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to look at."""
    return reading.copy(GOLDEN, tmp_path_factory.mktemp("seen"))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy to go on with."""
    return reading.copy(GOLDEN, tmp_path / "golden")


def test_no_golden_file_was_ever_changed() -> None:
    lines = (GOLDEN.parent / "v0_1_0.sha256").read_text().splitlines()
    stated = {path: digest for digest, path in (line.split("  ", 1) for line in lines)}
    found = {
        path.relative_to(GOLDEN).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in GOLDEN.rglob("*")
        if path.is_file()
    }
    assert found == stated


# Silos


@pytest.mark.parametrize("name", SILOS)
def test_a_ledger_holds_the_same_entries_events_and_epsilons(seen: Path, name: str) -> None:
    agree(reading.account_of(reading.ledger_of(seen / "silos" / name)), SILOS[name]["account"])


@pytest.mark.parametrize("path", EXPECTED["ledgers"])
def test_a_ledger_of_ringfence_train_holds_the_same_entries_events_and_epsilons(seen: Path, path: str) -> None:
    agree(reading.account_of(seen / path), EXPECTED["ledgers"][path])


@pytest.mark.parametrize("name", SILOS)
def test_a_silo_s_folder_opens_with_its_records_keys_and_waiting_plans(seen: Path, name: str) -> None:
    facts = reading.silo_facts(seen / "silos" / name)
    agree(facts, {key: value for key, value in SILOS[name].items() if key in facts})
    assert facts.keys() <= SILOS[name].keys()


@pytest.mark.parametrize("name", SILOS)
def test_answered_rounds_come_back_byte_for_byte_and_cost_nothing(copied: Path, name: str) -> None:
    folder, expected = copied / "silos" / name, SILOS[name]
    asked = [pair for pair in zip(requests_of(name), expected["answers"], strict=True) if "stored" in pair[1]]
    answers = reading.ask(folder, [request for request, _ in asked])
    assert [reading.sha256(answer) for answer in answers] == [answer["stored"] for _, answer in asked]
    agree(reading.account_of(reading.ledger_of(folder)), expected["account"])


@pytest.mark.parametrize("name", SILOS)
def test_a_silo_goes_on_where_it_stopped(copied: Path, name: str) -> None:
    folder, expected = copied / "silos" / name, SILOS[name]
    answers = reading.ask(folder, requests_of(name))
    for answer, wanted in zip(answers, expected["answers"], strict=True):
        stored = wanted.get("stored")
        assert reading.describe(answer) == {key: value for key, value in wanted.items() if key != "stored"}
        assert stored in (None, reading.sha256(answer))
    again = reading.ask(folder, requests_of(name))
    assert [a for a in again if reading.describe(a)["kind"] != "refusal"] == [
        a for a in answers if reading.describe(a)["kind"] != "refusal"
    ]
    after = reading.account_of(reading.ledger_of(folder))
    agree(without_hashes(after), expected["afterwards"])
    before = expected["account"]["entries"]
    assert after["entries"][: len(before)] == before


def test_a_round_that_was_lost_stays_lost_and_the_next_is_answered(copied: Path) -> None:
    said = [reading.describe(a) for a in reading.ask(copied / "silos" / "lost-rounds", requests_of("lost-rounds"))]
    assert [answer.get("reason", answer["kind"]) for answer in said] == [
        "update", "round-lost", "update", "round-lost", "update", "update",
    ]  # fmt: skip


def test_a_revoked_plan_stays_revoked_also_in_its_answered_rounds(copied: Path) -> None:
    answers = reading.ask(copied / "silos" / "revoked", requests_of("revoked"))
    assert [reading.describe(answer).get("reason") for answer in answers] == ["revoked"] * len(answers)
    assert len(SILOS["revoked"]["account"]["plans"]) == 1
    [plan] = SILOS["revoked"]["account"]["plans"].values()
    assert plan["answered"].keys() == {"0", "1"}


def test_other_weights_for_an_answered_round_are_still_refused(copied: Path) -> None:
    asked = json.loads(requests_of("half-finished")[0])
    asked["weights"] = json.loads(requests_of("half-finished")[1])["weights"]
    [answer] = reading.ask(copied / "silos" / "half-finished", [json.dumps(asked).encode()])
    assert reading.describe(answer)["reason"] == "round-answered"


@pytest.mark.parametrize("name", ["composed", "phased", "correlated", "half-finished", "surveyed-one-pass", "new"])
def test_a_silo_that_went_on_can_be_certified(copied: Path, tmp_path: Path, name: str) -> None:
    reading.ask(copied / "silos" / name, requests_of(name))
    proved = reading.certify(copied / "silos" / name, tmp_path / "certificate.json")
    spent = SILOS[name]["afterwards"]["spent"]["epsilon"]
    assert math.isclose(proved["epsilon"], spent["shuffled"], rel_tol=SAMPLED)
    assert math.isclose(proved["alone_epsilon"], spent["alone"], rel_tol=SAMPLED)


# Plans, events, messages, certificates


@pytest.mark.parametrize("path", PLANS)
def test_a_plan_has_the_same_name_events_and_epsilons(path: str) -> None:
    agree(reading.plan_facts(GOLDEN / path), PLANS[path])
    assert PLANS[path]["digest"] == reading.sha256((GOLDEN / path).read_bytes())


@pytest.mark.parametrize("name", EXPECTED["events"])
def test_an_event_is_read_and_costs_the_same(name: str) -> None:
    content, expected = (GOLDEN / "events" / name).read_bytes(), EXPECTED["events"][name]
    assert reading.event_again(content) == json.loads(content) == expected["event"]
    agree({"event": expected["event"], "epsilon": reading.event_cost(content, 1e-6)}, expected)


@pytest.mark.parametrize("name", EXPECTED["messages"])
def test_a_message_is_read_and_written_again_as_the_same_bytes(name: str) -> None:
    content, expected = (GOLDEN / "messages" / name).read_bytes(), EXPECTED["messages"][name]
    assert reading.message_again(content) == (expected["kind"], content)
    assert reading.sha256(content) == expected["sha256"]
    if "vector" in expected:
        assert reading.vector_in(content) == expected["vector"]
    if expected["kind"] == "refusal":
        assert reading.describe(content)["reason"] == name.removeprefix("refusal-").removesuffix(".json")


@pytest.mark.parametrize("name", EXPECTED["certificates"])
def test_a_certificate_is_still_valid_and_proves_the_same(name: str) -> None:
    expected = EXPECTED["certificates"][name]
    path = GOLDEN / "certificates" / name
    found, named = reading.certificate_facts(path), reading.certificate_facts(path, expected["public_key"])
    sampled = SAMPLED if name == "composed.json" else EXACT
    _agree(json.loads(json.dumps(found)), expected, sampled, name)
    assert named == {**found, "key_was_given": True}


# Runs


@pytest.mark.parametrize("name", RUNS)
def test_a_transcript_says_how_far_its_run_has_come(seen: Path, name: str) -> None:
    agree(reading.transcript_facts(seen / "runs" / name / "server"), RUNS[name]["transcript"])
    content = (GOLDEN / "runs" / name / "server" / "transcript.jsonl").read_bytes()
    assert reading.sha256(content) == RUNS[name]["file"]


@pytest.mark.parametrize("name", RUNS)
def test_the_silos_of_a_run_hold_the_same_entries_events_and_epsilons(seen: Path, name: str) -> None:
    for silo, expected in RUNS[name]["silos"].items():
        folder = seen / "runs" / name / "silos" / silo
        agree({**reading.silo_facts(folder), "account": reading.account_of(reading.ledger_of(folder))}, expected, silo)


def test_a_finished_run_is_replayed_to_the_same_model(seen: Path) -> None:
    weights = reading.replayed_weights(seen / "runs" / "finished" / "server")
    agree(weights, RUNS["finished"]["weights"])
    agree(weights, EXPECTED["models"]["conducted.json"]["weights"])


@pytest.mark.parametrize("name", STOPPED)
def test_a_run_that_was_stopped_goes_on_to_its_end_and_asks_nobody_for_what_it_holds(copied: Path, name: str) -> None:
    folder, expected = copied / "runs" / name, RUNS[name]
    written = (folder / "server" / "transcript.jsonl").read_bytes()
    whole = written[: written.rindex(b"\n") + 1]  # a torn last line is dropped
    found = reading.resume(folder)
    wanted = expected["resumed"]
    assert [[round, silo] for round, silo, _ in found["asked"]] == [[round, silo] for round, silo, _ in wanted["asked"]]
    for (_, _, answer), (_, _, stored) in zip(found["asked"], wanted["asked"], strict=True):
        assert stored in (None, answer), "an answer that the ledger holds came back as another"
    assert found["deposits"] == wanted["deposits"]
    assert sorted(found["batches"], key=int) == wanted["batches"]
    for round, batch in expected.get("batches", {}).items():
        assert found["batches"].get(round, batch["sha256"]) == batch["sha256"], "a round was mixed twice"
    assert (folder / "server" / "transcript.jsonl").read_bytes().startswith(whole)
    for silo, afterwards in wanted["afterwards"].items():
        account = reading.account_of(reading.ledger_of(folder / "silos" / silo))
        agree(without_hashes(account), afterwards, silo)
        before = expected["silos"][silo]["account"]["entries"]
        assert account["entries"][: len(before)] == before
    facts = reading.transcript_facts(folder / "server")
    assert facts["finished"]
    assert facts["answered"][: len(expected["transcript"]["answered"])] == expected["transcript"]["answered"]
    assert all(map(math.isfinite, found["weights"]))
    assert reading.replayed_weights(folder / "server") == found["weights"]
    again = reading.resume(folder)
    assert again == {"asked": [], "deposits": [], "batches": {}, "weights": found["weights"]}


@pytest.mark.parametrize("name", SHUFFLED)
def test_a_shuffler_knows_its_rounds_and_hands_out_the_same_batches_again(seen: Path, name: str) -> None:
    folder, expected = seen / "runs" / name, RUNS[name]
    status = reading.shuffler_facts(folder / "shuffler")
    agree(status, expected["shuffler"])
    agree(reading.keys_of(folder / "keys.toml"), expected["keys"])
    [plan] = status["plans"]
    for round, batch in expected["batches"].items():
        content = reading.handed_out(folder / "shuffler", plan["plan"], int(round))
        assert reading.sha256(content) == batch["sha256"]
        assert reading.opened_batch(folder / "plan.json", folder / "server.key", content) == batch["totals"]
    assert {entry["state"] for entry in plan["rounds"]} >= {"released"}


def test_one_shuffler_was_stopped_with_deposits_in_an_open_round() -> None:
    [plan] = RUNS["shuffled"]["shuffler"]["plans"]
    assert [(entry["silos"], entry["state"]) for entry in plan["rounds"]] == [
        (3, "released"), (3, "released"), (2, "waiting"),
    ]  # fmt: skip


# Models, sweeps, kits


@pytest.mark.parametrize("name", EXPECTED["models"])
def test_a_model_predicts_and_states_the_same(name: str) -> None:
    agree(reading.model_facts(GOLDEN / "models" / name, GOLDEN / "data" / "new.csv"), EXPECTED["models"][name])


def test_training_again_counts_what_0_1_0_has_spent(copied: Path) -> None:
    silos = ("north", "south", "west")
    ledgers = copied / "models" / "ledgers"
    files = [copied / "data" / f"{silo}.csv" for silo in silos]
    # The ledgers are of trained parts of the files: their silos' names and budgets count, not their sizes.
    totals = reading.train_again(files, copied / "data" / "schema-ill.toml", "ill", ledgers)
    for silo in silos:
        before = EXPECTED["ledgers"][f"models/ledgers/{silo}.ledger"]
        after = reading.account_of(ledgers / f"{silo}.ledger")
        assert after["entries"][: len(before["entries"])] == before["entries"]
        assert totals[silo] > before["spent"]["epsilon"]["shuffled"] > 0.5
        assert math.isclose(after["spent"]["epsilon"]["shuffled"], totals[silo], rel_tol=SAMPLED)
        assert [event for event in before["spent"]["events"] if event not in after["spent"]["events"]] == []


def test_a_sweep_keeps_its_rows_and_runs_what_is_missing(copied: Path) -> None:
    path, expected = copied / "sweep" / "sweep.jsonl", EXPECTED["sweep"]
    found = reading.sweep_facts(path)
    agree(found, {name: expected[name] for name in found})
    agree(reading.finish_sweep(path), expected["missing"])
    rows = reading.sweep_facts(path)["rows"]
    agree(rows[: len(expected["rows"])], expected["rows"])
    assert len(rows) == len(expected["rows"]) + len(expected["missing"])
    assert reading.finish_sweep(path) == []


def test_a_silo_s_startup_kit_is_still_found_strict_enough_and_names_its_folder(copied: Path) -> None:
    kit = copied / "kit"
    assert reading.kit_faults(kit / "silos" / "north", kit / "silo") == ""
    assert "another silo's folder" in reading.kit_faults(kit / "silos" / "north", copied / "silos" / "new")
    assert reading.administrator(kit / "admin") == EXPECTED["kit"]["administrator"]
