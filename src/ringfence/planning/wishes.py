"""What a person may say about a plan, and the plan that it becomes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from ringfence.errors import PlanError
from ringfence.planning import defaults
from ringfence.planning.mixing import Mixing
from ringfence.planning.planner import Risk
from ringfence.planning.prescribe import Member, Proposal, propose, told_clearly
from ringfence.protocol.algorithms import AlgorithmSpec, Average, MinibatchSGD
from ringfence.protocol.losses import Loss
from ringfence.protocol.plan import Participation, Plan, Sampling, Trust
from ringfence.protocol.schema import Schema
from ringfence.protocol.shuffle import Keys


@dataclass(frozen=True)
class Wishes:
    """What a person may say about a plan; None means: choose for me."""

    epsilon: float
    delta: float | None = None
    budgets: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    algorithm: str | None = None
    risk: str = "empirical"
    rounds: int | None = None
    most_rounds: int | None = None
    loss: str | None = None
    quantile: float = 0.5
    margin: float | None = None
    sampling: str | None = None
    batch: int | None = None
    clip: float | None = None
    distance: float | None = None
    step: float | None = None
    average: str | None = None
    correlation: float = 0.0
    survey: bool | None = None
    ridge: float = 0.0
    weights: str = "records"
    available: int | None = None
    trust: str = "nobody"
    keys: Keys | None = None
    quorum: int | None = None
    bits: int | None = None


def plan_for(wishes: Wishes, schema: Schema, sizes: Mapping[str, int]) -> Plan:
    """Make the plan that the wishes describe, for silos of the given sizes."""
    return propose_for(wishes, schema, sizes).plan


def propose_for(wishes: Wishes, schema: Schema, sizes: Mapping[str, int]) -> Proposal:
    """Make the plan that the wishes describe, and say what it was chosen from."""
    _require_one_of("Silos count by", wishes.weights, ("records", "equal"))
    _require_one_of("Sampling is", wishes.sampling, get_args(Sampling))
    _require_one_of("A certificate's risk is", wishes.risk, get_args(Risk))
    _require_one_of("The model is", wishes.average, get_args(Average))
    members = []
    for name, records in sizes.items():
        epsilon, delta = wishes.budgets.get(name, (wishes.epsilon, wishes.delta))
        weight = 1.0 / len(sizes) if wishes.weights == "equal" else None
        members.append(Member(name, records, epsilon, delta, wishes.batch, weight))
    algorithm: AlgorithmSpec | str | None = wishes.algorithm
    rounds = wishes.rounds
    if wishes.step is not None:
        if algorithm not in (None, "minibatch-sgd"):
            raise PlanError(f"A step is for minibatch-sgd; {algorithm} has its own schedule: leave the step out.")
        rounds = defaults.ROUNDS if rounds is None else rounds
        with told_clearly():
            algorithm = MinibatchSGD(step=wishes.step, skip=max(0, 3 * rounds // 4))
    with told_clearly():
        participation = Participation(silos=wishes.available)
    chosen: Any = wishes  # its texts were checked above
    return propose(
        schema,
        members,
        loss=_named_loss(wishes, schema),
        clip=wishes.clip,
        distance=wishes.distance,
        sampling=chosen.sampling,
        rounds=rounds,
        most_rounds=wishes.most_rounds,
        algorithm=algorithm,
        risk=chosen.risk,
        average=chosen.average,
        correlation=wishes.correlation,
        survey=wishes.survey,
        ridge=wishes.ridge,
        participation=participation,
        shuffler=_shuffler(wishes),
    )


def _shuffler(wishes: Wishes) -> Mixing | None:
    _require_one_of("A plan trusts", wishes.trust, get_args(Trust))
    if wishes.trust == "nobody":
        if (wishes.keys, wishes.quorum, wishes.bits) != (None, None, None):
            raise PlanError("Keys, a quorum and a limit of bits are for plans that trust a shuffler: say so, or not.")
        return None
    if wishes.keys is None:
        raise PlanError("A plan that trusts a shuffler names everybody's public keys: give them.")
    return Mixing(wishes.keys, wishes.quorum, wishes.bits)


def _named_loss(wishes: Wishes, schema: Schema) -> Loss | None:
    if wishes.loss is None:
        return None
    with told_clearly():
        return defaults.loss_named(wishes.loss, schema, quantile=wishes.quantile, margin=wishes.margin)


def _require_one_of(what: str, value: str | None, allowed: Sequence[str]) -> None:
    if value is not None and value not in allowed:
        raise PlanError(f"{what} one of {', '.join(allowed)}, not '{value}'.")
