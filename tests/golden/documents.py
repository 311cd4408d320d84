"""Writes the golden documents of version 1.0.0, once, through the real code: run by `python -m tests.golden.write`.

Noise, keys, tokens, times and seeds of servers are random, so a second run writes other documents of the same kinds.

Every silo has a state folder of its own while it is written: many are of the same records, which one user's registry
would refuse. The registry in `memory` holds absolute paths under its key, so that no placeholder can be put into it:
what it is about is written in /dev/shm/golden, which any machine has or can have.
"""

import csv
import io
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ringfence import protocol
from ringfence.accounting.charges import costs, plan_events
from ringfence.accounting.events import (
    BinomialRelease,
    DisjointBatchRelease,
    Event,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
    SectionRelease,
)
from ringfence.deployment.batch_collector import make_key
from ringfence.deployment.door import CarriedHead
from ringfence.errors import PlanError
from ringfence.evidence.dossier import signing
from ringfence.evidence.dossier.evidence import Inputs
from ringfence.evidence.dossier.writing import write_dossier
from ringfence.federation.custom_loss import custom_loss
from ringfence.model.model import Model
from ringfence.planning.propose import make_plan
from ringfence.planning.query_plans import make_evaluation_plan, make_query_plan, make_single_stage_plan, shared_facts
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, Plan, RoundRequest
from ringfence.protocol.axes import RankOneAxes
from ringfence.protocol.schema.schema import without_target
from ringfence.server.channels import Collect, Totals
from ringfence.server.channels.shuffler import read_batch
from ringfence.server.conduct import conduct
from ringfence.server.rounds import Session
from ringfence.shuffler import sealing
from ringfence.shuffler.shuffler import Shuffler
from ringfence.shuffler.store import Store
from ringfence.shuffler.witness import Witness
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate import mechanism
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.certificate import export
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.operator import decisions
from ringfence.silo.operator.setup import create_folder, make_settings
from ringfence.simulation.sweep import sweep
from ringfence.storage.files import read_key, write_private
from tests.golden import reading
from tests.support import rebuilt

DELTA = 1e-6
STAGES = protocol.MultiStage(
    smoothness=5.0, stages=(protocol.Restart(rounds=3, upsilon=1.0), protocol.Restart(rounds=5, upsilon=9.0))
)
PERSON_RULES: list[dict[str, Any]] = [
    {"person_rule": "mean"},
    {"person_rule": "rows", "rows_per_person": 3},
    {"person_rule": "sum"},
]
SIZES = {"clinic": 40, "north": 40, "west": 30}
NAMES = ("north", "west")
NEUTRAL = Path("/dev/shm/golden")

SCHEMAS = Path(__file__).parent / "schemas"


class Golden:
    """The folder that is being written, and where the state folders are meanwhile."""

    def __init__(self, folder: Path, states: Path) -> None:
        self.folder = folder
        self._states = states
        self.new_state()

    def new_state(self) -> None:
        """From here on be a user who has seen nothing yet."""
        os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(dir=self._states)

    def silo_folder(
        self, folder: Path, name: str, budget: Budget, *, data: str = "", schema: str = "small", **decided: Any
    ) -> SiloFolder:
        settings = make_settings(
            name=name,
            data_file=str(self.folder / "data" / f"{data or name}.csv"),
            schema_file=str(self.folder / "data" / f"schema-{schema}.toml"),
        )
        folder.parent.mkdir(parents=True, exist_ok=True)
        return create_folder(folder, settings, budget, **decided)

    def plan(
        self,
        run: str,
        *,
        target: str | list[str] = "ill",
        epsilon: float = 1.0,
        members: Sequence[Member] | None = None,
        **wishes: Any,
    ) -> Plan:
        members = members or [Member("clinic", SIZES["clinic"], epsilon, DELTA)]
        schema = protocol.load_schema(self.folder / "data" / "schema-small.toml", target)
        return make_plan(schema, members, PlanRequest(**{"run": run, "survey": False, **wishes}))

    def write(self, *plans: Plan) -> None:
        """Write plans by their runs' names."""
        for plan in plans:
            (self.folder / "plans" / f"{plan.run}.json").write_bytes(plan.content)

    def command(self, *words: str | Path) -> None:
        """Use the command line, as a user does."""
        called = [sys.executable, "-m", "ringfence", *map(str, words)]
        subprocess.run(called, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)


def gate_of(silo_folder: SiloFolder, ledger: Ledger) -> Gate:
    return Gate(silo_folder.current_records(ledger), ledger, silo_folder.key())


class Case:
    """A silo's folder, and every request that it got or will get: each shows the latest head, as a server does."""

    def __init__(self, golden: Golden, name: str, silo_folder: SiloFolder) -> None:
        self.silo_folder = silo_folder
        self.requests: list[bytes] = []
        self.answers: list[protocol.Answer] = []
        self.out = golden.folder / "requests" / f"{name}.jsonl"

    @classmethod
    def new(cls, golden: Golden, name: str, budget: Budget, **how: Any) -> "Case":
        golden.new_state()
        return cls(golden, name, golden.silo_folder(golden.folder / "silos" / name, "clinic", budget, **how))

    def approve(self, *plans: Plan, note: str = "") -> None:
        for plan in plans:
            decisions.approve_plan(self.silo_folder, plan, note=note)

    def request(self, plan: Plan, round: int, argument: FloatArray | None = None) -> bytes:
        if argument is None:
            argument = plan.domain.project(np.random.default_rng(round).normal(size=plan.dimension) * 0.1)
        asked = RoundRequest.at(plan.digest(), round, argument)
        heads = [answer.head for answer in self.answers if answer.head is not None]
        if heads:
            asked = asked.model_copy(update={"heads": (max(heads, key=lambda head: head.number),)})
        self.requests.append(asked.to_bytes())
        return self.requests[-1]

    def ask(self, plan: Plan, *rounds: int, argument: FloatArray | None = None) -> None:
        """One agent's life: open the folder, answer, close it."""
        with self.silo_folder.ledger() as ledger:
            gate = gate_of(self.silo_folder, ledger)
            for round in rounds:
                self.answers.append(gate.answer(RoundRequest.from_bytes(self.request(plan, round, argument))))

    def refused(self, plan: Plan, round: int, reason: protocol.RefusalReason) -> None:
        """Ask for what is refused for that reason."""
        self.ask(plan, round)
        answer = self.answers[-1]
        assert isinstance(answer, protocol.Refusal)
        assert answer.reason is reason

    def lose(self, plan: Plan, round: int) -> None:
        """Let an agent be killed after it has charged a round and before it has an answer."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(self.request(plan, round))
            file.flush()
            called = [sys.executable, "-m", "tests.golden.documents", "--die", str(self.silo_folder.path), file.name]
            done = subprocess.run(called, check=False)
        assert done.returncode == -signal.SIGKILL, done

    def withdraw(self, plan: Plan, round: int) -> None:
        """Let the operator revoke the plan while the round is computed."""
        compute = mechanism.release

        def revoked(*given: Any) -> Any:
            decisions.end_plan(self.silo_folder, plan.digest(), revoke=True, note="stop, whatever is under way")
            return compute(*given)

        mechanism.release = revoked  # type: ignore[assignment]
        try:
            self.refused(plan, round, protocol.RefusalReason.REVOKED)
        finally:
            mechanism.release = compute

    def close(self, *unfinished: Plan) -> None:
        """Write down what was asked, and what remains to be asked of these plans."""
        asked = {(r.plan, r.round) for r in map(RoundRequest.from_bytes, self.requests)}
        for plan in unfinished:
            for round in range(plan.rounds):
                if (plan.digest(), round) not in asked:
                    self.request(plan, round)
        self.out.write_bytes(b"".join(request + b"\n" for request in self.requests))


def die(folder: Path, request: Path) -> None:
    """Be an agent that is killed before it has an answer."""
    silo_folder = SiloFolder.open(folder)
    mechanism.release = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    with silo_folder.ledger() as ledger:
        gate_of(silo_folder, ledger).answer(RoundRequest.from_bytes(request.read_bytes()))


# -- plans --


def write_plans(golden: Golden) -> None:
    """A plan of every algorithm, sampling rule, query, kind of participation and rule for persons."""
    members = [Member(name, 40, 1.0, DELTA) for name in ("clinic", "north", "south")]
    small = protocol.load_schema(golden.folder / "data" / "schema-small.toml", "ill")
    persons = small.model_copy(update={"person": "patient"})
    said: dict[str, Any] = {"purpose": "who falls ill", "controller": "A Clinic", "contact": "dpo@clinic.example"}
    several = golden.plan("several-targets", target=["pressure", "cost"], rounds=4)
    golden.write(
        golden.plan("fixed", rounds=4, sampling="fixed", algorithm="minibatch-sgd"),
        golden.plan("poisson-sampling", rounds=4, sampling="poisson", algorithm="minibatch-sgd"),
        golden.plan("correlated", rounds=4, sampling="one-pass", correlation=0.5, algorithm="minibatch-sgd"),
        golden.plan("localized", algorithm="localized"),
        golden.plan("multi-stage", rounds=8, algorithm=STAGES, ridge=0.02),
        golden.plan("turns", members=members, algorithm="minibatch-sgd", rounds=6, available=2),
        golden.plan("elastic-net", rounds=4, algorithm="minibatch-sgd", lasso=0.01, ridge=0.02),
        golden.plan("answered-for", rounds=4, held_out=0.2, **said),
        several,
        make_evaluation_plan(
            several, protocol.pack(np.zeros(several.dimension)), members[:1], run="several-evaluation"
        ),
        *(
            make_plan(persons, members[:1], PlanRequest(run=f"persons-{more['person_rule']}", rounds=4, **more))
            for more in PERSON_RULES
        ),
    )


# -- silos --


def write_half_finished(golden: Golden) -> None:
    """A lost round among answered ones; and a certificate of before, whose entries are the later one's first."""
    plan = golden.plan("half-finished", rounds=4, algorithm="accelerated", survey=True)
    case = Case.new(golden, "half-finished", Budget(2.0, DELTA), note="as the board decided")
    case.approve(plan, note="read together with the statistician")
    case.ask(plan, 0)
    golden.command("silo", "certificate", case.silo_folder.path, "--out", "certificates/half-finished-earlier.json")
    case.lose(plan, 1)
    case.ask(plan, 2)
    golden.command("silo", "certificate", case.silo_folder.path, "--out", "certificates/half-finished.json")
    case.close(plan)


def write_composed(golden: Golden) -> None:
    """One ledger for queries about two columns, with every kind of entry, in the state of a silo that was moved."""
    case = Case.new(golden, "composed", Budget(4.0, DELTA), note="a first budget")
    others = {name: sealing.verifying_key(sealing.new_key()) for name in "bcd"}
    keys = protocol.PublicKeys(
        server=sealing.public_key(sealing.new_key()),
        shuffler=sealing.public_key(sealing.new_key()),
        silos={"clinic": sealing.verifying_key(case.silo_folder.key()), **others},
    )
    members = [Member(name, 40, 1.0, DELTA) for name in keys.silos]

    def made(name: str, **wishes: Any) -> Plan:
        return golden.plan(f"composed-{name}", **{"epsilon": 0.5, "algorithm": "minibatch-sgd", **wishes})

    ill, cost = made("ill", rounds=2), made("cost", target="cost", rounds=3)
    withdrawn, one_pass = made("withdrawn", rounds=3), made("one-pass", rounds=4, sampling="one-pass")
    shuffled = made("shuffled", rounds=3, trust="shuffler", keys=keys, members=members)
    waiting, declined = made("waiting", rounds=3, epsilon=0.1), made("declined", rounds=3, epsilon=0.2)
    case.approve(ill, note="the study of 2026")
    case.approve(cost, withdrawn)
    case.ask(ill, 0, 1)
    decisions.end_plan(case.silo_folder, ill.digest(), revoke=False, note="it has all that it needs")
    case.ask(cost, 0, 1)
    case.ask(withdrawn, 0)
    case.withdraw(withdrawn, 1)
    decisions.allow_same_user(case.silo_folder)
    decisions.set_budget(case.silo_folder, Budget(5.0, DELTA, anyone=15.0), note="more, after a year")
    golden.new_state()  # another machine
    golden.command("silo", "register", case.silo_folder.path)
    golden.new_state()  # and one where the records had a ledger
    with tempfile.TemporaryDirectory() as elsewhere:
        golden.silo_folder(Path(elsewhere) / "other", "clinic", Budget(1.0, DELTA))
        golden.command("silo", "register", case.silo_folder.path, "--reason", "nothing was released by the other")
    case.approve(shuffled, one_pass)
    case.lose(shuffled, 0)
    case.ask(shuffled, 1)
    case.ask(one_pass, 0, 1)
    case.refused(waiting, 0, protocol.RefusalReason.NOT_APPROVED)
    case.refused(withdrawn, 0, protocol.RefusalReason.REVOKED)  # not even the stored answer
    case.ask(ill, 0)  # ended: the stored answer
    case.ask(cost, 0, argument=np.zeros(cost.dimension))  # answered for another argument
    case.refused(shuffled, 0, protocol.RefusalReason.ROUND_LOST)
    case.refused(cost, 99, protocol.RefusalReason.ROUND_OUT_OF_RANGE)
    for plan in (waiting, declined):
        decisions.add_pending_plan(case.silo_folder, plan.content)
    decisions.refuse_pending_plan(decisions.plans_folder(case.silo_folder) / f"{declined.digest()}.json")
    write_private(case.silo_folder.path / "operator.token", secrets.token_hex(32).encode())
    case.close(cost, shuffled, one_pass)


def write_changed(golden: Golden) -> None:
    """A ledger that is a new beginning, and goes on for data whose rows were moved and then became more."""
    golden.new_state()
    data = golden.folder / "data" / "changed.csv"
    head, *rows = (golden.folder / "data" / "clinic.csv").read_text().splitlines()
    data.write_text("\n".join([head, *rows]) + "\n")
    with tempfile.TemporaryDirectory() as elsewhere:
        folder = golden.silo_folder(Path(elsewhere) / "former", "clinic", Budget(1.0, DELTA), data="changed")
        former, spent = Case(golden, "", folder), golden.plan("former", rounds=2)
        former.approve(spent)
        former.ask(spent, 0, 1)
        made = golden.silo_folder(
            golden.folder / "silos" / "changed", "clinic", Budget(3.0, DELTA), data="changed",
            new_beginning="consent was asked for anew",
        )  # fmt: skip
    case = Case(golden, "changed", made)
    first = golden.plan("changed-first", rounds=4)
    divided = golden.plan("changed-divided", rounds=4, sampling="one-pass", epsilon=0.5)
    case.approve(first, divided)
    case.ask(first, 0)
    case.ask(divided, 0)
    data.write_text("\n".join([head, *reversed(rows)]) + "\n")
    golden.command("silo", "update", case.silo_folder.path, "--reason", "sorted by the day of admission")
    case.ask(first, 1)  # goes on
    case.ask(divided, 1)  # its rows were moved
    data.write_text("\n".join([head, *reversed(rows), *(f"4{i},{30 + i},120,no,10" for i in range(3))]) + "\n")
    golden.command("silo", "update", case.silo_folder.path, "--reason", "three admissions in May")
    case.ask(first, 2)  # counts the records of before
    case.close(first, divided)


def write_queries(golden: Golden) -> None:
    """Queries with arguments of their own, and plans that train nothing; the silo keeps its records in files."""
    columns = without_target(protocol.load_columns(golden.folder / "data" / "schema-small.toml"))
    members = [Member("clinic", SIZES["clinic"], 0.5, DELTA)]
    trained = golden.plan("trained-before", rounds=2)
    weights = protocol.pack(np.zeros(trained.dimension))
    counts = protocol.Statistics(columns=("age", "ill"), cross=(("age", "ill"),), bins=16)
    statistics = make_query_plan(columns, members, counts, run="statistics")
    evaluation = make_evaluation_plan(trained, weights, members, against=weights, run="evaluation")
    moments = protocol.Stage(query=protocol.SecondMoments(start=weights), rounds=4, sampling=protocol.Full())
    summary = make_single_stage_plan(moments, members, run="summary", **shared_facts(trained))
    wishes: dict[str, Any] = {"epsilon": 0.5, "survey": True, "rounds": 3}
    preconditioned = golden.plan("preconditioned", algorithm="preconditioned", **wishes)
    rank_one = golden.plan("rank-one", algorithm=protocol.Preconditioned(axes="rank-one"), **wishes)
    golden.write(statistics, evaluation, summary, preconditioned, rank_one)
    case = Case.new(golden, "queries", Budget(6.0, DELTA))
    with (case.silo_folder.path / "silo.toml").open("a") as file:
        file.write('precision = "single"\nkept_in = "files"\nround_seconds = 600.0\nround_memory = 1000.0\n')
    case.silo_folder = SiloFolder.open(case.silo_folder.path)
    width = preconditioned.data.width
    axes = {
        preconditioned.digest(): 2.0 * np.eye(width).reshape(-1),
        rank_one.digest(): RankOneAxes(2.0, 0.5 * np.eye(width)[-1]).packed(),
    }
    for plan in (statistics, evaluation, summary, preconditioned, rank_one):
        case.approve(plan)
        first = protocol.unpack(Session(plan, np.random.default_rng(0)).request().argument)
        surveyed = plan.first_rounds[-1] if plan.digest() in axes else plan.rounds
        answered = min(2, plan.rounds)
        case.ask(plan, *range(answered), argument=first)
        for round in range(answered, surveyed):
            case.request(plan, round, first)
        for round in range(surveyed, plan.rounds):
            case.request(plan, round, np.concatenate([np.zeros(plan.dimension), axes[plan.digest()]]))
    assert all(isinstance(answer, protocol.NoisyUpdate) for answer in case.answers)
    case.close()


def write_visits(golden: Golden) -> None:
    """Plans of all losses, roles, maps and types of columns, and a silo half way through some.

    Nobody has installed the loss of `custom` where it is read: it is only charged for.
    """
    (golden.folder / "data" / "visits.csv").write_text(visits())
    maps = [
        {"type": "spline", "columns": ["age"], "knots": [30.0, 60.0], "degree": 2},
        {"type": "spline", "columns": ["days"], "knots": 4},
        {"type": "cyclic", "columns": ["days"], "period": 60, "harmonics": 2, "keep": True},
        {"type": "interaction", "columns": ["age", "days"]},
        {"type": "fourier", "columns": ["age", "days"], "features": 6, "scale": 0.5, "seed": 7},
    ]

    def members(epsilon: float) -> list[Member]:
        return [Member("clinic", SIZES["clinic"], epsilon, DELTA)]

    def schema(target: str, **roles: Any) -> protocol.Schema:
        return protocol.parse_schema({**columns_of_visits(), **roles}, target=target)

    asked: dict[str, tuple[protocol.Schema, Any, dict[str, Any]]] = {
        "poisson": (schema("falls", exposure="days"), "poisson", {}),
        "negative-binomial": (schema("falls", offset="risk"), "negative-binomial", {"dispersion": 0.5}),
        "gamma": (schema("cost", weight="counts_for"), "gamma", {}),
        "survival": (schema("months", event="died"), "survival", {"cuts": (12.0, 24.0)}),
        "ordinal": (schema("stage", class_weights={"I": 0.5, "II": 1.0, "III": 2.0}), "ordinal", {}),
        "softmax": (schema("stage"), "softmax", {}),
        "mapped": (schema("ill", class_weights={"no": 1.0, "yes": 3.0}, maps=maps), "logistic", {}),
        "custom": (schema("falls"), custom_loss(log_cosh, largest_score=6.0), {}),
    }
    case = Case.new(golden, "visits", Budget(6.0, DELTA), data="visits", schema="visits")
    later: list[tuple[Plan, FloatArray]] = []
    for number, (name, (data, loss, more)) in enumerate(asked.items()):  # other epsilons: no two charges are alike
        wishes = PlanRequest(run=f"visits-{name}", rounds=3, survey=False, algorithm="minibatch-sgd", loss=loss, **more)
        plan = make_plan(data, members(0.2 + 0.01 * number), wishes)
        weights = protocol.pack(np.zeros(plan.dimension))
        evaluation = make_evaluation_plan(plan, weights, members(0.1 + 0.01 * number), run=f"visits-{name}-evaluation")
        golden.write(plan, evaluation)
        if name != "custom":
            case.approve(plan, evaluation)
            case.ask(plan, 0, 1)
            later.append(
                (evaluation, protocol.unpack(Session(evaluation, np.random.default_rng(0)).request().argument))
            )
    columns = without_target(protocol.load_columns(golden.folder / "data" / "schema-visits.toml"))
    query = protocol.SurvivalCurve(time="months", event="died", cuts=(12.0, 24.0, 48.0))
    curve = make_query_plan(columns, members(0.25), query, run="visits-survival-curve")
    golden.write(curve)
    case.approve(curve)
    case.ask(curve, 0, argument=protocol.unpack(Session(curve, np.random.default_rng(0)).request().argument))
    for evaluation, first in later:
        case.ask(evaluation, 0, argument=first)
    assert all(isinstance(answer, protocol.NoisyUpdate) for answer in case.answers)
    for evaluation, first in later:
        case.request(evaluation, 1, first)
    with case.silo_folder.ledger() as ledger:
        case.close(*(plan for plan in ledger.account().approved_plans if plan.training is not None))


def columns_of_visits() -> dict[str, Any]:
    return tomllib.loads((SCHEMAS / "schema-visits.toml").read_text())


def log_cosh(score: Any, target: Any) -> Any:
    return jnp.logaddexp(score - target, target - score)


def visits() -> str:
    """Return made-up records, in which every way to say nothing occurs, and other spellings."""

    def cells(i: int) -> list[object]:
        return [
            f"p{i:02}", ("", "unknown", f"{1 + i % 28:02}.{1 + i % 12:02}.{2020 + i % 5}")[min(i, 2)],
            f"{2020 + i % 6}-{1 + i % 12:02}-{1 + i % 28:02}", ("n/a", "-1", "", 20 + i)[min(i, 3)],
            ("not asked", "", "Yes", "no", "TRUE", "f", 0, 1)[i % 8], ("yes", "no")[i % 2],
            ("-", "", 1, "02", 7, 99)[i % 6], ("", 10, 20)[i % 3],
            ("unclear", "", "coast", "shore", "sea", "hill", "hills", "abroad")[i % 8],
            ("none", "", "slept well", "slept badly and fell")[i % 4], ("", "all is well", "came by bus")[i % 3],
            ("lost", "", f"{i % 5} {i % 3 - 1} 0.5", f"[{i % 2}, 1.5, -{i % 4}]")[i % 4],
            ("no", "yes")[i % 3 == 0], ("I", "II", "III")[i % 3], i % 5, 1 + 13 * i, 1 + 3 * i % 60,
            ("no", "yes")[i % 2], 10 + 9 * i, i % 4 - 1, i % 4,
        ]  # fmt: skip

    with io.StringIO(newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns_of_visits()["columns"])
        writer.writerows(map(cells, range(SIZES["clinic"])))
        return file.getvalue()


def write_personalised(golden: Golden) -> None:
    """A silo that used a model inside of its folder: entries without cost, and its own model."""
    from ringfence.model.personal import compare, personalise

    plan = golden.plan("personalised", epsilon=0.5, rounds=2)
    case = Case.new(golden, "personalised", Budget(2.0, DELTA))
    case.approve(plan)
    case.ask(plan, 0)
    model = Model.of(plan, np.full(plan.dimension, 0.1), {"clinic": 2})
    compare(case.silo_folder, model)
    personalise(case.silo_folder, model, note="for the ward")
    case.close(plan)


# -- runs --


class StoppedError(BaseException):
    """The server's process ends here."""


def run_until_stopped(
    plan: Plan,
    silo_folders: dict[str, SiloFolder],
    server: Path,
    *,
    lost: int | None = None,
    collect: Collect | None = None,
) -> None:
    """Conduct a run. In round `lost` the second silo answers, but the server is gone before its answer arrives."""
    with ExitStack() as opened:
        gates = {name: gate_of(own, opened.enter_context(own.ledger())) for name, own in silo_folders.items()}

        def exchange(
            request: bytes, silos: Sequence[str], arrived: Callable[[str, bytes], None], seconds: float
        ) -> None:
            asked = RoundRequest.from_bytes(request)
            for number, name in enumerate(silos):
                answer = gates[name].answer(asked).to_bytes()
                if (asked.round, number) == (lost, 1):
                    raise StoppedError
                arrived(name, answer)

        try:
            conduct(plan, exchange, server, collect=collect)
        except StoppedError:
            return


def begin_run(plan: Plan, silo_folders: dict[str, SiloFolder], folder: Path) -> None:
    """Write the plan, and let every silo approve it."""
    (folder / "plan.json").write_bytes(plan.content)
    for silo_folder in silo_folders.values():
        decisions.approve_plan(silo_folder, plan)


def write_open_runs(golden: Golden) -> None:
    """A finished run; and one that was stopped in round 2, while the server wrote a line."""
    members = [Member(name, SIZES[name], 2.0, DELTA) for name in NAMES]
    for run, lost in (("finished", None), ("surveyed", 2)):
        golden.new_state()
        folder = golden.folder / "runs" / run
        silo_folders = {name: golden.silo_folder(folder / "silos" / name, name, Budget(4.0, DELTA)) for name in NAMES}
        plan = golden.plan(run, members=members, rounds=4, algorithm="accelerated", survey=True)
        begin_run(plan, silo_folders, folder)
        run_until_stopped(plan, silo_folders, folder / "server", lost=lost)
    with (folder / "server" / "transcript.jsonl").open("r+b") as file:
        line = file.readlines()[-1]
        file.write(line[: len(line) // 2])


def with_survey(plan: Plan) -> Plan:
    """The plan with a survey in the open before its own stages, and guarantees to match."""
    survey = protocol.Stage(query=protocol.Curvature(), rounds=1, sampling=protocol.Full())

    def terms(own: protocol.SiloTerms) -> protocol.SiloTerms:
        return own.model_copy(update={"stages": (protocol.StageTerms(batch=own.records, sigma=0.5), *own.stages)})

    made = rebuilt(plan, stages=(survey, *plan.stages), silos=tuple(map(terms, plan.silos)))

    def promised(own: protocol.SiloTerms) -> protocol.SiloTerms:
        spent = costs(plan_events(made, own), made.observers, own.guarantee.delta)
        claimed = tuple(cost.model_copy(update={"epsilon": 1.001 * cost.epsilon}) for cost in spent)
        return own.model_copy(update={"guarantees": claimed})

    return rebuilt(made, silos=tuple(map(promised, made.silos)))


def write_shuffled_run(golden: Golden) -> None:
    """A survey in the open, a round through a shuffler, and one in which that has the deposit of one silo out of two.

    Its witness, in `state`, knows of one decision.
    """
    golden.new_state()
    folder = golden.folder / "runs" / "shuffled"
    budget = Budget(5.0, DELTA, anyone=20.0)
    silo_folders = {name: golden.silo_folder(folder / "silos" / name, name, budget) for name in NAMES}
    with Store.create(folder / "shuffler") as store:
        shuffler_key = Shuffler(store).public_key
    silo_keys = {name: sealing.verifying_key(silo_folder.key()) for name, silo_folder in silo_folders.items()}
    keys = protocol.PublicKeys(server=make_key(folder / "server.key"), shuffler=shuffler_key, silos=silo_keys)
    lines = [f'server = "{keys.server}"', f'shuffler = "{keys.shuffler}"', "[silos]"]
    (folder / "keys.toml").write_text("\n".join([*lines, *(f'{n} = "{k}"' for n, k in silo_keys.items())]) + "\n")
    wishes: dict[str, Any] = {"algorithm": "accelerated", "trust": "shuffler", "colluders": 0, "keys": keys}
    members = [Member(name, SIZES[name], 4.0, DELTA) for name in NAMES]
    plan = with_survey(golden.plan("shuffled", members=members, rounds=2, **wishes))
    begin_run(plan, silo_folders, folder)
    with Store(folder / "shuffler") as store:
        shuffler = Shuffler(store, seconds=3600.0, witness=Witness(store))
        shuffler.add(plan)
        shuffler.settle()

        def collect(round: int, updates: Sequence[protocol.SealedUpdate]) -> Totals:
            for update in updates if round == 1 else updates[:1]:
                shuffler.deposit(update.to_bytes())
            (golden.folder / "messages" / "sealed.json").write_bytes(updates[0].to_bytes())
            if round == 2:
                raise StoppedError
            batch = shuffler.release(plan.digest(), round)
            assert isinstance(batch, bytes)
            (golden.folder / "messages" / "batch.json").write_bytes(batch)
            return read_batch(plan, read_key(folder / "server.key", PlanError), round, batch)

        run_until_stopped(plan, silo_folders, folder / "server", collect=collect)
    seen = Path(os.environ["XDG_STATE_HOME"]) / "ringfence" / "shufflers"
    shutil.copytree(seen, folder / "state" / "ringfence" / "shufflers")


# -- messages, events, models, certificates, dossiers, sweeps, kits, a user's memory --


def write_messages(golden: Golden) -> None:
    """What carries a head, and every refusal."""
    golden.new_state()
    out = golden.folder / "messages"
    with tempfile.TemporaryDirectory() as elsewhere:
        case = Case(golden, "", golden.silo_folder(Path(elsewhere) / "silo", "clinic", Budget(3.0, DELTA)))
        plan = golden.plan("messages", rounds=3)
        case.approve(plan)
        case.ask(plan, 0, 1)
    (out / "request.json").write_bytes(case.requests[-1])
    (out / "update.json").write_bytes(case.answers[-1].to_bytes())
    for reason in protocol.RefusalReason:
        refusal = protocol.Refusal(
            plan=plan.digest(), round=7, silo="clinic", reason=reason, head=case.answers[-1].head
        )
        (out / f"refusal-{reason.value}.json").write_bytes(refusal.to_bytes())


def write_events(golden: Golden) -> None:
    events: dict[str, Event] = {
        "gaussian": GaussianRelease(0.25),
        "fixed-size": FixedSizeRelease(40, 8, 0.5),
        "poisson": PoissonRelease(0.2, 0.5),
        "disjoint-batch": DisjointBatchRelease("pass", 3, 0.5),
        "binomial": BinomialRelease(12.000000001, 3000, 1000, 3, 1e-9),
        "binomial-of-a-part": BinomialRelease(12.000000001, 3000, 1000, 3, 1e-9, "pass", 2),
        "section": SectionRelease("0.2 held out", "held-out", GaussianRelease(0.25)),
    }
    for name, event in events.items():
        (golden.folder / "events" / f"{name}.json").write_text(json.dumps(event.to_dict()))


def write_models(golden: Golden) -> None:
    """A trained model and its silos' ledgers; a model chosen from two candidates, and the plan that compared them."""
    golden.new_state()
    train = [
        "train", *(f"data/{silo}.csv" for silo in NAMES), "--schema=data/schema-small.toml", "--target=ill",
        "--epsilon=2", "--delta=1e-6", "--no-report", "--rounds=2", "--anyway",
    ]  # fmt: skip
    golden.command(*train, "--ledgers=models/ledgers", "--out=models/trained.json")
    golden.new_state()
    with tempfile.TemporaryDirectory() as elsewhere:
        golden.command(*train, f"--ledgers={elsewhere}", "--try=clip=0.5,auto", "--out=models/chosen.json")
    chosen = Model.load(golden.folder / "models" / "chosen.json")
    assert chosen.choice is not None
    (golden.folder / "plans" / "compared.json").write_bytes(chosen.choice.plans[-1].content)


def write_certificates(golden: Golden) -> None:
    """Certificates of ledgers, and a dossier of one of them with its signature."""
    for place, name in (
        ("silos/composed", "composed"),
        ("silos/changed", "changed"),
        ("runs/surveyed/silos/north", "surveyed-north"),
        ("runs/shuffled/silos/west", "shuffled-west"),
    ):
        golden.new_state()
        export(SiloFolder.open(golden.folder / place), golden.folder / "certificates" / f"{name}.json")
    plan, key = golden.folder / "runs" / "surveyed" / "plan.json", golden.folder / "signing.key"
    signing.make_key(key)
    inputs = Inputs(plan=plan, certificates=[golden.folder / "certificates" / "surveyed-north.json"])
    write_dossier(inputs, key, golden.folder / "dossiers" / "dossier.html")
    key.unlink()


def write_sweep(golden: Golden) -> None:
    """A sweep that was stopped, with a line that was being written."""
    some = [cell for number, cell in enumerate(reading.SWEPT) if number < 7]
    out = golden.folder / "sweep" / "sweep.jsonl"
    sweep(reading.sweep_task, some, out=out, label="golden", block=2, workers=1)
    with out.open("ab") as file:
        file.write(b'{"epsilon": 0.5, "meth')


def write_kit(golden: Golden) -> None:
    """A federation's folder, and what our own code writes into NVFlare's startup kits, or reads from them."""
    golden.new_state()
    kept = {
        "silos/north": [
            "local/resources.json", "local/authorization.json", "local/ringfence.toml", "startup/fed_client.json",
            "startup/rootCA.pem", "startup/client.crt", "startup/client.key",
        ],
        "federation/admin": ["startup/fed_admin.json"],
        "federation": [
            "federation.toml", "authority/cert.json", "admitted/north.crt", "admitted/server.example.crt",
            "north.request", "north.response",
        ],
    }  # fmt: skip
    silo_folder = golden.silo_folder(golden.folder / "kit" / "silo", "north", Budget(1.0, DELTA))
    with tempfile.TemporaryDirectory() as elsewhere:
        made = Path(elsewhere).resolve()
        federation, kit = made / "federation", made / "silos" / "north"
        golden.command(
            "federation", "init", federation, "--server=server.example:8002", "--silo=north", "--silo=south", "--here"
        )
        kit.parent.mkdir()
        golden.command("silo", "request", kit, "--name=north")
        shutil.move(kit.with_name("north.request"), federation)
        golden.command("federation", "sign", federation, federation / "north.request")
        golden.command("silo", "join", silo_folder.path, kit, federation / "north.response", "--same-user")
        for part, files in kept.items():
            for file in files:
                target = golden.folder / "kit" / part.removeprefix("federation/") / file
                target.parent.mkdir(parents=True, exist_ok=True)
                content = (made / part / file).read_bytes()
                target.write_bytes(content.replace(str(made).encode(), f"{golden.folder}/kit".encode()))


def write_memory(golden: Golden) -> None:
    """A user's state folder, the silo that it knows, and an older copy of that silo's ledger."""
    NEUTRAL.mkdir()
    try:
        os.environ["XDG_STATE_HOME"] = str(NEUTRAL / "state")
        golden.silo_folder(NEUTRAL / "former", "clinic", Budget(1.0, DELTA))
        begun = golden.silo_folder(
            NEUTRAL / "begun", "clinic", Budget(2.0, DELTA), new_beginning="the first was a trial"
        )
        begun.path.rename(NEUTRAL / "silo")
        case = Case(golden, "memory", SiloFolder.open(NEUTRAL / "silo"))
        plan = golden.plan("memory", rounds=4)
        case.approve(plan)
        case.ask(plan, 0)
        shutil.copyfile(case.silo_folder.ledger_path, NEUTRAL / "older.ledger")
        case.ask(plan, 1, 2)
        CarriedHead("unix:a-door").keep(case.answers[-1].to_bytes())
        case.close(plan)
        for part in ("state", "silo", "older.ledger"):
            shutil.move(NEUTRAL / part, golden.folder / "memory" / part)
        shutil.move(case.out, golden.folder / "memory" / "requests.jsonl")
        (golden.folder / "memory" / "state" / "ringfence" / "registry.lock").unlink()
    finally:
        shutil.rmtree(NEUTRAL)


def write_data(golden: Golden) -> None:
    """Made-up records of three silos, rows to predict, and a schema."""
    data = golden.folder / "data"
    shutil.copytree(SCHEMAS, data, dirs_exist_ok=True)
    (data / "new.csv").write_text("age,pressure,cost\n70,150,10\n30,110,200\n,95,5\n150,260,999\n52,131,77\n")
    for seed, (name, size) in enumerate(SIZES.items()):
        random, lines = np.random.default_rng(seed), ["patient,age,pressure,ill,cost"]
        for patient in range(size):
            age, pressure, cost = random.integers(20, 95), random.integers(90, 180), random.uniform(0, 1100)
            ill = "yes" if age + random.normal() * 20 > 60 else "no"
            lines.append(f"{patient},{age},{pressure},{ill},{cost:.2f}")
        (data / f"{name}.csv").write_text("\n".join(lines) + "\n")


def write_documents(folder: Path) -> None:
    """Write all of them into an empty folder."""
    parts = "certificates data dossiers events memory messages models/ledgers plans requests sweep"
    for part in parts.split():
        (folder / part).mkdir(parents=True)
    with tempfile.TemporaryDirectory() as states:
        golden = Golden(folder.resolve(), Path(states))
        for write in (
            write_data, write_plans, write_half_finished, write_composed, write_changed, write_queries, write_visits,
            write_personalised, write_open_runs, write_shuffled_run, write_messages, write_events, write_models,
            write_certificates, write_sweep, write_kit, write_memory,
        ):  # fmt: skip
            write(golden)


if __name__ == "__main__":
    die(Path(sys.argv[2]), Path(sys.argv[3]))
