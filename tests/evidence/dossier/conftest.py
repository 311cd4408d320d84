"""A real run of two silos with folders, ledgers and keys, one of them with a hostile name, and all that it left."""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

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
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.certificate import export
from ringfence.silo.operator.decisions import approve_plan
from tests.evidence.report.conftest import AUDIT, HOSTILE
from tests.silo.agents import make_silo_folder

RECORDS = 120
NOTE = "by vote of the board"


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

    def file(self, name: str) -> Path:
        """Return one of the run's files: model.json, audit.json, plan.json, or signing.key, which signs dossiers."""
        return self.folder / name

    def everything(self) -> Inputs:
        """All that there is, and nothing missing but the statement of a model that a server made."""
        return Inputs(
            model=self.file("model.json"),
            certificates=[self.certificate(name) for name in self.silos],
            audit=self.file("audit.json"),
            keys={name: self.key(name) for name in self.silos},
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A plan, trained and evaluated by two silos through their gates, with certificates, a model and an audit."""
    folder = tmp_path_factory.mktemp("run")
    silos = {}
    for place, name in enumerate(("clinic", HOSTILE)):
        (folder / str(place)).mkdir()
        silos[name] = make_silo_folder(folder / str(place), name=name, records=RECORDS, seed=place)
    schema = load_schema(folder / "0" / "schema.toml", "ill")
    request = PlanRequest(
        epsilon=1.0, delta=1e-6, rounds=3, purpose=HOSTILE, controller="A Clinic, Anytown", contact="dpo@clinic.example"
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
    Model.of(plan, trained.weights, answered, evaluation=evaluation_of_run(plan, trained.findings)).save(
        made.file("model.json")
    )
    made.file("plan.json").write_bytes(plan.content)
    made.file("audit.json").write_text(json.dumps(AUDIT))
    make_key(made.file("signing.key"))
    return made
