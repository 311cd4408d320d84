"""Every parser that reads bytes from outside, with bytes that it accepts. All are real ones, made once."""

import csv
import gzip
import hashlib
import io
import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from ringfence import protocol
from ringfence.cli.server import _file_of_doors
from ringfence.deployment.door import CarriedHead, Door
from ringfence.deployment.shuffler_client import ShufflerClient
from ringfence.errors import CertificateError, DoorError, SiloError
from ringfence.evidence.dossier.evidence import read_audit, read_evaluation
from ringfence.evidence.dossier.signing import read_signature
from ringfence.evidence.verification import verify
from ringfence.federation.custom_loss import install_loss
from ringfence.model.model import Model
from ringfence.model.personal import load_any
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol.documents.certificate import Certificate, SignedCertificate
from ringfence.protocol.losses.custom import Custom, digest_of
from ringfence.protocol.schema.draft import draft_schema, drafted_columns, repeating_identifiers
from ringfence.server import transcript
from ringfence.shuffler.sealing import sign
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.certificate import certify
from ringfence.silo.ledger.history import GENESIS
from ringfence.silo.operator.decisions import approve_plan
from ringfence.silo.records.records import load_records
from ringfence.sources import read_table
from ringfence.sources.description import describe
from ringfence.storage.chain import entry_hash
from ringfence.storage.files import read_key
from ringfence.transport.client import refusal_reason
from tests.protocol import plan_document
from tests.silo.agents import SCHEMA, make_silo_folder

GOLDEN = Path(__file__).parents[1] / "golden" / "v1_0_0"
OWN_MODEL = next((GOLDEN / "silos" / "personalised" / "own").glob("*.json"))
SIGNATURE = GOLDEN / "dossiers" / "dossier.signature.json"
AUDIT = (
    b'{"epsilon_claimed":3.0,"epsilon_lower":2.6,"confidence":0.999999,"refuted":false,"delta":1e-05,"mechanism":"full",'
    b'"sabotage":"none","records":64,"rounds":2,"runs":1200,"score":0.9,"score_allowed":0.91,"score_lower":0.89}'
)
EVALUATION = (
    b'{"plan":"ab","evaluation":{"unit":"record","together":{"records":5,"metrics":[{"name":"accuracy","value":0.5,'
    b'"low":0.1,"high":0.9}]},"silos":{}}}'
)
LOSS = b"def own(score, target):\n    e = score - target\n    return jnp.where(e > 0, e**2, jnp.square(-e))\n"

Reader = Callable[[bytes], object]


@dataclass(frozen=True)
class Parser:
    """What reads, and something that it reads."""

    read: Reader
    valid: bytes


def from_file(read: Callable[[Path], object], name: str = "content") -> Reader:
    """Let a reader of files read bytes."""
    folder = Path(_folder().name)

    def reader(content: bytes) -> object:
        path = folder / name
        path.write_bytes(content)
        return read(path)

    return reader


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="fuzz-")


def messages() -> dict[str, Parser]:
    """What crosses the wire."""
    plan = "0123456789abcdef" * 4
    head = protocol.SignedHead(ledger=plan, number=7, hash=plan, signature="0a" * 64)
    request = protocol.RoundRequest.at(plan, 3, np.array([1.0, -2.5]))
    shown = request.model_copy(update={"heads": (head, head)})
    update = protocol.NoisyUpdate(plan=plan, round=3, silo="north", vector=protocol.pack(np.array([0.5, 7.0])))
    sealed = protocol.SealedUpdate(plan=plan, round=0, silo="north", envelope="AAAA", signature="0a" * 64)
    refusal = protocol.Refusal(plan=plan, round=3, silo="north", reason=protocol.RefusalReason.BUDGET)
    batch = protocol.Batch(plan=plan, round=0, silos=2, messages="AAAA")
    return {
        "request": Parser(protocol.RoundRequest.from_bytes, request.to_bytes()),
        "request with heads": Parser(protocol.RoundRequest.from_bytes, shown.to_bytes()),
        "answer with a head": Parser(protocol.parse_answer, refusal.model_copy(update={"head": head}).to_bytes()),
        "carried answer": Parser(_carry, refusal.model_copy(update={"head": head}).to_bytes()),
        "update": Parser(protocol.parse_answer, update.to_bytes()),
        "sealed update": Parser(protocol.parse_answer, sealed.to_bytes()),
        "sealed deposit": Parser(protocol.SealedUpdate.from_bytes, sealed.to_bytes()),
        "refusal": Parser(protocol.parse_answer, refusal.to_bytes()),
        "batch": Parser(protocol.Batch.from_bytes, batch.to_bytes()),
        "a shuffler's sentence": Parser(refusal_reason, b'{"refused":"x","error":"A sentence."}'),
    }


def _carry(answer: bytes) -> object:
    """Keep an answer's head as a courier does."""
    door = CarriedHead("unix:/door")
    door.keep(answer)
    return door.read()


def documents() -> dict[str, Parser]:
    """What parties hand each other as files, in JSON."""
    plan = plan_document.parse(plan_document.DOCUMENT)
    model = Model.of(plan, np.zeros(plan.dimension), {"north": 3})
    read_plan = from_file(protocol.load_plan)
    plans = {
        f"{name} plan": Parser(read_plan, plan_document.plan_of(edits).content)
        for name, edits in plan_document.KINDS.items()
    }
    return {
        **plans,
        "plan with an offset, a weight and a loss of its own": Parser(read_plan, _plan_with_own_loss().content),
        "model": Parser(from_file(Model.load), model.canonical()),
        "own model": Parser(from_file(load_any), OWN_MODEL.read_bytes()),
        "certificate": Parser(verify, certificate().to_file()),
        "signed certificate": Parser(_verify_signed_again, certificate().certificate.content),
        "certified plan": Parser(_verify_with_plan, _certified_plan().content),
        "audit": Parser(read_audit, AUDIT),
        "evaluation": Parser(read_evaluation, EVALUATION),
        "dossier's signature": Parser(read_signature, SIGNATURE.read_bytes()),
        "transcript": Parser(from_file(_read_transcript, transcript.NAME), a_transcript()),
        "checked transcript": Parser(_read_checked, transcript.RunHeader(plan=plan, seed=7).canonical()),
        "transcript's plan": Parser(_read_plan_of_transcript, plan.content),
    }


def _plan_with_own_loss() -> protocol.Plan:
    """A plan with an offset, a weight, and a loss that nobody has installed."""
    roles = "offset = 'b'\nweight = 'c'\n"
    schema = load_schema_of(roles + SCHEMA.replace("lower = -1", "lower = 0"), "a")
    plan = make_plan(schema, [Member("clinic", 40, 1.0, 1e-6)], PlanRequest(rounds=3, survey=False))
    source = LOSS.decode()
    loss = Custom(
        title="own", source=source, digest=digest_of(source), largest_score=9.0, largest_target=1.0, lipschitz=20.0,
        smoothness=2.0,
    )  # fmt: skip
    assert plan.training is not None
    return plan.model_copy(update={"training": plan.training.model_copy(update={"loss": loss})})


def files() -> dict[str, Parser]:
    """What an operator is given, or has written."""
    key = b"5e" * 32
    keys = b'server = "%s"\nshuffler = "%s"\n[silos]\nnorth = "%s"\n' % (key, key, key)
    silo = b'name = "clinic"\ndata_file = "x.csv"\nschema_file = "x.toml"\nport = 0\n'
    schema = load_schema_of(SCHEMA)
    return {
        "custom loss": Parser(from_file(install_loss, "own.py"), LOSS),
        "schema": Parser(from_file(lambda path: protocol.load_schema(path, "ill"), "schema.toml"), SCHEMA.encode()),
        "keys": Parser(from_file(protocol.load_keys), keys),
        "silo.toml": Parser(from_file(lambda path: SiloFolder.open(path.parent), "silo.toml"), silo),
        "courier.toml": Parser(from_file(_knock), b'port = 9\ntoken_file = "token"\n'),
        "doors": Parser(from_file(_file_of_doors), b'clinic = "folders/clinic"\nwest = "unix:/x"\n'),
        "private key": Parser(from_file(lambda path: read_key(path, SiloError)), key + b"\n"),
        "token": Parser(from_file(lambda path: ShufflerClient.read("http://127.0.0.1:9", path)), b"ab" * 32),
        "records": Parser(from_file(lambda path: load_records(path, schema)), table([["0.1", "-0.2", "1", "no"]] * 3)),
        "draft": Parser(from_file(_drafted), table([["0.1", "x", "1", "no"]] * 3)),
        **tables(schema),
    }


def tables(schema: protocol.Schema) -> dict[str, Parser]:
    """Tables of other kinds than plain CSV, and what describes them."""
    columns = {"a": [0.1, 0.2], "b": [-0.2, 0.3], "c": [1.0, 0.0], "ill": ["no", "yes"]}
    held = pa.table(columns)
    parquet, arrow, stream, arrays, fields, zipped = (io.BytesIO() for _ in range(6))
    pyarrow.parquet.write_table(held, parquet)
    with pyarrow.ipc.new_file(arrow, held.schema) as writer:
        writer.write_table(held)
    with pyarrow.ipc.new_stream(stream, held.schema) as writer:
        writer.write_table(held)
    kinds = [("a", "f8"), ("b", "f8"), ("c", "f8"), ("ill", "U3")]
    np.save(fields, np.array(list(zip(*columns.values(), strict=True)), dtype=kinds))
    np.savez(arrays, **{name: np.array(cells) for name, cells in columns.items()})  # type: ignore[arg-type]  # its stub
    with gzip.GzipFile(fileobj=zipped, mode="wb", mtime=0) as file:
        file.write(table([["0.1", "-0.2", "1", "no"]] * 3))
    described = b'file = "described.csv"\ndelimiter = ","\nencoding = "latin-1"\ndecimal = "."\n[arrays]\n'

    def read(name: str) -> Reader:
        return from_file(lambda path: load_records(path, schema), name)

    def read_described(path: Path) -> object:
        path.with_name("described.csv").write_bytes(table([["0.1", "-0.2", "1", "no"]] * 3))
        return load_records(path, schema)

    return {
        "records in Parquet": Parser(read("table.parquet"), parquet.getvalue()),
        "records in Arrow": Parser(read("table.arrow"), arrow.getvalue()),
        "records in a stream of Arrow": Parser(read("table.arrows"), stream.getvalue()),
        "records in UTF-16": Parser(
            read("wide.csv"), table([["0.1", "-0.2", "1", "no"]] * 3).decode().encode("utf-16")
        ),
        "records in an array of fields": Parser(read("table.npy"), fields.getvalue()),
        "records in NumPy's arrays": Parser(read("table.npz"), arrays.getvalue()),
        "records in gzip": Parser(read("table.csv.gz"), zipped.getvalue()),
        "description of a table": Parser(from_file(read_described, "described.toml"), described),
        "description of a query": Parser(
            from_file(describe, "query.toml"), b'database = "sqlite:x.db"\nquery = "SELECT 1"\norder_by = "id"\n'
        ),
    }


def _drafted(path: Path) -> object:
    held = read_table(path)
    return draft_schema(drafted_columns(held)), repeating_identifiers(held)


def table(rows: list[list[str]]) -> bytes:
    """Return a table of the tests' schema as CSV."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["a", "b", "c", "ill"], *rows])
    return text.getvalue().encode()


def load_schema_of(text: str, target: str = "ill") -> protocol.Schema:
    """Parse a schema that is right."""
    return from_file(lambda path: protocol.load_schema(path, target), "right.toml")(text.encode())  # type: ignore[return-value]


def _knock(path: Path) -> object:
    path.with_name("token").write_text("ab" * 32)
    door = Door.read(path, patience=0.0)
    with suppress(DoorError):  # nobody is there
        door.ask(b"")
    return door


@cache
def silo_folder() -> SiloFolder:
    """A silo that has answered two rounds of a plan."""
    made = make_silo_folder(Path(_folder().name))
    plan = make_plan(load_schema_of(SCHEMA), [Member("clinic", 40, 1.0, 1e-6)], PlanRequest(rounds=3, survey=False))
    approve_plan(made, plan)
    with made.ledger() as ledger:
        gate = Gate(made.records(), ledger, made.key())
        for round in range(2):
            gate.answer(protocol.RoundRequest.at(plan.digest(), round, np.zeros(plan.dimension)))
    return made


@cache
def certificate() -> SignedCertificate:
    """The certificate of that silo."""
    return certify(silo_folder())


def _certified_plan() -> protocol.Plan:
    (plan,) = (entry.plan for entry in certificate().certificate.entries if entry.plan is not None)
    return plan


def _verify_signed_again(content: bytes) -> object:
    """Check what a certificate says after repairing its hash chain, so that what is changed gets past the hashes."""
    parsed = Certificate.parse(content, error=CertificateError)
    previous, entries = GENESIS, []
    for entry in parsed.entries:
        payload = entry.payload if entry.plan is None else entry.plan.digest()
        previous = entry_hash(previous, entry.number, entry.time, entry.kind, entry.body, payload)
        entries.append(entry.model_copy(update={"payload": payload, "hash": previous}))
    again = parsed.model_copy(update={"entries": tuple(entries), "head": previous})
    signed = again.signed_bytes()
    return verify(SignedCertificate(again, sign(silo_folder().key(), signed)).to_file())


def _verify_with_plan(content: bytes) -> object:
    """Check the certificate with another plan in the place of the approved one."""
    plan, said = protocol.Plan.parse(content, error=CertificateError), certificate().certificate
    entries = tuple(entry if entry.plan is None else entry.model_copy(update={"plan": plan}) for entry in said.entries)
    return _verify_signed_again(said.model_copy(update={"entries": entries}).content)


def a_transcript() -> bytes:
    """A transcript of one round."""
    plan = plan_document.parse(plan_document.DOCUMENT)
    entries: list[transcript.RunHeader | transcript.RunEntry] = [
        transcript.RunHeader(plan=plan, seed=7),
        transcript.Asked(round=0, silos=("north",), request="0" * 64),
        transcript.Answered.of(0, "north", b"anything"),
        transcript.Mixed(round=0, silos=2, totals="AAAAAAAAAAA="),
        transcript.Closed(round=0, answered=("north",)),
    ]
    return b"".join(map(transcript.to_line, entries))


def _read_transcript(path: Path) -> object:
    _, entries = transcript.read_transcript(path.parent)
    return [entry.answer() if isinstance(entry, transcript.Answered) else entry for entry in entries]


def _read_checked(content: bytes) -> object:
    """Read a line whose check is right, whatever its content."""
    check = hashlib.sha256(content).hexdigest()[:32].encode()
    return transcript.from_line(b'{"check":"' + check + b'","entry":' + content + b"}\n")


def _read_plan_of_transcript(content: bytes) -> object:
    """Read a transcript's first line, in which any bytes stand for the plan."""
    header = {"kind": "run", "format": 1, "seed": 7, "time": "", "plan": content.decode("utf-8", errors="replace")}
    return _read_checked(json.dumps(header).encode())


def everything() -> dict[str, Parser]:
    """All of them."""
    return messages() | documents() | files()
