"""From sizes, budgets and a loss to a plan: noise by the exact accountant, the rest by public rules.

No private record is looked at here, so nothing is spent on choosing parameters.
"""

import math
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError

from ringfence.errors import PlanError
from ringfence.planning import calibrate, certificates, conversions, defaults, mixing, prescriptions
from ringfence.planning.charges import plan_events
from ringfence.planning.events import Event
from ringfence.planning.planner import Choice, Risk, Setting, choose, risk_of
from ringfence.planning.problem import Problem
from ringfence.protocol.algorithms import AlgorithmSpec, Average, Localized, MinibatchSGD, MultiStage
from ringfence.protocol.domain import Ball, Domain
from ringfence.protocol.losses import Loss, NonSmooth
from ringfence.protocol.plan import Participation, Plan, Sampling, SiloTerms, Survey
from ringfence.protocol.public import explain
from ringfence.protocol.schedule import survey_sensitivity
from ringfence.protocol.schema import Schema

Kinked = TypeVar("Kinked", bound=NonSmooth)

__all__ = ["Member", "Proposal", "make_plan", "propose", "told_clearly"]


@dataclass(frozen=True)
class Member:
    """A silo that takes part: its size, the guarantee it asks for, and optionally its batch and its weight."""

    name: str
    records: int
    epsilon: float
    delta: float | None = None
    batch: int | None = None
    weight: float | None = None

    @property
    def allowed_delta(self) -> float:
        """Its delta, or the default for its size."""
        return defaults.delta(self.records) if self.delta is None else self.delta


@dataclass(frozen=True)
class Proposal:
    """A plan, why it is as it is, and what else was considered; `choice` is None where the user chose it all.

    `distance` is how large the weights may be that certificates compare with.
    """

    plan: Plan
    choice: Choice | None
    distance: float
    alternatives: tuple[Choice, ...] = ()


def make_plan(data: Schema, members: Sequence[Member], **wishes: Any) -> Plan:
    """Return the plan that `propose` makes of the same arguments."""
    return propose(data, members, **wishes).plan


def propose(
    data: Schema,
    members: Sequence[Member],
    *,
    loss: Loss | None = None,
    clip: float | None = None,
    distance: float | None = None,
    domain: Domain | None = None,
    sampling: Sampling | None = None,
    rounds: int | None = None,
    most_rounds: int | None = None,
    algorithm: AlgorithmSpec | str | None = None,
    risk: Risk = "empirical",
    average: Average | None = None,
    correlation: float = 0.0,
    survey: bool | None = None,
    ridge: float = 0.0,
    participation: Participation | None = None,
    shuffler: mixing.Mixing | None = None,
    run: str | None = None,
) -> Proposal:
    """Choose everything that is not given, calibrate every silo's noise to its budget, and return the plan.

    `rounds` is how many, `most_rounds` a limit. Silos weigh as many records as they hold unless every member names a
    weight: then a small silo's large noise counts as little as its records do.
    """
    loss = loss or defaults.loss(data)
    clip = defaults.clip(data.geometry, loss) if clip is None else clip
    distance = defaults.distance(data.geometry, loss) if distance is None else distance
    _require_numbers(clip, distance, ridge, rounds, most_rounds)
    with told_clearly():
        domain = domain or Ball(radius=defaults.DOMAIN_REACH * distance)
    participation = participation or Participation()
    limit = rounds or most_rounds or defaults.ROUNDS
    quorum = None if shuffler is None else mixing.least_quorum(shuffler, len(members), participation)
    if quorum is not None:
        _require_mixable(members, sampling, survey, correlation)
        sampling = sampling or "full"
        survey = False
    setting = _setting(data, members, loss, clip, distance, domain, sampling, limit, ridge, participation, quorum)
    if isinstance(loss, NonSmooth) and loss.width == 0 and not isinstance(algorithm, MinibatchSGD):
        loss = _smoothed(loss, data, setting, members, limit)
        setting = _setting(data, members, loss, clip, distance, domain, sampling, limit, ridge, participation, quorum)

    def made(setting: Setting) -> Proposal:
        if algorithm is None or isinstance(algorithm, str):
            choice, alternatives = choose(
                setting,
                limit=limit,
                exactly=rounds is not None,
                method=algorithm,
                sampling=sampling,
                risk=risk,
                survey=survey,
            )
        else:
            choice = _as_asked(algorithm, sampling, rounds or _own_rounds(algorithm) or limit, survey)
            alternatives = []
        draft = {
            "run": run or secrets.token_hex(8),
            "data": data,
            "loss": loss,
            "clip": clip,
            "domain": domain,
            "sampling": choice.sampling,
            "rounds": choice.rounds,
            "algorithm": _averaging(choice.algorithm, average, choice.rounds),
            "correlation": correlation,
            "survey": Survey() if choice.survey else None,
            "ridge": ridge,
            "participation": participation,
        }
        with told_clearly():
            if shuffler is not None and quorum is not None:
                plan = mixing.with_shuffler(draft, _uncalibrated(members, setting, choice), shuffler, quorum)
            else:
                plan = _calibrated(draft, members, setting, choice)
        return Proposal(plan, choice if alternatives else None, distance, tuple(alternatives))

    proposal = made(setting)
    # Coins come in whole numbers: where they are more noise than was counted on, the choice is made anew with that.
    while (costs := mixing.cost(proposal.plan, setting)) > setting.mixing_cost:
        setting = replace(setting, mixing_cost=1.01 * costs)
        proposal = made(setting)
    return proposal


def _as_asked(algorithm: AlgorithmSpec, sampling: Sampling | None, rounds: int, survey: bool | None) -> Choice:
    if survey and isinstance(algorithm, MinibatchSGD):
        raise PlanError("A survey serves accelerated steps, and the step of minibatch-sgd is given: leave it out.")
    sampling = sampling or ("phased" if isinstance(algorithm, Localized) else "full")
    return Choice(algorithm.name, algorithm, sampling, rounds, math.inf, risk_of(sampling), 0.03 if survey else 0.0)


def _own_rounds(algorithm: AlgorithmSpec) -> int | None:
    if isinstance(algorithm, Localized):
        return sum(phase.rounds for phase in algorithm.phases)
    return sum(stage.rounds for stage in algorithm.stages) if isinstance(algorithm, MultiStage) else None


def _averaging(spec: AlgorithmSpec, average: Average | None, rounds: int) -> AlgorithmSpec:
    if average is None:
        return spec
    if isinstance(spec, MinibatchSGD):
        skip = {"weighted": 0, "last": rounds - 1, "tail": 3 * rounds // 4}[average]
        return spec.model_copy(update={"skip": skip})
    return spec.model_copy(update={"average": average})


def _setting(
    data: Schema,
    members: Sequence[Member],
    loss: Loss,
    clip: float,
    distance: float,
    domain: Domain,
    sampling: Sampling | None,
    rounds: int,
    ridge: float,
    participation: Participation,
    quorum: int | None,
) -> Setting:
    if not members:
        raise PlanError("A plan needs at least one silo.")
    for member in members:
        if member.records < 1:
            raise PlanError(f"Silo '{member.name}' has no records, so it has nothing to contribute: leave it out.")
    dimension = data.width * loss.outputs
    reach = domain.reach(dimension)
    smoothness = loss.constants(data.feature_norm, data.target_bound, reach).smoothness
    silos = len(members)
    available = float(participation.silos or silos)
    if participation.probability is not None:
        available = conversions.independent(silos, participation.probability).harmonic
    loudness, batch_share = 1.0, 1.0
    if sampling in ("fixed", "poisson"):
        loudness, batch_share = _loudness(sampling, max(members, key=lambda member: member.records), rounds)
    return Setting(
        dimension=dimension,
        width=data.width,
        clip=clip,
        smoothness=smoothness,
        ridge=ridge,
        distance=distance,
        diameter=2 * reach,
        records=tuple(member.records for member in members),
        weights=_weights(members),
        shifts=tuple(calibrate.gaussian_shift(member.epsilon, member.allowed_delta) for member in members),
        available=min(available, silos),
        loudness=loudness,
        batch_share=batch_share,
        mixed=None if quorum is None else mixing.mixed_records([member.records for member in members], quorum),
    )


def _loudness(sampling: Sampling, member: Member, rounds: int) -> tuple[float, float]:
    """Return how much more noise sampled batches need than full ones, and what share of the records they are."""
    batch = _batch(member, sampling, rounds)
    shape: Any = {"records": member.records, "rounds": rounds, "clip": 1.0, "epsilon": member.epsilon}
    sampled, full = (
        calibrate.noise(kind, batch=size, delta=member.allowed_delta, **shape)
        for kind, size in ((sampling, batch), ("full", member.records))
    )
    return sampled / full, batch / member.records


def _smoothed(loss: Kinked, data: Schema, setting: Setting, members: Sequence[Member], limit: int) -> Kinked:
    """Smooth a loss with a kink: β of P15, or the smaller one that the number of rounds can cope with.

    A larger β is closer to the loss itself, by L²/(2β), but takes more rounds: 4βD₀²/(R(R+1)).
    """
    budget = min(members, key=lambda member: member.epsilon)
    problem = Problem(
        silos=len(members),
        records=sum(setting.records) // len(members),
        dimension=setting.dimension,
        lipschitz=setting.clip,
        diameter=2 * setting.distance,
        epsilon=budget.epsilon,
        delta=budget.allowed_delta,
        available=setting.available,
    )
    most = prescriptions.smoothing_erm(problem)

    def total(smoothness: float) -> float:
        bound = certificates.accelerated_best(
            smoothness=smoothness, distance=setting.distance, rounds=limit, variance=setting.variance(limit)
        )
        return bound + loss.smoothed(data.feature_norm, smoothness).smoothing_error

    return loss.smoothed(data.feature_norm, min((most * 0.5**k for k in range(40)), key=total))


def _weights(members: Sequence[Member]) -> tuple[float, ...]:
    named = [member.weight for member in members if member.weight is not None]
    if named and len(named) != len(members):
        raise PlanError("Either every silo names its weight, or none does.")
    if not all(0 < weight < math.inf for weight in named):
        raise PlanError("Every silo's weight must be a positive number.")
    counts = named or [float(member.records) for member in members]
    total = math.fsum(counts)
    return tuple(count / total for count in counts)


def _uncalibrated(members: Sequence[Member], setting: Setting, choice: Choice) -> list[SiloTerms]:
    """Return the silos' terms with a first guess at their noise."""
    terms = []
    for member, weight, shift in zip(members, setting.weights, setting.shifts, strict=True):
        batch = _batch(member, choice.sampling, choice.rounds)
        once = 2 * setting.clip / (batch * shift)
        terms.append(
            SiloTerms(
                name=member.name,
                records=member.records,
                batch=batch,
                sigma=once * math.sqrt(choice.rounds),
                epsilon=member.epsilon,
                delta=member.allowed_delta,
                weight=weight,
            )
        )
    return terms


def _require_mixable(
    members: Sequence[Member], sampling: Sampling | None, survey: bool | None, correlation: float
) -> None:
    if sampling not in (None, "full", "one-pass") or survey or correlation:
        raise PlanError(
            "Through a shuffler go full and one-pass sampling, without a survey or correlated noise: leave these out."
        )
    if any(member.weight is not None for member in members):
        raise PlanError("Only totals leave a shuffler, so silos weigh as many records as take part: name no weights.")


def _calibrated(draft: dict[str, Any], members: Sequence[Member], setting: Setting, choice: Choice) -> Plan:
    """Find every silo's least noise, by the events that its gate will charge, and put the plan together."""
    terms = _uncalibrated(members, setting, choice)
    plan = Plan(**{**draft, "survey": None}, silos=tuple(terms))
    if choice.survey:
        sigmas = [
            survey_sensitivity(plan, member.records) / (math.sqrt(choice.survey) * shift)
            for member, shift in zip(members, setting.shifts, strict=True)
        ]
        terms = [t.model_copy(update={"survey_sigma": s}) for t, s in zip(terms, sigmas, strict=True)]
        plan = Plan(**draft, silos=tuple(terms))

    # Silos that differ in name and weight only share one calibration.
    @cache
    def sigma(alike: SiloTerms) -> float:
        def events(sigma: float) -> list[tuple[Event, int]]:
            return plan_events(plan, alike.model_copy(update={"sigma": sigma}))

        return calibrate.least_noise(events, epsilon=alike.epsilon, delta=alike.delta, start=alike.sigma)

    def noisy(own: SiloTerms) -> SiloTerms:
        return own.model_copy(update={"sigma": sigma(own.model_copy(update={"name": "any", "weight": 1.0}))})

    return Plan(**draft, silos=tuple(noisy(own) for own in terms))


@contextmanager
def told_clearly() -> Iterator[None]:
    """Turn a plan's own refusal into a sentence for whoever asked for it."""
    try:
        yield
    except ValidationError as refused:
        raise PlanError(f"No plan can be made of this: {explain(refused)}.") from None


def _require_numbers(clip: float, distance: float, ridge: float, rounds: int | None, most_rounds: int | None) -> None:
    """Refuse what no formula is for, or what would overflow in one."""
    for name, number in (("clip", clip), ("distance", distance)):
        if not 1e-50 <= number <= 1e50:
            raise PlanError(f"The {name} must be a positive number that can be computed with, but is {number!r}.")
    if not 0 <= ridge <= 1e50:
        raise PlanError(f"The ridge must be 0 or a positive number that can be computed with, but is {ridge!r}.")
    for count in (rounds, most_rounds):
        if count is not None and count < 1:
            raise PlanError(f"A plan needs at least one round, but {count} were asked for.")


def _batch(member: Member, sampling: Sampling, rounds: int) -> int:
    if sampling == "full":
        if member.batch not in (None, member.records):
            raise PlanError("Full sampling uses all records in every round: leave the batch out, or choose fixed.")
        return member.records
    if sampling == "phased":
        if member.batch is not None:
            raise PlanError("Phases take half of the records, then half of the rest, …: leave the batch out.")
        return member.records // 2
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
