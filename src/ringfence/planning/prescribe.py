"""From sizes, budgets and a loss to a plan: noise by the exact accountant, the rest by public rules.

No private record is looked at here, so nothing is spent on choosing parameters.
"""

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import get_args

from pydantic import ValidationError

from ringfence.errors import PlanError
from ringfence.planning import calibrate
from ringfence.protocol.domain import Ball, Domain
from ringfence.protocol.losses import Huber, Logistic, Loss, Softmax, Squared
from ringfence.protocol.plan import MinibatchSGD, Participation, Plan, Sampling, SiloTerms
from ringfence.protocol.public import explain
from ringfence.protocol.schema import Categorical, Geometry, Schema

DEFAULT_ROUNDS = 100


@dataclass(frozen=True)
class Member:
    """A silo that takes part: its size, the guarantee it asks for, and optionally its batch and its weight."""

    name: str
    records: int
    epsilon: float
    delta: float | None = None
    batch: int | None = None
    weight: float | None = None


@dataclass(frozen=True)
class Wishes:
    """What a person may say about a plan; None means: choose for me."""

    epsilon: float
    delta: float | None = None
    budgets: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    rounds: int | None = None
    loss: str | None = None
    sampling: str = "full"
    batch: int | None = None
    clip: float | None = None
    step: float | None = None
    ridge: float = 0.0
    weights: str = "records"
    available: int | None = None


def plan_for(wishes: Wishes, schema: Schema, sizes: Mapping[str, int]) -> Plan:
    """Make the plan that the wishes describe, for silos of the given sizes."""
    if wishes.weights not in ("records", "equal"):
        raise PlanError(f"Silos count by 'records' or 'equal', not by '{wishes.weights}'.")
    if wishes.sampling not in get_args(Sampling):
        raise PlanError(f"Sampling is one of {', '.join(get_args(Sampling))}, not '{wishes.sampling}'.")
    members = []
    for name, records in sizes.items():
        epsilon, delta = wishes.budgets.get(name, (wishes.epsilon, wishes.delta))
        weight = 1.0 / len(sizes) if wishes.weights == "equal" else None
        members.append(Member(name, records, epsilon, delta, wishes.batch, weight))
    rounds = DEFAULT_ROUNDS if wishes.rounds is None else wishes.rounds
    with _told_clearly():
        algorithm = None if wishes.step is None else MinibatchSGD(step=wishes.step, skip=3 * rounds // 4)
        participation = Participation(silos=wishes.available)
    return make_plan(
        schema,
        members,
        loss=None if wishes.loss is None else loss_named(wishes.loss, schema),
        clip=wishes.clip,
        sampling=wishes.sampling,  # type: ignore[arg-type]  # checked above
        rounds=rounds,
        algorithm=algorithm,
        ridge=wishes.ridge,
        participation=participation,
    )


def loss_named(name: str, schema: Schema) -> Loss:
    """Return the loss of that name, with parameters that suit the schema's target."""
    column = schema.target_column
    classes = len(column.categories) if isinstance(column, Categorical) else 2
    losses: dict[str, Loss] = {
        "logistic": Logistic(),
        "softmax": Softmax(classes=classes),
        "squared": Squared(),
        "huber": Huber(threshold=0.1 * schema.target_bound),
    }
    if name not in losses:
        raise PlanError(f"There is no loss '{name}'; choose one of {', '.join(losses)}.")
    return losses[name]


def default_delta(records: int) -> float:
    """Return 1/n², as in the paper, but never more than 10⁻⁵: a larger δ would promise small silos nothing."""
    return min(1e-5, 1.0 / records**2)


def default_loss(data: Schema) -> Loss:
    """Return logistic for two categories, softmax for more, squared for a number."""
    column = data.target_column
    if not isinstance(column, Categorical):
        return Squared()
    return Logistic() if len(column.categories) == 2 else Softmax(classes=len(column.categories))


def make_plan(
    data: Schema,
    members: Sequence[Member],
    *,
    loss: Loss | None = None,
    clip: float | None = None,
    domain: Domain | None = None,
    sampling: Sampling = "full",
    rounds: int | None = None,
    algorithm: MinibatchSGD | None = None,
    ridge: float = 0.0,
    participation: Participation | None = None,
    run: str | None = None,
) -> Plan:
    """Fill in everything that is not given, calibrate every silo's noise to its budget, and return the plan.

    Silos weigh as many records as they hold unless every member names a weight: then a small silo's large
    noise counts as little as its records do.
    """
    loss = loss or default_loss(data)
    rounds = DEFAULT_ROUNDS if rounds is None else rounds
    clip = default_clip(data.geometry, loss) if clip is None else clip
    participation = participation or Participation()
    with _told_clearly():
        silos = _terms(members, data.width * loss.outputs, clip=clip, sampling=sampling, rounds=rounds)
        noise = average_noise([terms.weight * terms.sigma for terms in silos], participation)
        return Plan(
            run=run or secrets.token_hex(8),
            data=data,
            loss=loss,
            clip=clip,
            domain=domain or Ball(radius=default_radius(loss)),
            sampling=sampling,
            rounds=rounds,
            algorithm=algorithm or default_steps(data.geometry, loss, noise, rounds),
            ridge=ridge,
            participation=participation,
            silos=silos,
        )


def default_clip(geometry: Geometry, loss: Loss) -> float:
    """Return where to cut a record's gradient: about its typical norm, well below its largest.

    For a linear model this is still the gradient of a convex loss (a squared loss becomes a Huber loss), and
    noise shrinks in proportion. The fractions were chosen once, on public data, and are the same for all.
    """
    X, Y = geometry.feature_norm, geometry.target_bound
    return 0.5 * X if isinstance(loss, Logistic | Softmax) else 0.125 * X * Y


def default_radius(loss: Loss) -> float:
    """Return the radius of the ball that the weights are kept in: wide enough to hold good models only."""
    return 30.0 * math.sqrt(loss.outputs)


def default_steps(geometry: Geometry, loss: Loss, noise: float, rounds: int) -> MinibatchSGD:
    """Choose step and momentum from the `noise` per coordinate of the averaged gradient.

    Over R rounds of effective step e = step/(1 − momentum), the noise in the weights adds up to e·√R·noise per
    coordinate, and moves a record's score by at most X times that. A longer walk fits better until that
    rivals the scores themselves, so e is set to make it `tolerable`, a constant per loss that was chosen once
    on public data; but never beyond what 20-fold momentum on the largest safe step 1/β gives. The last quarter
    of the iterates is averaged.
    """
    tolerable = {"logistic": 2.0, "softmax": 4.0}.get(loss.name, 0.5)
    smoothness = loss.constants(geometry.feature_norm, geometry.target_bound, math.inf).smoothness
    effective = min(tolerable / (geometry.feature_norm * noise * math.sqrt(rounds)), 20.0 / smoothness)
    momentum = max(0.0, 1.0 - 1.0 / (smoothness * effective))
    return MinibatchSGD(step=effective * (1.0 - momentum), momentum=momentum, skip=3 * rounds // 4)


def average_noise(weighted_sigmas: Sequence[float], participation: Participation) -> float:
    """Return the noise per coordinate of the server's average of a round, from every silo's weight times sigma."""
    silos = len(weighted_sigmas)
    asked = participation.silos or silos * (participation.probability or 1.0)
    return math.sqrt(math.fsum(noise**2 for noise in weighted_sigmas) * silos / asked)


@contextmanager
def _told_clearly() -> Iterator[None]:
    try:
        yield
    except ValidationError as refused:
        raise PlanError(f"No plan can be made of this: {explain(refused)}.") from None


def _terms(
    members: Sequence[Member], dimension: int, *, clip: float, sampling: Sampling, rounds: int
) -> tuple[SiloTerms, ...]:
    if not members:
        raise PlanError("A plan needs at least one silo.")
    named = [member.weight for member in members if member.weight is not None]
    if named and len(named) != len(members):
        raise PlanError("Either every silo names its weight, or none does.")
    total = math.fsum(named) or math.fsum(member.records for member in members)
    calibrated = lru_cache(maxsize=None)(calibrate.noise)  # silos of one size and budget share one calibration
    terms = []
    for member in members:
        batch = _batch(member, sampling, rounds)
        delta = default_delta(member.records) if member.delta is None else member.delta
        sigma = calibrated(
            sampling,
            records=member.records,
            batch=batch,
            rounds=rounds,
            clip=clip,
            epsilon=member.epsilon,
            delta=delta,
            dimension=dimension,
        )
        terms.append(
            SiloTerms(
                name=member.name,
                records=member.records,
                batch=batch,
                sigma=sigma,
                epsilon=member.epsilon,
                delta=delta,
                weight=(member.records if member.weight is None else member.weight) / total,
            )
        )
    return tuple(terms)


def _batch(member: Member, sampling: Sampling, rounds: int) -> int:
    if member.records < 1:
        raise PlanError(f"Silo '{member.name}' has no records, so it has nothing to contribute: leave it out.")
    if sampling == "full":
        if member.batch not in (None, member.records):
            raise PlanError("Full sampling uses all records in every round: leave the batch out, or choose fixed.")
        return member.records
    if member.batch is not None:
        return member.batch
    if sampling == "one-pass":
        if member.records < rounds:
            raise PlanError(
                f"One pass of {rounds} rounds needs a record for each, but silo '{member.name}' has "
                f"{member.records}: ask for fewer rounds."
            )
        return member.records // rounds
    return max(1, round(member.records / math.sqrt(rounds)))
