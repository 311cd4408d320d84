"""Write the golden files of the version that is not released yet, in place of those that are there:

    python -m tests.golden.write

writes its documents (`documents.py`), notes what this version makes of each in `expected.json`, lists the files in
`VERSION.sha256`, and writes `shapes.json`. It takes about a minute.
"""

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.golden import reading, remembered, shapes
from tests.golden.documents import write_documents
from tests.golden.shapes import SHAPES

HERE = Path(__file__).parent
VERSION = "v1_0_0"


def silo_expectations(read: Path, goes_on: Path, requests: list[bytes]) -> dict[str, Any]:
    """Return what a silo's folder holds, what it answers, and where that leads."""
    before = reading.account_of(reading.ledger_of(read))
    stored = {sha for plan in before["plans"].values() for sha in plan["answered"].values()}
    answers = [(reading.describe(answer), reading.sha256(answer)) for answer in reading.ask(goes_on, requests)]
    return {
        **reading.silo_facts(read),
        "account": before,
        "answers": [{**said, "stored": sha} if sha in stored else said for said, sha in answers],
        "afterwards": reading.without_hashes(reading.account_of(reading.ledger_of(goes_on))),
    }


def run_expectations(read: Path, goes_on: Path) -> dict[str, Any]:
    """Return how far a run has come, what its silos and its shuffler hold, and how it goes on."""
    silos = sorted((read / "silos").glob("*"))
    run: dict[str, Any] = {
        "transcript": reading.transcript_facts(read / "server"),
        "file": reading.sha256((read / "server" / "transcript.jsonl").read_bytes()),
        "silos": {
            silo.name: {**reading.silo_facts(silo), "account": reading.account_of(reading.ledger_of(silo))}
            for silo in silos
        },
    }
    if (read / "shuffler").exists():
        run |= shuffler_expectations(read)
    if run["transcript"]["finished"]:
        return {**run, "weights": reading.replayed_weights(read / "server")}
    went = reading.resume(goes_on)
    answered = {
        (int(round), name)
        for name, silo in run["silos"].items()
        for plan in silo["account"]["plans"].values()
        for round in plan["answered"]
    }
    resumed = {
        "asked": [[round, name, sha if (round, name) in answered else None] for round, name, sha in went["asked"]],
        "deposits": went["deposits"],
        "batches": sorted(went["batches"], key=int),
        "afterwards": {
            silo.name: reading.without_hashes(reading.account_of(reading.ledger_of(goes_on / "silos" / silo.name)))
            for silo in silos
        },
    }
    return {**run, "resumed": resumed}


def shuffler_expectations(read: Path) -> dict[str, Any]:
    """Return the keys of a run, its shuffler's rounds, and what each batch adds up to."""
    status = reading.shuffler_facts(read / "shuffler")
    batches = {}
    for entry in status["plans"][0]["rounds"]:
        if entry["state"] == "released":
            batch = reading.handed_out(read / "shuffler", status["plans"][0]["plan"], entry["round"])
            totals = reading.opened_batch(read / "plan.json", read / "server.key", batch)
            batches[str(entry["round"])] = {"sha256": reading.sha256(batch), "totals": totals}
    return {"keys": reading.keys_of(read / "keys.toml"), "shuffler": status, "batches": batches}


def expectations(golden: Path, work: Path) -> dict[str, Any]:
    """Return what this version makes of each document: in the words of the tests, which look for the same later."""
    read, goes_on = reading.copy(golden, work / "read"), reading.copy(golden, work / "goes-on")
    expected: dict[str, Any] = {
        "plans": {
            path.relative_to(golden).as_posix(): reading.plan_facts(path)
            for path in sorted((golden / "plans").rglob("*.json"))
        },
        "silos": {
            folder.name: silo_expectations(
                folder,
                goes_on / "silos" / folder.name,
                (golden / "requests" / f"{folder.name}.jsonl").read_bytes().splitlines(),
            )
            for folder in sorted((read / "silos").iterdir())
        },
        "runs": {
            folder.name: run_expectations(folder, goes_on / "runs" / folder.name)
            for folder in sorted((read / "runs").iterdir())
        },
        "certificates": {
            path.name: reading.certificate_facts(path) for path in sorted((golden / "certificates").iterdir())
        },
        "models": {
            path.name: reading.model_facts(path, golden / "data" / "new.csv")
            for path in sorted((golden / "models").glob("*.json"))
        },
        "ledgers": {
            path.relative_to(read).as_posix(): reading.account_of(path)
            for path in sorted((read / "models" / "ledgers").glob("*.ledger"))
        },
        "messages": {path.name: _message(path.read_bytes()) for path in sorted((golden / "messages").glob("*"))},
        "events": {path.name: _event(path.read_bytes()) for path in sorted((golden / "events").glob("*"))},
    }
    found = reading.sweep_facts(golden / "sweep" / "sweep.jsonl")
    expected["sweep"] = {**found, "missing": reading.finish_sweep(goes_on / "sweep" / "sweep.jsonl")}
    assert remembered.kit_faults(read / "kit" / "silos" / "north", read / "kit" / "silo") == ""
    expected["kit"] = {
        "administrator": remembered.administrator(read / "kit" / "admin"),
        "federation": remembered.federation_facts(read / "kit" / "federation"),
    }
    expected["kept"] = {"silos/queries": reading.keeping_of(read / "silos" / "queries")}
    expected["memory"] = memory_expectations(read / "memory")
    return expected


def memory_expectations(read: Path) -> dict[str, Any]:
    """Return what a user's state folder knows of ledgers."""
    ledger = reading.ledger_of(read / "silo")
    with remembered.state_home(read / "state"):
        return {
            "head": remembered.head_of(ledger),
            "older": remembered.head_of(read / "older.ledger"),
            "marked": remembered.marked(ledger),
            "registry": remembered.registry_facts(),
            "carried": remembered.carried("unix:a-door"),
        }


def _message(content: bytes) -> dict[str, Any]:
    kind, again = reading.message_again(content)
    assert again == content
    found = {"kind": kind, "sha256": reading.sha256(content)}
    return {**found, "vector": reading.vector_in(content)} if kind in ("request", "update") else found


def _event(content: bytes) -> dict[str, Any]:
    return {"event": reading.event_again(content), "epsilon": reading.event_cost(content, 1e-6)}


def replace_paths(folder: Path) -> None:
    """Put a placeholder where the folder's path stands, and see to it that nothing else of this machine is told."""
    for path in folder.rglob("*"):
        assert path.is_dir() or (path.is_file() and not path.name.endswith(("-wal", "-shm"))), path
        if path.is_file():
            content = path.read_bytes()
            if str(folder).encode() in content:
                assert path.suffix in (".toml", ".json"), path
                content = content.replace(str(folder).encode(), reading.PLACE.encode())
                path.write_bytes(content)
            text = [
                place for place in (tempfile.gettempdir(), str(Path.home()), str(HERE)) if place.encode() in content
            ]
            assert not text, (path, text)


def json_lines(content: dict[str, Any], indent: str = "", depth: int = 2) -> str:
    """Write JSON with a line for each of the innermost values: short, and yet to be read."""
    lines = [
        f'{indent} "{name}": {json_lines(value, indent + " ", depth - 1) if depth > 1 else json.dumps(value)}'
        for name, value in sorted(content.items())
    ]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}" + ("" if indent else "\n")


def main() -> None:
    """Write the version's folder anew, the list of its files, and the fields of all documents."""
    target = HERE / VERSION
    with tempfile.TemporaryDirectory() as elsewhere:
        golden, work = Path(elsewhere).resolve() / "golden", Path(elsewhere).resolve() / "work"
        write_documents(golden)
        os.environ["XDG_STATE_HOME"] = str(Path(elsewhere) / "state")  # of a user who has seen nothing yet
        replace_paths(golden)
        (golden / "expected.json").write_text(json_lines(expectations(golden, work)))
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(golden, target)
        fields = shapes.shapes(target, Path(elsewhere) / "shapes")
        SHAPES.write_text(json.dumps(fields, indent=1, sort_keys=True) + "\n")
    files = sorted(path for path in target.rglob("*") if path.is_file())
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(target).as_posix()}" for path in files
    ]
    target.with_suffix(".sha256").write_text("\n".join(lines) + "\n")
    print(f"{target}: {len(files)} files of {sum(path.stat().st_size for path in files)} bytes were written.")


if __name__ == "__main__":
    main()
