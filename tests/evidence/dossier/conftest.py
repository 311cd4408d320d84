"""A real run of two silos with folders, ledgers and keys, one of them with a hostile name, and all that it left."""

import csv
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ringfence.evidence.dossier.evidence import Inputs
from ringfence.evidence.dossier.signing import make_key
from ringfence.model.model import Model
from ringfence.planning.propose import propose_for
from ringfence.planning.request import PlanRequest
from ringfence.protocol import Plan, RoundRequest, load_schema
from ringfence.server.conduct import conduct, rounds_answered
from ringfence.server.queries.evaluation import evaluation_of_run
from ringfence.shuffler.sealing import verifying_key
from ringfence.silo.folder import SiloFolder, make_settings
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.certificate import export
from ringfence.silo.operator.decisions import approve_plan
from tests.silo.agents import SCHEMA

HOSTILE = "<img src=x onerror=alert(1)>&amp;"
"""A silo's name, and a plan's purpose, chosen by somebody else."""

RECORDS = 120
NOTE = "by vote of the board"

AUDIT = {
    "epsilon_claimed": 3.0, "epsilon_lower": 2.61, "confidence": 0.999999, "refuted": False,
    "epsilon_lower_any_mechanism": 0.7, "delta": 1e-5, "mechanism": "full", "sabotage": "none", "records": 64,
    "rounds": 2, "runs": 1200, "score": 0.9021, "score_allowed": 0.91, "score_lower": 0.9, "findings": [],
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Files of a finished run, and the silos' folders."""

    folder: Path
    plan: Plan
    silos: dict[str, SiloFolder]

    def certificate(self, name: str) -> Path:
        """The silo's certificate."""
        return self.folder / f"{list(self.silos).index(name)}.certificate.json"

    def key(self, name: str) -> str:
        """The silo's public key."""
        return verifying_key(self.silos[name].key())

    @property
    def model(self) -> Path:
        """The model's file."""
        return self.folder / "model.json"

    @property
    def signing_key(self) -> Path:
        """The key of whoever writes dossiers."""
        return self.folder / "signing.key"

    def everything(self) -> Inputs:
        """All that there is, and nothing missing but the statement of a model that a server made."""
        return Inputs(
            model=self.model,
            certificates=[self.certificate(name) for name in self.silos],
            audit=self.folder / "audit.json",
            keys={name: self.key(name) for name in self.silos},
        )


def make_silo(folder: Path, name: str, seed: int) -> SiloFolder:
    """Make a silo's folder with records of its own."""
    folder.mkdir()
    (folder / "schema.toml").write_text(SCHEMA)
    random = np.random.default_rng(seed)
    with (folder / "records.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["a", "b", "c", "ill"])
        for cells in random.uniform(-1, 1, (RECORDS, 3)):
            rows.writerow([*(f"{cell:.9f}" for cell in cells), "yes" if cells[0] + cells[1] > 0 else "no"])
    data, schema = str(folder / "records.csv"), str(folder / "schema.toml")
    settings = make_settings(name=name, data_file=data, schema_file=schema)
    return SiloFolder.create(folder / "silo", settings, Budget(2.0, 1e-5))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A plan, trained and evaluated by two silos through their gates, with certificates, a model and an audit."""
    folder = tmp_path_factory.mktemp("run")
    silos = {name: make_silo(folder / str(place), name, place) for place, name in enumerate(("clinic", HOSTILE))}
    schema = load_schema(folder / "0" / "schema.toml", "ill")
    request = PlanRequest(
        epsilon=1.0, delta=1e-5, rounds=3, purpose=HOSTILE, controller="A Clinic, Anytown", contact="dpo@clinic.example"
    )
    plan = propose_for(request, schema, dict.fromkeys(silos, RECORDS)).plan
    with ExitStack() as opened:
        gates: dict[str, Gate] = {}
        for name, silo in silos.items():
            approve_plan(silo, plan, note=NOTE)
            gates[name] = Gate(silo.records(), opened.enter_context(silo.ledger()), silo.key())

        def exchange(content: bytes, names: Sequence[str], arrived: Callable[[str, bytes], None], _: float) -> None:
            for name in names:
                arrived(name, gates[name].answer(RoundRequest.from_bytes(content)).to_bytes())

        trained = conduct(plan, exchange, folder / "server", seconds=30.0)
    made = Run(folder, plan, silos)
    for name, silo in silos.items():
        export(silo, made.certificate(name))
    answered = rounds_answered(plan, trained.history)
    Model.of(plan, trained.weights, answered, evaluation=evaluation_of_run(plan, trained.findings)).save(made.model)
    (folder / "audit.json").write_text(json.dumps(AUDIT))
    make_key(made.signing_key)
    return made
