"""From sizes, budgets and a loss to a plan: noise by the exact accountant, the rest by public rules.

No private record is looked at here, so nothing is spent on choosing parameters.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ringfence.accounting import calibrate
from ringfence.errors import PlanError
from ringfence.planning import defaults, loss_bounds
from ringfence.planning.availability import answering, harmonic
from ringfence.planning.channels import ChannelPlanner, planner_of
from ringfence.planning.draft import PlanDraft
from ringfence.planning.planner import Choice, choose
from ringfence.planning.preconditioned import default_method, domain_of, require_method, survey_edge, tells_apart
from ringfence.planning.request import Member, PlanRequest, clear_refusals, require_fit
from ringfence.planning.setting import Setting
from ringfence.planning.weighting import weights_of
from ringfence.protocol.algorithms import AlgorithmSpec, MinibatchSGD
from ringfence.protocol.domain import Domain
from ringfence.protocol.losses import Loss
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Evaluation
from ringfence.protocol.sampling import Sampling, sampling_named
from ringfence.protocol.schema import Schema

BY_BOUND = "bounded"
"""What to ask for in place of an algorithm to get the one with the least loss bound."""


@dataclass(frozen=True)
class Proposal:
    """A plan, why it is as it is, and what else was considered; `choice` is None where the user chose it all.

    `distance` is how large the weights may be that loss bounds compare with. `edge` is the least second moment of the
    features that a survey could tell from its noise, in units of the largest possible, where one is made or was
    considered.
    """

    plan: Plan
    choice: Choice | None
    distance: float
    alternatives: tuple[Choice, ...] = ()
    edge: float | None = None


def make_plan(data: Schema, members: Sequence[Member], request: PlanRequest | None = None) -> Plan:
    """Return the plan that answers the request, for these members; without a request, everything is chosen."""
    return propose(data, members, request).plan


def propose_for(request: PlanRequest, data: Schema, sizes: Mapping[str, int]) -> Proposal:
    """Make the plan that answers the request, for silos of the given sizes, and say what it was chosen from."""
    return propose(data, request.members(sizes), request)


def propose(
    data: Schema, members: Sequence[Member], request: PlanRequest | None = None, *, evaluated: bool = True
) -> Proposal:
    """Choose everything that is not asked for, calibrate every silo's noise to its budget, and return the plan.

    Silos weigh as many records as they hold, or less where their noise is large, unless every member
    names a weight or the request says how (`planning.weighting`). Records that are held out are asked at the end how
    good the model is, unless it is not to be `evaluated`.
    """
    request = request or PlanRequest()
    if not members:
        raise PlanError("A plan needs at least one silo.")
    request = planner_of(request).restricted(request, members)
    return _Proposing(data, members, request, evaluated=evaluated).proposal()


class _Proposing:
    """One request on its way to a plan."""

    def __init__(self, data: Schema, members: Sequence[Member], request: PlanRequest, *, evaluated: bool) -> None:
        self.data, self.members, self.evaluated, self.counted = data, members, evaluated, request.weights
        for member in members:
            if member.records < 1:
                raise PlanError(f"Silo '{member.name}' has no records, so it has nothing to contribute: leave it out.")
        self.channel: ChannelPlanner = planner_of(request)
        self.algorithm, self.rounds = _asked_algorithm(request)
        self.loss = _loss(request, data)
        is_open = _is_left_open(request)
        self.edge = self._edge() if self.algorithm in (None, "preconditioned") and is_open else None
        self.default = default_method(self.edge, self.loss) if self.algorithm is None else None
        self.algorithm = None if self.algorithm == BY_BOUND else self.algorithm or self.default
        alone = _is_left_open(replace(request, survey=None))
        require_method(self.algorithm, self.loss, alone=alone)
        self.clip = defaults.clip(data, self.loss) if request.clip is None else request.clip
        self.distance = defaults.distance(data, self.loss) if request.distance is None else request.distance
        # What is chosen is checked like what is asked for.
        self.request = replace(request, clip=self.clip, distance=self.distance)
        with clear_refusals():
            self.domain: Domain = request.domain or domain_of(self.algorithm, self.distance)
        self.rule: Sampling | None = None if request.sampling is None else sampling_named(request.sampling)
        self.limit = self.rounds or request.most_rounds or defaults.ROUNDS

    @cached_property
    def shifts(self) -> tuple[float, ...]:
        """The Gaussian shifts that the members' budgets allow."""
        return tuple(calibrate.gaussian_shift(own.epsilon, own.allowed_delta) for own in self.members)

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """The members' shares of the objective."""
        return weights_of(self.members, self.shifts, self.data.width * self.loss.outputs, self.counted)

    def _edge(self) -> float | None:
        sized = zip(self.weights, self.members, self.shifts, strict=True)
        noise = math.hypot(*(weight / (own.records * shift) for weight, own, shift in sized))
        return survey_edge(self.data, self.loss, noise)

    def _surveys_features(self) -> bool:
        """Tell whether features are surveyed before preconditioned descent: by default, if that can tell anything."""
        if self.request.survey is not None:
            return self.request.survey
        return self.default is None or self.edge is None or tells_apart(self.edge)

    def proposal(self) -> Proposal:
        """Choose, calibrate, and choose anew where the channel's noise comes out louder than was counted on."""
        setting, given = self._setting(), self.algorithm
        takes_kinks = given is not None and not isinstance(given, str) and given.takes_kinks
        if self.loss.has_kinks and not takes_kinks:
            self.loss = _smoothed(self.loss, self.data, setting, self.members, self.limit)
            setting = self._setting()
        made = self._made(setting)
        while (loudness := self.channel.loudness(made.plan, setting)) > setting.mixing_cost:
            setting = replace(setting, mixing_cost=1.01 * loudness)
            made = self._made(setting)
        require_fit(made.plan)
        return made

    def _made(self, setting: Setting) -> Proposal:
        request, algorithm = self.request, self.algorithm
        alternatives: list[Choice] = []
        exactly, curvature = self.rounds is not None, self.channel.surveys_curvature(request)
        if algorithm is None or isinstance(algorithm, str):
            choice, alternatives = choose(
                setting,
                limit=self.limit,
                exactly=exactly,
                method=algorithm,
                sampling=request.sampling,
                risk=request.risk,
                survey=self._surveys_features() if algorithm == "preconditioned" else curvature,
            )
            if self.default is not None:  # beside it, what loss bounds would have favoured
                alternatives += choose(setting, limit=self.limit, exactly=exactly, survey=curvature)[1]
        else:
            choice = self._as_asked(algorithm)
        spec = (
            choice.algorithm if request.average is None else choice.algorithm.averaged(request.average, choice.rounds)
        )
        held_out = any(member.held_out for member in self.members)
        draft = PlanDraft(
            run=request.run or secrets.token_hex(8),
            data=self.data,
            loss=self.loss,
            domain=self.domain,
            algorithm=spec,
            ridge=request.ridge,
            lasso=request.lasso,
            clip=self.clip,
            sampling=choice.sampling,
            rounds=choice.rounds,
            survey=choice.survey,
            participation=request.asked(),
            members=tuple(self.members),
            weights=setting.weights,
            shifts=setting.shifts,
            **request.units(self.data),
            held_out=request.held_out_share if held_out else None,
            evaluation=Evaluation() if held_out and self.evaluated else None,
            purpose=request.purpose,
            controller=request.controller,
            contact=request.contact,
        )
        with clear_refusals():
            plan = self.channel.calibrated(request, draft)
        return Proposal(plan, choice if alternatives else None, self.distance, tuple(alternatives), self.edge)

    def _as_asked(self, algorithm: AlgorithmSpec) -> Choice:
        survey = self.request.survey
        if survey and not algorithm.takes_survey():
            raise PlanError(
                "A survey sets the steps of accelerated, but a step of minibatch-sgd is given: leave one of them out."
            )
        sampling = self.request.sampling or algorithm.default_sampling
        rounds = self.rounds or algorithm.own_rounds or self.limit
        if sampling_named(sampling).is_phased != sampling_named(algorithm.default_sampling).is_phased:
            raise PlanError("The localized algorithm and phased sampling go together: leave the sampling out.")
        if algorithm.own_rounds not in (None, rounds):
            raise PlanError("The rounds of the algorithm's parts must add up to the plan's rounds: leave those out.")
        share = 0.03 if survey else 0.0
        return Choice(algorithm.name, algorithm, sampling, rounds, math.inf, share)

    def _setting(self) -> Setting:
        dimension = self.loss.dimension(self.data.width)
        reach = self.domain.reach(dimension)
        smoothness = self.loss.smoothness_on(self.data, reach, self.clip)
        silos, participation = len(self.members), self.request.asked()
        available = float(participation.silos or silos)
        if participation.probability is not None:
            available = harmonic(answering(silos, participation.probability))
        loudness, batch_share = 1.0, 1.0
        if self.rule is not None and self.rule.is_secret:
            loudness, batch_share = _loudness(self.rule, max(self.members, key=lambda m: m.records), self.limit)
        return Setting(
            dimension=dimension,
            width=self.data.width,
            clip=self.clip,
            smoothness=smoothness,
            ridge=self.request.ridge,
            lasso=self.request.lasso,
            distance=self.distance,
            diameter=2 * reach,
            records=tuple(member.records for member in self.members),
            weights=self.weights,
            shifts=self.shifts,
            available=min(available, silos),
            loudness=loudness,
            batch_share=batch_share,
            mixed=self.channel.mixed_records(self.request, self.members),
            takes_turns=participation.silos not in (None, silos) and participation.answers is None,
        )


def _asked_algorithm(request: PlanRequest) -> tuple[AlgorithmSpec | str | None, int | None]:
    """Return the algorithm that is asked for, and the rounds; a step is for minibatch SGD, with the tail's average."""
    if request.step is None:
        return request.algorithm, request.rounds
    if request.algorithm not in (None, "minibatch-sgd"):
        raise PlanError(
            f"Only minibatch-sgd takes a step; {request.algorithm} has its own schedule: leave the step out."
        )
    rounds = defaults.ROUNDS if request.rounds is None else request.rounds
    with clear_refusals():
        return MinibatchSGD(step=request.step).averaged("tail", rounds), rounds


def _is_left_open(request: PlanRequest) -> bool:
    """Tell whether nothing is asked for that another algorithm is about."""
    plain = PlanRequest()
    others = ("clip", "distance", "domain", "step", "average", "batch", "correlation", "survey", "risk", "lasso")
    return (
        all(getattr(request, name) == getattr(plain, name) for name in others)
        and (request.sampling is None or sampling_named(request.sampling).takes_all)
        and request.asked().probability is None
    )


def _loss(request: PlanRequest, data: Schema) -> Loss:
    asked = "survival" if request.loss is None and data.event is not None else request.loss
    if asked is None:
        return defaults.loss(data)
    if not isinstance(asked, str):
        return asked
    with clear_refusals():
        return defaults.loss_named(
            asked,
            data,
            quantile=request.quantile,
            margin=request.margin,
            dispersion=request.dispersion,
            cuts=request.cuts,
        )


def _loudness(rule: Sampling, member: Member, rounds: int) -> tuple[float, float]:
    """Return how much more noise sampled batches need than full ones, and what share of the records they are."""
    batch = member.batch_under(rule, rounds)
    shape: Any = {"records": member.records, "rounds": rounds, "clip": 1.0, "epsilon": member.epsilon}
    sampled, full = (
        calibrate.noise(kind, batch=size, delta=member.allowed_delta, **shape)
        for kind, size in ((rule.name, batch), ("full", member.records))
    )
    return sampled / full, batch / member.records


def _smoothed(loss: Loss, data: Schema, setting: Setting, members: Sequence[Member], limit: int) -> Loss:
    """Smooth a loss with a kink: β of P15, or the smaller one that the number of rounds can cope with.

    A larger β is closer to the loss itself, by L²/(2β), but takes more rounds: 4βD₀²/(R(R+1)).
    """
    epsilon = min(member.epsilon for member in members)
    records = sum(setting.records) // len(members)
    private = epsilon * records * math.sqrt(setting.available / setting.dimension)
    most = private * setting.clip / (2 * setting.distance)  # εn√M L/(√d D)

    def total(smoothness: float) -> float:
        bound = loss_bounds.accelerated_best(
            smoothness=smoothness, distance=setting.distance, rounds=limit, variance=setting.variance(limit)
        )
        return bound + loss.smoothed(data.feature_norm, smoothness).smoothing_error

    return loss.smoothed(data.feature_norm, min((most * 0.5**k for k in range(40)), key=total))
