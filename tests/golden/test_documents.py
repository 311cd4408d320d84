"""What a released version wrote is read, continued and accounted for as it was then (`expected.json`).

The documents are copied before they are opened: nothing here may change them.
"""

import hashlib
import json
import math
import re
from pathlib import Path

import pytest

from tests.golden import reading
from tests.golden.expected import EXACT, EXPECTED, HERE, SAMPLED, VERSIONS, Copied, Seen, agree, each, having


def requests_of(version: str, silo: str) -> list[bytes]:
    return (HERE / version / "requests" / f"{silo}.jsonl").read_bytes().splitlines()


@pytest.mark.parametrize("version", VERSIONS)
def test_no_golden_file_was_ever_changed(version: str) -> None:
    golden = HERE / version
    lines = (HERE / f"{version}.sha256").read_text().splitlines()
    stated = {path: digest for digest, path in (line.split("  ", 1) for line in lines)}
    found = {
        path.relative_to(golden).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in golden.rglob("*")
        if path.is_file()
    }
    assert found == stated


# Silos


@each("ledgers")
def test_a_ledger_of_ringfence_train_holds_the_same_entries_events_and_epsilons(
    seen: Seen, version: str, name: str
) -> None:
    agree(reading.account_of(seen(version) / name), EXPECTED[version]["ledgers"][name])


@each("silos")
def test_a_silo_s_folder_opens_with_its_records_keys_and_waiting_plans(seen: Seen, version: str, name: str) -> None:
    expected, facts = EXPECTED[version]["silos"][name], reading.silo_facts(seen(version) / "silos" / name)
    agree(facts, {key: value for key, value in expected.items() if key in facts})
    assert facts.keys() <= expected.keys()


@having("kept")
def test_a_silo_s_folder_says_how_its_records_are_kept(seen: Seen, version: str) -> None:
    expected = EXPECTED[version]["kept"]
    assert {place: reading.keeping_of(seen(version) / place) for place in expected} == expected


@each("silos")
def test_answered_rounds_come_back_byte_for_byte_and_cost_nothing(copied: Copied, version: str, name: str) -> None:
    folder, expected = copied(version, f"silos/{name}") / "silos" / name, EXPECTED[version]["silos"][name]
    asked = [pair for pair in zip(requests_of(version, name), expected["answers"], strict=True) if "stored" in pair[1]]
    answers = reading.ask(folder, [request for request, _ in asked])
    assert [reading.sha256(answer) for answer in answers] == [answer["stored"] for _, answer in asked]
    agree(reading.account_of(reading.ledger_of(folder)), expected["account"])


@each("silos")
def test_a_silo_goes_on_where_it_stopped(copied: Copied, version: str, name: str) -> None:
    folder, expected = copied(version, f"silos/{name}") / "silos" / name, EXPECTED[version]["silos"][name]
    answers = reading.ask(folder, requests_of(version, name))
    for answer, wanted in zip(answers, expected["answers"], strict=True):
        stored = wanted.get("stored")
        assert reading.describe(answer) == {key: value for key, value in wanted.items() if key != "stored"}
        assert stored in (None, reading.sha256(answer))
    again = reading.ask(folder, requests_of(version, name))
    assert [a for a in again if reading.describe(a)["kind"] != "refusal"] == [
        a for a in answers if reading.describe(a)["kind"] != "refusal"
    ]
    after = reading.account_of(reading.ledger_of(folder))
    agree(reading.without_hashes(after), expected["afterwards"])
    before = expected["account"]["entries"]
    assert after["entries"][: len(before)] == before


@each("silos")
def test_a_silo_that_went_on_can_be_certified(copied: Copied, tmp_path: Path, version: str, name: str) -> None:
    folder = copied(version, f"silos/{name}") / "silos" / name
    reading.ask(folder, requests_of(version, name))
    proved = reading.certify(folder, tmp_path / "certificate.json")
    spent = EXPECTED[version]["silos"][name]["afterwards"]["spent"]["epsilon"]
    assert math.isclose(proved["epsilon"], spent["shuffled"], rel_tol=SAMPLED)
    assert math.isclose(proved["alone_epsilon"], spent["alone"], rel_tol=SAMPLED)


# Plans, events, messages, certificates


@each("plans")
def test_a_plan_has_the_same_name_events_and_epsilons(version: str, name: str) -> None:
    expected = EXPECTED[version]["plans"][name]
    agree(reading.plan_facts(HERE / version / name), expected)
    assert expected["digest"] == reading.sha256((HERE / version / name).read_bytes())


@each("events")
def test_an_event_is_read_and_costs_the_same(version: str, name: str) -> None:
    content, expected = (HERE / version / "events" / name).read_bytes(), EXPECTED[version]["events"][name]
    assert reading.event_again(content) == json.loads(content) == expected["event"]
    agree({"event": expected["event"], "epsilon": reading.event_cost(content, 1e-6)}, expected)


@each("messages")
def test_a_message_is_read_and_written_again_as_the_same_bytes(version: str, name: str) -> None:
    content, expected = (HERE / version / "messages" / name).read_bytes(), EXPECTED[version]["messages"][name]
    assert reading.message_again(content) == (expected["kind"], content)
    assert reading.sha256(content) == expected["sha256"]
    if "vector" in expected:
        assert reading.vector_in(content) == expected["vector"]
    if expected["kind"] == "refusal":
        assert reading.describe(content)["reason"] == name.removeprefix("refusal-").removesuffix(".json")


@each("certificates")
def test_a_certificate_is_still_valid_and_proves_the_same(version: str, name: str) -> None:
    path, expected = HERE / version / "certificates" / name, EXPECTED[version]["certificates"][name]
    found, named = reading.certificate_facts(path), reading.certificate_facts(path, expected["public_key"])
    agree(found, expected, name, SAMPLED if name == "composed.json" else EXACT)
    assert named == {**found, "key_was_given": True}


# Runs


@each("runs")
def test_a_transcript_says_how_far_its_run_has_come(seen: Seen, version: str, name: str) -> None:
    expected = EXPECTED[version]["runs"][name]
    agree(reading.transcript_facts(seen(version) / "runs" / name / "server"), expected["transcript"])
    content = (HERE / version / "runs" / name / "server" / "transcript.jsonl").read_bytes()
    assert reading.sha256(content) == expected["file"]


@each("runs", wanted=lambda run: run["silos"])
def test_the_silos_of_a_run_hold_the_same_entries_events_and_epsilons(seen: Seen, version: str, name: str) -> None:
    for silo, expected in EXPECTED[version]["runs"][name]["silos"].items():
        folder = seen(version) / "runs" / name / "silos" / silo
        agree({**reading.silo_facts(folder), "account": reading.account_of(reading.ledger_of(folder))}, expected, silo)


@each("runs", ["finished"])
def test_a_finished_run_is_replayed_to_the_same_model(seen: Seen, version: str, name: str) -> None:
    weights = reading.replayed_weights(seen(version) / "runs" / name / "server")
    agree(weights, EXPECTED[version]["runs"][name]["weights"])


@each("runs", wanted=lambda run: not run["transcript"]["finished"])
def test_a_run_that_was_stopped_goes_on_to_its_end_and_asks_nobody_for_what_it_holds(
    copied: Copied, version: str, name: str
) -> None:
    folder, expected = copied(version, f"runs/{name}") / "runs" / name, EXPECTED[version]["runs"][name]
    written = (folder / "server" / "transcript.jsonl").read_bytes()
    whole = written[: written.rindex(b"\n") + 1]  # a torn last line is dropped
    found = reading.resume(folder)
    wanted = expected["resumed"]
    assert [round for round, _, _ in found["asked"]] == [round for round, _, _ in wanted["asked"]]
    asked, before = (
        {(round, silo): answer for round, silo, answer in each["asked"]} for each in (found, wanted)
    )  # within a round, in any order
    assert set(asked) == set(before)
    assert len(asked) == len(found["asked"])
    for place, stored in before.items():
        assert stored in (None, asked[place]), "an answer that the ledger holds came back as another"
    assert found["deposits"] == wanted["deposits"]
    assert sorted(found["batches"], key=int) == wanted["batches"]
    for round, batch in expected.get("batches", {}).items():
        assert found["batches"].get(round, batch["sha256"]) == batch["sha256"], "a round was mixed twice"
    assert (folder / "server" / "transcript.jsonl").read_bytes().startswith(whole)
    for silo, afterwards in wanted["afterwards"].items():
        account = reading.account_of(reading.ledger_of(folder / "silos" / silo))
        agree(reading.without_hashes(account), afterwards, silo)
        before = expected["silos"][silo]["account"]["entries"]
        assert account["entries"][: len(before)] == before
    facts = reading.transcript_facts(folder / "server")
    assert facts["finished"]
    assert facts["answered"][: len(expected["transcript"]["answered"])] == expected["transcript"]["answered"]
    assert all(map(math.isfinite, found["weights"]))
    assert reading.replayed_weights(folder / "server") == found["weights"]
    again = reading.resume(folder)
    assert again == {"asked": [], "deposits": [], "batches": {}, "weights": found["weights"]}


@each("runs", wanted=lambda run: "shuffler" in run)
def test_a_shuffler_knows_its_rounds_and_hands_out_the_same_batches_again(seen: Seen, version: str, name: str) -> None:
    folder, expected = seen(version) / "runs" / name, EXPECTED[version]["runs"][name]
    status = reading.shuffler_facts(folder / "shuffler")
    agree(status, expected["shuffler"])
    agree(reading.keys_of(folder / "keys.toml"), expected["keys"])
    [plan] = status["plans"]
    for round, batch in expected["batches"].items():
        content = reading.handed_out(folder / "shuffler", plan["plan"], int(round))
        assert reading.sha256(content) == batch["sha256"]
        assert reading.opened_batch(folder / "plan.json", folder / "server.key", content) == batch["totals"]
    assert {entry["state"] for entry in plan["rounds"]} >= {"released"}


# Models, sweeps


@each("models")
def test_a_model_predicts_and_states_the_same(version: str, name: str) -> None:
    found = reading.model_facts(HERE / version / "models" / name, HERE / version / "data" / "new.csv")
    expected = EXPECTED[version]["models"][name]
    agree(_numbers_of(found.pop("statement")), _numbers_of(expected["statement"]))
    agree(found, {key: value for key, value in expected.items() if key != "statement"})


def _numbers_of(statement: str | None) -> list[str]:
    """Return a statement's numbers: its words may change."""
    return re.findall(r"\d[\d.e-]*", statement or "")


@having("ledgers")
def test_training_again_counts_what_was_spent_before(copied: Copied, version: str) -> None:
    folder = copied(version, "models")
    ledgers = folder / "models" / "ledgers"
    silos = [path.stem for path in sorted(ledgers.glob("*.ledger"))]
    assert len(silos) == len(EXPECTED[version]["ledgers"]) > 1
    files = [folder / "data" / f"{silo}.csv" for silo in silos]
    # The ledgers are of trained parts of the files: their silos' names and budgets count, not their sizes.
    totals = reading.train_again(files, folder / "data" / "schema-small.toml", "ill", ledgers)
    for silo in silos:
        before = EXPECTED[version]["ledgers"][f"models/ledgers/{silo}.ledger"]
        after = reading.account_of(ledgers / f"{silo}.ledger")
        assert after["entries"][: len(before["entries"])] == before["entries"]
        spent = {
            time: account["spent"]["epsilon"]["shuffled"] for time, account in (("before", before), ("after", after))
        }
        assert totals[silo] > spent["after"] > spent["before"] > 0.5
        assert [event for event in before["spent"]["events"] if event not in after["spent"]["events"]] == []


@having("sweep")
def test_a_sweep_keeps_its_rows_and_runs_what_is_missing(copied: Copied, version: str) -> None:
    path, expected = copied(version, "sweep") / "sweep" / "sweep.jsonl", EXPECTED[version]["sweep"]
    found = reading.sweep_facts(path)
    agree(found, {name: expected[name] for name in found})
    agree(reading.finish_sweep(path), expected["missing"])
    rows = reading.sweep_facts(path)["rows"]
    agree(rows[: len(expected["rows"])], expected["rows"])
    assert len(rows) == len(expected["rows"]) + len(expected["missing"])
    assert reading.finish_sweep(path) == []
