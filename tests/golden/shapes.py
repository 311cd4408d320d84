"""Which fields this version of Ringfence writes, and in which formats: touches its internals, as `reading.py` does."""

import dataclasses
import json
import re
import sqlite3
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ringfence import protocol
from ringfence.accounting.events import Event
from ringfence.deployment.nvflare import policy
from ringfence.evidence.dossier.signing import DossierContent, DossierSignature
from ringfence.model.model import Model
from ringfence.model.personal import PersonalModel
from ringfence.protocol import Plan, Public, RoundRequest
from ringfence.protocol.documents.certificate import Certificate, CertificateFile
from ringfence.server import transcript
from ringfence.shuffler.store import Store
from ringfence.silo.folder import SiloFolder, SiloSettings
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.history import FORMATS
from ringfence.silo.operator import decisions
from ringfence.silo.operator.setup import create_folder, make_settings
from ringfence.simulation.table import SweepHeader
from ringfence.storage.chain import Entry
from ringfence.storage.files import state_folder
from tests.deployment.kits import make_kits
from tests.golden.reading import copy

SHAPES = Path(__file__).parent / "shapes.json"
"""The fields of every document, as they were when golden files were last written."""


def newest_formats() -> dict[str, int]:
    """Return the newest format of every document that states its own."""
    documents = {
        "plan": Plan.newest_format,
        "certificate": CertificateFile.newest_format,
        "dossier": DossierSignature.newest_format,
        "transcript": transcript.RunHeader.newest_format,
        "model": Model.newest_format,
    }
    return documents | {f"ledger {kind}": format for kind, format in FORMATS.items()}


def formats(golden: Path) -> dict[str, set[int]]:
    """Return the formats of a version's golden documents, as they stand there; none stated, or a text, means 1."""
    found: dict[str, set[int]] = {}

    def add(document: str, stated: Any) -> None:
        found.setdefault(document, set()).add(stated if isinstance(stated, int) else 1)

    folders = {"plans": "plan", "certificates": "certificate", "models": "model", "dossiers": "dossier"}
    for folder, document in folders.items():
        for path in (golden / folder).rglob("*.json"):
            add(document, json.loads(path.read_bytes()).get("format"))
    for path in golden.rglob("transcript.jsonl"):
        add("transcript", json.loads(path.read_bytes().splitlines()[0])["entry"].get("format"))
    for path in golden.rglob("*.ledger"):
        for kind, stated in ledger_formats(path):
            add(kind if kind == "plan" else f"ledger {kind}", stated)
    return found


def ledger_formats(path: Path) -> list[tuple[str, int]]:
    """Return every entry's kind and format, and the format of every plan, as they stand in a ledger's file."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)  # a golden file stays untouched
    try:
        entries = connection.execute("SELECT kind, body, payload FROM entries ORDER BY number").fetchall()
    finally:
        connection.close()
    found = []
    for kind, body, payload in entries:
        found.append((kind, json.loads(body).get("format", 1)))
        if kind == "approved":
            found.append(("plan", json.loads(payload).get("format", 1)))
    return found


def shapes(golden: Path, work: Path) -> dict[str, list[str]]:
    """Return which fields this version writes, by document; `golden` lends data, and `work` is an empty folder."""
    documents: dict[str, type[Public]] = {
        "certificate": Certificate,
        "certificate file": CertificateFile,
        "dossier": DossierContent,
        "dossier file": DossierSignature,
        "keys.toml": protocol.PublicKeys,
        "message batch": protocol.Batch,
        "message refusal": protocol.Refusal,
        "message request": RoundRequest,
        "message sealed": protocol.SealedUpdate,
        "message update": protocol.NoisyUpdate,
        "model": Model,
        "own model": PersonalModel,
        "plan": Plan,
        "silo.toml": SiloSettings,
        "transcript answer": transcript.Answered,
        "transcript asked": transcript.Asked,
        "transcript closed": transcript.Closed,
        "transcript mixed": transcript.Mixed,
        "transcript run": transcript.RunHeader,
    }
    found = {name: _fields(kind) for name, kind in documents.items()}
    for event in get_args(Event):
        fields = dataclasses.fields(event)
        found[f"event {event.kind}"] = sorted(f"{field.name}: {_name(field.type)}" for field in fields)
    found["transcript line"] = sorted(json.loads(transcript.to_line(transcript.Closed(round=0, answered=()))))
    found["sweep header"] = sorted(json.loads(SweepHeader("label", ("parameter",)).line()))
    lent = copy(golden, work / "golden", "data", "plans")
    silo_folder = _new_silo_folder(lent, work / "silo", "clinic")
    found |= _silo_shapes(lent, silo_folder) | _kit_shapes(lent, work) | _store_shapes(work / "shuffler")
    return found | _state_shapes()


def _name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))


def _new_silo_folder(golden: Path, folder: Path, name: str, new_beginning: str = "") -> SiloFolder:
    settings = make_settings(
        name=name,
        data_file=str(golden / "data" / f"{name}.csv"),
        schema_file=str(golden / "data" / "schema-small.toml"),
    )
    return create_folder(folder, settings, Budget(2.0, 1e-6), note="why", new_beginning=new_beginning)


def _silo_shapes(golden: Path, silo_folder: SiloFolder) -> dict[str, list[str]]:
    """Let a new silo write every kind of entry, and return what it wrote."""
    plan = protocol.load_plan(golden / "plans" / "fixed.json")
    with silo_folder.ledger() as ledger:
        ledger.grant(Budget(2.0, 1e-6, anyone=3.0), note="a test")
        gate = Gate(silo_folder.records(), ledger, silo_folder.key())
        gate.approve(plan)
        for round in (0, 99):
            gate.answer(RoundRequest.at(plan.digest(), round, np.zeros(plan.dimension)))
        ledger.grant(Budget(2.0, 1e-6))
        gate.approve(plan, note="why")
        gate.end(plan)
        ledger.end(plan.digest(), note="why")
        ledger.allow_same_user()
        ledger.use_inside("compared", model=plan.digest(), plan=plan.digest(), note="why")
        entries = ledger.entries()
        tables = _tables(silo_folder.ledger_path)
    return _entries("ledger", [*entries, *_later_entries(golden, silo_folder)]) | {
        "ledger tables": tables,
        "silo folder": _files(silo_folder.path),
        "courier.toml": _toml(silo_folder.path / "courier.toml"),
    }


def _later_entries(golden: Path, former: SiloFolder) -> list[Entry]:
    """Let a silo begin anew on the same data, which then changes; register it where nobody knows it; move it; and
    return to the former one."""
    data = Path(former.settings.data_file)
    silo_folder = _new_silo_folder(golden, former.path.with_name("again"), "clinic", "a new beginning")
    data.write_text("\n".join([*data.read_text().splitlines(), data.read_text().splitlines()[-1]]) + "\n")
    decisions.update_data(silo_folder, "one more")
    for part in ("registry.sqlite", "fingerprint.key"):
        (state_folder() / part).rename(former.path.with_name(part))
    decisions.register(silo_folder, "")
    for part in ("registry.sqlite", "fingerprint.key"):
        former.path.with_name(part).replace(state_folder() / part)
    moved = SiloFolder.open(silo_folder.path.rename(former.path.with_name("moved")))
    with moved.ledger() as ledger:
        moved.current_records(ledger)
        later = ledger.entries()
    decisions.register(former, "the former one counts")
    with former.ledger() as ledger:
        return [*later, *ledger.entries()]


def _state_shapes() -> dict[str, list[str]]:
    """Return what a user's state folder holds by now."""
    folder = state_folder()
    connection = sqlite3.connect(folder / "registry.sqlite")
    try:
        rows = connection.execute("SELECT number, time, kind, body, payload, hash FROM entries").fetchall()
    finally:
        connection.close()
    entries = [
        Entry(kind, json.loads(body), payload, number=number, time=time, hash=digest)
        for number, time, kind, body, payload, digest in rows
    ]
    watermark = next((folder / "heads").iterdir()).read_text()
    return _entries("registry", entries) | {
        "registry tables": _tables(folder / "registry.sqlite"),
        "state folder": _files(folder),
        "watermark": [re.sub("[0-9a-f]{64}", "HASH", re.sub(r"[0-9]{20}", "NUMBER", watermark))[:-33] + "CHECK"],
    }


def _entries(document: str, entries: Sequence[Entry]) -> dict[str, list[str]]:
    """Return the fields of every kind of entry."""
    fields: dict[str, set[str]] = {}
    for entry in entries:
        body = {name: value for name, value in entry.body.items() if name not in ("event", "events")}
        names = {*_values(body), *(entry.body.keys() - body)}
        fields.setdefault(f"{document} {entry.kind}", set()).update(names, ["payload"] if entry.payload else [])
    return {kind: sorted(names) for kind, names in fields.items()}


def _kit_shapes(golden: Path, work: Path) -> dict[str, list[str]]:
    """Let a silo join a federation, and return what leads from the engine's kit to the silo."""
    kits = make_kits(work / "federation", "localhost", ["north"])
    kit = kits.silos["north"]
    folder = _new_silo_folder(golden, work / "joining", "north").path
    policy.join_kit(folder, kit, kits.responses["north"], same_user=True)
    response = work / "federation" / "north.response"
    return {
        "kit's ringfence.toml": _toml(kit / "local" / "ringfence.toml"),
        "kit's resources.json": sorted(json.loads((kit / "local" / "resources.json").read_bytes())),
        "federation.toml": _toml(work / "federation" / "federation.toml"),
        "response to a certificate request": sorted(_values(json.loads(response.read_bytes()))),
    }


def _store_shapes(folder: Path) -> dict[str, list[str]]:
    with Store.create(folder) as store:
        tables = _tables(store.path)
    return {"shuffler tables": tables, "shuffler folder": _files(folder)}


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _toml(path: Path) -> list[str]:
    return sorted(_values(tomllib.loads(path.read_text())))


def _tables(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        numbers = [
            f"{name} = {connection.execute(f'PRAGMA {name}').fetchone()[0]}"
            for name in ("application_id", "user_version")
        ]
        made = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
        return [*numbers, *(" ".join(sql.split()) for (sql,) in made)]
    finally:
        connection.close()


def _values(content: Any, path: str = "") -> set[str]:
    """Return the paths of plain data, with the type of what stands there."""
    if isinstance(content, dict):
        return {
            field for name, value in content.items() for field in _values(value, f"{path}.{name}" if path else name)
        }
    if isinstance(content, list):
        return {field for value in content for field in _values(value, f"{path}[]")}
    return {f"{path}: {type(content).__name__}"}


def _fields(kind: type[Public]) -> list[str]:
    """Return the paths of a document's fields, with what may stand there."""
    # What is read as a plan may be written as an object or as a text.
    written = kind.model_json_schema(mode="serialization").get("$defs", {})
    return sorted(_paths(kind.model_json_schema(), {}, "", plan="a plan" if "Plan" in written else "a plan as text"))


def _paths(
    schema: dict[str, Any], known: dict[str, Any], path: str, *, plan: str, one_of_several: bool = False
) -> set[str]:
    """Return the paths of a JSON schema's fields, with what stands there; `?` marks what may be left out."""
    known = schema.get("$defs", known)
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name == "Plan":
            return {f"{path}: {plan}"}
        return _paths(known[name], known, path, plan=plan, one_of_several=one_of_several)
    choices = schema.get("anyOf", schema.get("oneOf", []))
    found = {field for choice in choices for field in _paths(choice, known, path, plan=plan, one_of_several=True)}
    fields = schema.get("properties", {})
    tags = [f"<{field['const']}>" for field in fields.values() if one_of_several and "const" in field]
    for name, field in fields.items():
        optional = "" if name in schema.get("required", []) else "?"
        if "default" in field:
            optional = f"?={json.dumps(field['default'])}"
        found |= _paths(field, known, f"{path}{''.join(tags)}.{name}{optional}".lstrip("."), plan=plan)
    if "items" in schema:
        found |= _paths(schema["items"], known, f"{path}[]", plan=plan)
    if isinstance(schema.get("additionalProperties"), dict):
        found |= _paths(schema["additionalProperties"], known, f"{path}{{}}", plan=plan)
    if not found:
        what = schema.get("const", schema.get("enum", schema.get("type", "anything")))
        found = {f"{path}: {json.dumps(what)}"}
    return found
