"""A small federation that trusts a shuffler, in one process: real keys, records, ledgers, gates and shuffler."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ringfence import protocol
from ringfence.federation.local_shuffler import LocalShuffler, local_shuffler
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol.channels.shuffler import SEALED_EXTRA
from ringfence.shuffler import sealing, shares
from ringfence.shuffler.vector_sum import Counts
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import Records

NAMES = ("clinic", "north", "west")
DELTA = 1e-6


def shuffle_of(plan: protocol.Plan) -> protocol.ShufflerChannel:
    """Return the shuffler's channel, through which the answers of the plan's last stage go."""
    channel = plan.stages[-1].channel
    assert isinstance(channel, protocol.ShufflerChannel)
    return channel


def numbers_of(plan: protocol.Plan) -> int:
    """Return how many numbers a silo's shares carry."""
    return shuffle_of(plan).numbers(plan, plan.stages[-1])


def schema_of(features: int) -> protocol.Schema:
    """So many numbers in [-1, 1] and a yes/no target."""
    columns: dict[str, Any] = {f"x{i}": {"type": "numeric", "lower": -1.0, "upper": 1.0} for i in range(features)}
    columns["ill"] = {"type": "categorical", "categories": ["no", "yes"]}
    return protocol.parse_schema({"columns": columns}, target="ill")


def records_of(schema: protocol.Schema, count: int, seed: int) -> Records:
    random = np.random.default_rng(seed)
    features = random.uniform(-1, 1, (count, schema.width))
    features[:, -1] = 1.0
    return Records(schema, features, np.where(features[:, 0] > 0, 1.0, -1.0))


def make_shuffled_plan(
    schema: protocol.Schema,
    keys: protocol.PublicKeys,
    sizes: Mapping[str, int],
    *,
    quorum: int | None = None,
    bits: int | None = None,
    **said: Any,
) -> protocol.Plan:
    """Make a plan for silos of these sizes, without a survey; whatever else is said goes to the planner."""
    if not {"algorithm", "step"} & said.keys():
        said["algorithm"] = "bounded"
    epsilon, delta = said.pop("epsilon", 1.0), said.pop("delta", DELTA)
    members = [Member(name, records, epsilon, delta) for name, records in sizes.items()]
    request = PlanRequest(trust="shuffler", keys=keys, quorum=quorum, bits=bits, **{"rounds": 3, **said})
    return make_plan(schema, members, request)


def plan_through(
    channel: protocol.ShufflerChannel,
    schema: protocol.Schema,
    sizes: Mapping[str, int],
    keys: Mapping[str, str],
    *,
    clip: float = 1.0,
    rounds: int = 1,
    asked: int | None = None,
) -> protocol.Plan:
    """Make a plan of this very channel, by no planner: what it promises is not what it costs."""
    silos = tuple(
        protocol.SiloTerms(
            name=name,
            records=records,
            weight=records / sum(sizes.values()),
            guarantees=tuple(protocol.Guarantee(epsilon=9.0, delta=DELTA, against=each) for each in channel.observers),
            stages=(protocol.StageTerms(batch=records, sigma=channel.sigma(clip, records)),),
            key=keys[name],
        )
        for name, records in sizes.items()
    )
    stage = protocol.Stage(
        query=protocol.Gradient(clip=clip),
        rounds=rounds,
        sampling=protocol.Full(),
        channel=channel,
        participation=protocol.Participation(silos=asked),
    )
    training = protocol.Training(
        loss=protocol.Logistic(), domain=protocol.WholeSpace(), algorithm=protocol.MinibatchSGD(step=0.1)
    )
    return protocol.Plan(run="mixed", data=schema, training=training, stages=(stage,), silos=silos)


@dataclass(frozen=True)
class Federation:
    """Silos that have approved a plan, its shuffler, and everybody's keys."""

    plan: protocol.Plan
    local: LocalShuffler
    records: dict[str, Records]
    gates: dict[str, Gate]

    def ask(self, request: protocol.RoundRequest, silos: Sequence[str]) -> dict[str, protocol.Answer]:
        """Have the silos answer, as a server would."""
        return {name: self.gates[name].answer(request) for name in silos}

    def answers(self, round: int, *names: str) -> list[protocol.SealedUpdate]:
        """Return the sealed answers of these silos, or all, at weights 0."""
        request = protocol.RoundRequest.at(self.plan.digest(), round, np.zeros(self.plan.dimension))
        answers = self.ask(request, names or tuple(self.gates)).values()
        sealed = [answer for answer in answers if isinstance(answer, protocol.SealedUpdate)]
        assert len(sealed) == len(answers)
        return sealed

    def batch(self, round: int, *names: str) -> bytes:
        """Return what the shuffler lets out of these silos' answers."""
        for answer in self.answers(round, *names):
            self.local.shuffler.deposit(answer.to_bytes())
        batch = self.local.shuffler.release(self.plan.digest(), round)
        assert isinstance(batch, bytes)
        return batch


@contextmanager
def federation(folder: Path, *, records: int = 40, features: int = 3, **said: Any) -> Iterator[Federation]:
    """Three silos of so many records each, with a budget that covers any one plan."""
    schema = schema_of(features)
    with local_shuffler(NAMES) as local, ExitStack() as opened:
        plan = make_shuffled_plan(schema, local.keys, dict.fromkeys(NAMES, records), **said)
        held = {name: records_of(schema, records, seed) for seed, name in enumerate(NAMES)}
        gates = {}
        for name in NAMES:
            budget = Budget(100.0, DELTA)
            ledger = opened.enter_context(Ledger.create(folder / f"{name}.ledger", silo=name, budget=budget))
            gates[name] = Gate(held[name], ledger, local.silos[name])
            gates[name].approve(plan)
        local.shuffler.add(plan)
        yield Federation(plan, local, held, gates)


def opened_by_both(local: LocalShuffler, plan: protocol.Plan, answer: protocol.SealedUpdate) -> Counts:
    """Return the numbers in a silo's answer: what only shuffler and server together can read."""
    shuffle = shuffle_of(plan)
    store = local.shuffler._store
    envelope = base64.b64decode(answer.envelope)
    joined = sealing.open_envelope(store.key, answer.plan, answer.round, answer.silo, envelope)
    sealed = sealing.split_messages(joined, shuffle.message_bytes + SEALED_EXTRA)
    messages = sealing.open_messages(local.server, answer.plan, answer.round, sealed)
    return shares.add_shares(shuffle, messages, silos=1, numbers=numbers_of(plan))
