"""How this version of Ringfence reads golden documents: with `remembered.py` and `shapes.py`, the only code that
touches its internals.

Every function takes paths or bytes and returns plain data, in terms that stay: those of 0.1.0, the first version. When
the code changes, this file follows (and those two); the tests and `expected.json` stay as they are.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.accounting import accountant
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import Event, event_from_dict, seen_by
from ringfence.errors import PlanError
from ringfence.evidence.verification import verify_file
from ringfence.federation.requests import TrainRequest
from ringfence.federation.workflow import train_files
from ringfence.model.model import Model
from ringfence.planning.request import PlanRequest
from ringfence.protocol import Batch, Guarantee, RoundRequest, SealedUpdate, load_keys, load_plan, parse_answer, unpack
from ringfence.protocol.plan.guarantee import against
from ringfence.server import transcript
from ringfence.server.channels import Collect, Totals
from ringfence.server.channels.shuffler import read_batch
from ringfence.server.conduct import ConductedRun, conduct, replay
from ringfence.shuffler.shuffler import Shuffler
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger import certificate
from ringfence.silo.ledger.history import ApprovedPlan
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.operator import decisions
from ringfence.simulation.cells import Cell, CellGrid
from ringfence.simulation.sweep import sweep
from ringfence.simulation.table import SweepHeader, read_rows
from ringfence.storage.files import read_key

PLACE = "@GOLDEN@"
"""Stands in golden files for the absolute path of the folder that they are in."""

_PRIVATE = (".key", ".token", ".ledger", ".db", ".sqlite")


def copy(golden: Path, target: Path, *parts: str) -> Path:
    """Copy golden documents, or parts of them, to where they may be changed, as they were when they were written."""
    for path in sorted(path for part in parts or (".",) for path in (golden / part).rglob("*")):
        if path.is_file():
            copied = target / path.relative_to(golden)
            copied.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            shutil.copyfile(path, copied)
            copied.chmod(0o600 if path.suffix in _PRIVATE else 0o644)
            if path.suffix in (".toml", ".json", ".default") and PLACE.encode() in path.read_bytes():
                copied.write_bytes(path.read_bytes().replace(PLACE.encode(), str(target).encode()))
    return target


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# -- plans and events --


def _listed(events: Iterable[tuple[Event, int]]) -> list[list[Any]]:
    """Return events as dictionaries with their counts, in an order of their own."""
    counts: dict[str, int] = {}
    for event, count in events:
        text = json.dumps(event.to_dict(), sort_keys=True)
        counts[text] = counts.get(text, 0) + count
    return [[json.loads(text), count] for text, count in sorted(counts.items())]


def _epsilons(events: list[tuple[Event, int]], delta: float) -> dict[str, float]:
    """Return what events cost against a server, and against one that works together with a shuffler."""
    return {
        "shuffled": accountant.epsilon(events, delta),
        "alone": accountant.epsilon(seen_by("anyone", events), delta),
    }


def plan_facts(path: Path) -> dict[str, Any]:
    """Return a plan's name, and what each silo would be charged."""
    plan = load_plan(path)
    silos = {}
    for terms in plan.silos:
        events = plan_events(plan, terms)
        delta = terms.guarantee.delta
        silos[terms.name] = {"events": _listed(events), "delta": delta, "epsilon": _epsilons(events, delta)}
    return {"digest": plan.digest(), "exchanges": plan.rounds, "dimension": plan.dimension, "silos": silos}


def event_again(content: bytes) -> dict[str, Any]:
    """Read an event and write it again."""
    return event_from_dict(json.loads(content)).to_dict()


def event_cost(content: bytes, delta: float) -> dict[str, float]:
    """Return what one such event costs."""
    return _epsilons([(event_from_dict(json.loads(content)), 1)], delta)


# -- silos --


def account_of(path: Path) -> dict[str, Any]:
    """Return what a ledger says."""
    with Ledger.open(path) as ledger:
        entries = ledger.entries()
        account = ledger.account()
        spent, reserved = account.charged(), account.reserved()
        delta = account.budget.delta
        return {
            "silo": account.silo,
            "budget": _budget(account.budget.limits),
            "entries": [[entry.number, entry.kind, entry.hash] for entry in entries],
            "refusals": account.refusals,
            "spent": {"events": _listed(spent), "epsilon": _epsilons(spent, delta)},
            "reserved": {"events": _listed(reserved), "epsilon": _epsilons(reserved, delta)},
            "plans": {
                digest: _plan_state(ledger, account.silo, approved) for digest, approved in account.plans.items()
            },
        }


def _budget(limits: Sequence[Guarantee]) -> dict[str, float]:
    """Return limits as 0.1.0 stated them: an epsilon, and another one against anyone where it was allowed."""
    stated = {"epsilon": against(limits, "server").epsilon, "delta": limits[0].delta}
    return stated if len(limits) == 1 else {**stated, "alone": against(limits, "anyone").epsilon}


def without_hashes(account: dict[str, Any]) -> dict[str, Any]:
    """Return what an account comes to, whatever noise and times are in it."""
    plans = {
        digest: {**plan, "answered": sorted(plan["answered"], key=int)} for digest, plan in account["plans"].items()
    }
    return {**{name: account[name] for name in ("silo", "budget", "spent", "reserved")}, "plans": plans}


def _plan_state(ledger: Ledger, silo: str, approved: ApprovedPlan) -> dict[str, Any]:
    terms = approved.plan.terms(silo)
    assert terms is not None
    rounds = sorted(approved.rounds.items())
    return {
        "state": approved.ended or "running",
        "covered": approved.covered,
        "exchanges": approved.plan.rounds,
        "charged": [number for number, _ in rounds],
        "answered": {
            str(number): sha256(ledger.stored(round.answer)) for number, round in rounds if round.answer is not None
        },
        "lost": [number for number, round in rounds if round.answer is None],
        "delta": terms.guarantee.delta,
        "epsilon": _epsilons(approved.charged(), terms.guarantee.delta),
    }


def ledger_of(folder: Path) -> Path:
    """Return where the ledger of a silo's folder is."""
    return SiloFolder.open(folder).ledger_path


def silo_facts(folder: Path) -> dict[str, Any]:
    """Return what stands in a silo's folder beside its ledger."""
    silo_folder = SiloFolder.open(folder)
    waiting = decisions.pending_plans(silo_folder, ())
    return {
        "name": silo_folder.name,
        "records": len(silo_folder.records()),
        "key": sha256(silo_folder.key()),
        "token": sha256(silo_folder.token().encode()),
        "port": silo_folder.settings.port,
        "waiting": sorted(waiting.plans),
    }


def keeping_of(folder: Path) -> dict[str, Any]:
    """Return how a silo's folder says that records are kept, without reading them."""
    settings = SiloFolder.open(folder).settings
    return {"precision": settings.precision, "kept_in": settings.kept_in}


def ask(folder: Path, requests: Sequence[bytes]) -> list[bytes]:
    """Ask a silo, through the gate of its folder, and return its answers."""
    silo_folder = SiloFolder.open(folder)
    with silo_folder.ledger() as ledger:
        gate = Gate(silo_folder.records(), ledger, silo_folder.key())
        return [gate.answer(RoundRequest.from_bytes(request)).to_bytes() for request in requests]


def describe(answer: bytes) -> dict[str, Any]:
    """Return which kind of answer this is, and why if it is a refusal."""
    read = parse_answer(answer)
    said = {"kind": read.kind, "round": read.round}
    return {**said, "reason": read.reason.value} if read.kind == "refusal" else said


def certificate_facts(path: Path, key: str | None = None) -> dict[str, Any]:
    """Check a certificate and return what it proves."""
    found = verify_file(path, key=key)
    # the last five are later than the first golden files
    told_apart = ("guarantee", "used", "budget", "same_user", "remarks", "colluders", "unit", "budgets")
    proved = {name: value for name, value in found.data().items() if name not in told_apart}
    epsilon, anyone = against(found.used, "server").epsilon, against(found.used, "anyone").epsilon
    budget = {"alone": against(found.budget, "anyone").epsilon, **_budget(found.budget)}
    if found.same_user:
        proved["same_user"] = True
    if found.remarks:
        proved["remarks"] = _reasons(found.remarks)
    return {**proved, "epsilon": epsilon, "alone_epsilon": anyone, "delta": budget["delta"], "budget": budget}


def _reasons(remarks: Iterable[str]) -> list[list[str]]:
    """Return what operators wrote of ledgers and data, without our words around it."""
    return [re.findall("“([^”]*)”", remark) for remark in remarks]


def certify(folder: Path, out: Path) -> dict[str, Any]:
    """Export the certificate of a silo's folder, check it, and return what it proves."""
    made = certificate.export(SiloFolder.open(folder), out)
    return certificate_facts(out, made.public_key)


# -- runs --


def transcript_facts(folder: Path) -> dict[str, Any]:
    """Return how far a run has come."""
    header, entries = transcript.read_transcript(folder)
    run = ConductedRun(header)
    kinds: list[str] = []
    answered: list[list[str]] = []
    for entry in entries:
        run.apply(entry)
        kinds.append(entry.kind)
        if isinstance(entry, transcript.Closed):
            answered.append(list(entry.answered))
    session = run.session
    return {
        "plan": header.plan.digest(),
        "seed": header.seed,
        "entries": kinds,
        "answered": answered,
        "round": session.round,
        "open": run.is_open,
        "finished": session.finished,
        "asked": [] if session.finished else session.asked(),
        "request": None if session.finished else sha256(session.request().to_bytes()),
        "weights": [] if session.finished else unpack(session.request().argument).tolist(),
        "held": {name: sha256(answer.to_bytes()) for name, answer in run.answers.items() if answer is not None},
    }


def replayed_weights(folder: Path) -> list[float]:
    """Return the model of a finished run, from its transcript alone."""
    weights: list[float] = replay(folder).weights.tolist()
    return weights


def resume(folder: Path) -> dict[str, Any]:
    """Go on with a run, through the real gates of its silos and the real shuffler, to its end.

    Returns whom the server asked in which round and what they answered, what the shuffler said to deposits and which
    batches it let out, and the model.
    """
    plan = load_plan(folder / "plan.json")
    asked: list[list[Any]] = []
    deposits: list[list[Any]] = []
    batches: dict[str, str] = {}
    with ExitStack() as opened:
        gates = {}
        for terms in plan.silos:
            silo_folder = SiloFolder.open(folder / "silos" / terms.name)
            gates[terms.name] = Gate(
                silo_folder.records(), opened.enter_context(silo_folder.ledger()), silo_folder.key()
            )

        def exchange(
            request: bytes, silos: Sequence[str], arrived: Callable[[str, bytes], None], seconds: float
        ) -> None:
            for name in silos:
                query = RoundRequest.from_bytes(request)
                answer = gates[name].answer(query).to_bytes()
                asked.append([query.round, name, sha256(answer)])
                arrived(name, answer)

        collect: Collect | None = None
        if plan.trust == "shuffler":
            key = read_key(folder / "server.key", PlanError)
            shuffler = opened.enter_context(Shuffler.open(folder / "shuffler", seconds=3600.0))

            def collect(round: int, updates: Sequence[SealedUpdate]) -> Totals | None:
                batch = shuffler.release(plan.digest(), round)
                if not isinstance(batch, bytes):
                    deposits.extend([round, u.silo, shuffler.deposit(u.to_bytes()).value] for u in updates)
                    batch = shuffler.release(plan.digest(), round)
                assert isinstance(batch, bytes), batch
                batches[str(round)] = sha256(batch)
                return read_batch(plan, key, round, batch)

        trained = conduct(plan, exchange, folder / "server", collect=collect)
    return {"asked": asked, "deposits": deposits, "batches": batches, "weights": trained.weights.tolist()}


def shuffler_facts(folder: Path) -> dict[str, Any]:
    """Return a shuffler's key, its plans, and their rounds."""
    with Shuffler.open(folder) as shuffler:
        return shuffler.status()


def handed_out(folder: Path, plan: str, round: int) -> bytes:
    """Fetch a batch that the shuffler has let out before."""
    with Shuffler.open(folder) as shuffler:
        batch = shuffler.release(plan, round)
    assert isinstance(batch, bytes)
    return batch


def opened_batch(plan: Path, key: Path, content: bytes) -> list[int]:
    """Open a batch with the server's key and return what it adds up to."""
    loaded = load_plan(plan)
    round = Batch.from_bytes(content).round
    numbers: list[int] = read_batch(loaded, read_key(key, PlanError), round, content).numbers.tolist()
    return numbers


def keys_of(path: Path) -> dict[str, Any]:
    """Return the public keys in a file of them."""
    return load_keys(path).model_dump()


# -- messages, models, tables --


def message_again(content: bytes) -> tuple[str, bytes]:
    """Read a message of any kind and write it again."""
    kind = json.loads(content).get("kind", "batch")
    if kind == "request":
        return kind, RoundRequest.from_bytes(content).to_bytes()
    return (kind, Batch.from_bytes(content).to_bytes()) if kind == "batch" else (kind, parse_answer(content).to_bytes())


def vector_in(content: bytes) -> list[float]:
    """Return the numbers of a request or an update."""
    document = json.loads(content)
    numbers: list[float] = unpack(document["argument" if document["kind"] == "request" else "vector"]).tolist()
    return numbers


def model_facts(path: Path, rows: Path) -> dict[str, Any]:
    """Return what a model predicts, its coefficients, and what it says of privacy."""
    model = Model.load(path)
    return {
        "plan": model.plan.digest(),
        "weights": unpack(model.weights).tolist(),
        "scores": np.asarray(model.scores(_encoded(model, rows))).tolist(),
        "predictions": model.predict_csv(rows),
        "rounds": dict(model.rounds),
        "statement": None if model.statement is None else model.statement.text(),
        **_remarks_of(model),
    }


def _remarks_of(model: Model) -> dict[str, Any]:
    silos = {} if model.statement is None else model.statement.silos
    remarks = {name: _reasons(guarantee.remarks) for name, guarantee in silos.items() if guarantee.remarks}
    return {"remarks": remarks} if remarks else {}


def _encoded(model: Model, rows: Path) -> Any:
    from ringfence.protocol.schema.encoding import encode_features
    from ringfence.sources import read_table

    return encode_features(model.plan.data, read_table(rows), source=rows.name)


def train_again(files: Sequence[Path], schema: Path, target: str, ledgers: Path) -> dict[str, float]:
    """Train once more on ledgers that exist, and return what each silo is guaranteed of all runs together.

    The ledgers are named, since this user's registry does not know them.
    """
    asked = PlanRequest(epsilon=0.5, delta=1e-6, rounds=2, algorithm="minibatch-sgd", held_out=0.0)
    named = sorted(ledgers.glob("*.ledger"))
    request = TrainRequest(files=files, schema=schema, target=target, plan=asked, same_data_as=named, anyway=True)
    silos = train_files(request).result.statement.silos
    return {name: guarantee.total.epsilon for name, guarantee in silos.items()}


def sweep_facts(path: Path) -> dict[str, Any]:
    """Return a sweep's label, parameters and rows."""
    header = SweepHeader.read(path)
    return {"label": header.label, "parameters": list(header.parameters), "rows": list(read_rows(path))}


SWEPT = CellGrid({"epsilon": [0.5, 1.0, float("inf")], "method": ["plain", "fast"]}, 2)


def sweep_task(cells: list[Cell]) -> list[dict[str, Any]]:
    """Return made-up results."""
    return [{"loss": 0.1 + 1.0 / float(cell["epsilon"]) + cell.trial, "ok": True, "note": "made up"} for cell in cells]


def finish_sweep(path: Path) -> list[dict[str, Any]]:
    """Run what is missing of a sweep, and return the cells that were run."""
    ran: list[dict[str, Any]] = []

    def task(cells: list[Cell]) -> list[dict[str, Any]]:
        ran.extend(dict(cell) for cell in cells)
        return sweep_task(cells)

    sweep(task, SWEPT, out=path, label="golden", block=2, workers=1)
    return ran
