"""From sizes, budgets and a loss to a plan: noise by the exact accountant, the rest by public rules.

No record is read, so nothing is charged for choosing parameters.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ringfence.accounting import calibrate
from ringfence.errors import AccountingError, PlanError
from ringfence.planning import defaults, loss_bounds
from ringfence.planning.algorithm_choice import AlgorithmChoice, choose_algorithm
from ringfence.planning.channels import PLANNERS, ChannelPlanner
from ringfence.planning.curves import with_curves
from ringfence.planning.defaults import (
    default_algorithm,
    default_domain,
    require_preconditioned_fits,
    survey_resolution,
    survey_resolves,
)
from ringfence.planning.draft import PlanDraft
from ringfence.planning.problem import PlanningProblem, answer_probabilities, harmonic_mean_of_answers
from ringfence.planning.request import Member, PlanRequest, clear_refusals, require_fit
from ringfence.planning.silo_weights import silo_weights
from ringfence.protocol import (
    AlgorithmSpec,
    ColumnDistributions,
    Domain,
    Loss,
    MinibatchSGD,
    Plan,
    Sampling,
    Schema,
    sampling_named,
)

BY_BOUND = "bounded"
"""In place of an algorithm: the one with the least loss bound."""


@dataclass(frozen=True)
class Proposal:
    """A plan, the choice behind it and the alternatives; `choice` is None if the user chose everything.

    `distance` is the largest norm of the weights that loss bounds compare with. `survey_resolution` is the least second
    moment that a survey of features tells from its noise, relative to the largest possible one; None if no survey was
    considered.
    """

    plan: Plan
    choice: AlgorithmChoice | None
    distance: float
    alternatives: tuple[AlgorithmChoice, ...] = ()
    survey_resolution: float | None = None


def make_plan(data: Schema, members: Sequence[Member], request: PlanRequest | None = None) -> Plan:
    """Return the plan for these members; without a request, the planner chooses everything."""
    return propose(data, members, request).plan


def propose_for(request: PlanRequest, data: Schema, sizes: Mapping[str, int]) -> Proposal:
    """Return the proposal for silos of the given sizes, with the request's budgets."""
    return propose(data, request.members(sizes), request)


def propose(
    data: Schema, members: Sequence[Member], request: PlanRequest | None = None, *, evaluated: bool = True
) -> Proposal:
    """Choose every option that is left open, calibrate each silo's noise to its budget, and return the plan.

    Silos are weighted by their records, or less if their noise is large, unless every member gives a weight or the
    request says how (`planning.silo_weights`). With `evaluated`, held-out records evaluate the model at the end.
    """
    request = request or PlanRequest()
    if not members:
        raise PlanError("A plan needs at least one silo.")
    request = PLANNERS[request.trust].restricted(request, members)
    return _Proposing(data, members, request, evaluated=evaluated).proposal()


def propose_other_budgets(request: PlanRequest, plan: Plan) -> dict[float, Proposal]:
    """Return proposals for the plan's silos with other budgets, by the factor on every epsilon.

    A factor for which there is no plan is left out.
    """
    sizes = {terms.name: terms.records for terms in plan.silos}
    request, data = replace(request, keys=plan.keys), plan.data.without_open_curves()
    proposals: dict[float, Proposal] = {}
    for factor in (0.25, 0.5, 1.0, 2.0, 4.0):
        budgets = {name: (factor * epsilon, delta) for name, (epsilon, delta) in request.budgets.items()}
        epsilon = None if request.epsilon is None else factor * request.epsilon
        with suppress(PlanError, AccountingError):
            proposals[factor] = propose_for(replace(request, epsilon=epsilon, budgets=budgets), data, sizes)
    return proposals


class _Proposing:
    """The steps from one request to a proposal."""

    def __init__(self, data: Schema, members: Sequence[Member], request: PlanRequest, *, evaluated: bool) -> None:
        """Begin a proposal: choose loss, clipping norm, distance and domain where the request leaves them open."""
        self.data, self.members, self.evaluated = data, tuple(members), evaluated
        for member in members:
            if member.records < 1:
                raise PlanError(f"Silo '{member.name}' has no records, so it has nothing to contribute: leave it out.")
        self.channel: ChannelPlanner = PLANNERS[request.trust]
        asked, self.rounds = _asked_algorithm(request)
        self.loss = _loss(request, data)
        self.shifts = tuple(calibrate.gaussian_shift(own.epsilon, own.allowed_delta) for own in members)
        self.weights = silo_weights(members, self.shifts, data.width * self.loss.outputs, request.weights)
        alone = _sets_no_option_of_another_algorithm(request)
        self.resolution: float | None = None
        self.columns: ColumnDistributions | None = None
        if asked in (None, "preconditioned") and alone and request.survey is None:
            sized = zip(self.weights, members, self.shifts, strict=True)
            noise = math.hypot(*(weight / (own.records * shift) for weight, own, shift in sized))
            self.resolution = survey_resolution(data, self.loss, noise)
            if survey_resolves(self.resolution):
                self.data, self.columns = with_curves(data, request.curves, noise)
        if request.curves and self.columns is None:
            raise PlanError(
                "Curves need a survey of columns by preconditioned descent, and this plan makes none: its noise would "
                "hide how columns are distributed, the schema has a radius, or an option asks for another algorithm. "
                "Leave --curves out."
            )
        self.default = default_algorithm(self.resolution, self.loss) if asked is None else None
        self.algorithm = None if asked == BY_BOUND else asked or self.default
        require_preconditioned_fits(self.algorithm, self.loss, alone=alone)
        self.clip = defaults.default_clip(data, self.loss) if request.clip is None else request.clip
        self.distance = defaults.default_distance(data, self.loss) if request.distance is None else request.distance
        # Chosen values are checked like requested ones.
        self.request = replace(request, clip=self.clip, distance=self.distance)
        with clear_refusals():
            self.domain: Domain = request.domain or default_domain(self.algorithm, self.distance)
        self.limit = self.rounds or request.most_rounds or defaults.MOST_ROUNDS

    def proposal(self) -> Proposal:
        """Choose and calibrate a proposal; choose again while the channel's noise is larger than assumed."""
        setting, given = self._setting(), self.algorithm
        takes_kinks = given is not None and not isinstance(given, str) and given.takes_kinks
        if self.loss.has_kinks and not takes_kinks:
            self.loss = _smoothed(self.loss, self.data, setting, self.members, self.limit)
            setting = self._setting()
        made = self._made(setting)
        while (noise_factor := self.channel.noise_factor(made.plan, setting)) > setting.mixing_cost:
            setting = replace(setting, mixing_cost=1.01 * noise_factor)
            made = self._made(setting)
        require_fit(made.plan)
        return made

    def _made(self, setting: PlanningProblem) -> Proposal:
        """Choose the proposal's algorithm, draft its plan and calibrate the noise, for one setting."""
        request, algorithm = self.request, self.algorithm
        alternatives: list[AlgorithmChoice] = []
        if algorithm is None or isinstance(algorithm, str):
            limits: Any = {"limit": self.limit, "exactly": self.rounds is not None}
            curvature = survey = self.channel.surveys_curvature(request)
            if algorithm == "preconditioned":  # by default it surveys features if that resolves anything
                survey = request.survey
                if survey is None:
                    survey = self.default is None or survey_resolves(self.resolution)
            choice, alternatives = choose_algorithm(
                setting, method=algorithm, sampling=request.sampling, risk=request.risk, survey=survey, **limits
            )
            if self.default is not None:  # also list the choice by loss bounds
                alternatives += choose_algorithm(setting, survey=curvature, **limits)[1]
        else:
            choice = self._as_asked(algorithm)
        drafted = choice
        if request.average is not None:
            drafted = replace(choice, algorithm=choice.algorithm.averaged(request.average, choice.rounds))
        draft = PlanDraft(
            request=request,
            data=self.data,
            loss=self.loss,
            domain=self.domain,
            clip=self.clip,
            choice=drafted,
            members=self.members,
            weights=self.weights,
            shifts=self.shifts,
            **request.privacy_unit(self.data),
            columns=self.columns,
            evaluated=self.evaluated and any(member.held_out for member in self.members),
        )
        with clear_refusals():
            plan = self.channel.calibrated(draft)
        return Proposal(plan, choice if alternatives else None, self.distance, tuple(alternatives), self.resolution)

    def _as_asked(self, algorithm: AlgorithmSpec) -> AlgorithmChoice:
        """Return the requested algorithm as the proposal's choice, without a loss bound."""
        survey = self.request.survey
        if survey and not algorithm.takes_survey:
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
        return AlgorithmChoice(algorithm.name, algorithm, sampling, rounds, math.inf, math.inf, share)

    def _setting(self) -> PlanningProblem:
        """Return the planning problem that the proposal's loss bounds are about."""
        dimension = self.loss.dimension(self.data.width)
        reach = self.domain.reach(dimension)
        smoothness = self.loss.smoothness_on(self.data, reach, self.clip)
        silos, participation = len(self.members), self.request.silos_per_round()
        available = float(participation.silos or silos)
        if participation.probability is not None:
            available = harmonic_mean_of_answers(answer_probabilities(silos, participation.probability))
        noise_factor, batch_share = 1.0, 1.0
        rule = sampling_named(self.request.sampling or "full")
        if rule.is_secret:
            largest = max(self.members, key=lambda member: member.records)
            noise_factor, batch_share = _sampling_noise(rule, largest, self.limit)
        return PlanningProblem(
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
            noise_factor=noise_factor,
            batch_share=batch_share,
            mixed=self.channel.mixed_records(self.request, self.members),
            takes_turns=participation.silos not in (None, silos) and participation.answers is None,
        )


def _asked_algorithm(request: PlanRequest) -> tuple[AlgorithmSpec | str | None, int | None]:
    """Return the requested algorithm and rounds; a step means minibatch SGD with the tail average."""
    if request.step is None:
        return request.algorithm, request.rounds
    if request.algorithm not in (None, "minibatch-sgd"):
        raise PlanError(
            f"Only minibatch-sgd takes a step; {request.algorithm} has its own schedule: leave the step out."
        )
    rounds = defaults.MOST_ROUNDS if request.rounds is None else request.rounds
    with clear_refusals():
        return MinibatchSGD(step=request.step).averaged("tail", rounds), rounds


def _sets_no_option_of_another_algorithm(request: PlanRequest) -> bool:
    """Return whether every option but the survey leaves preconditioned descent open."""
    plain = PlanRequest()
    others = ("clip", "distance", "domain", "step", "average", "batch", "correlation", "risk", "lasso")
    return (
        all(getattr(request, name) == getattr(plain, name) for name in others)
        and (request.sampling is None or sampling_named(request.sampling).takes_all)
        and request.silos_per_round().probability is None
    )


def _loss(request: PlanRequest, data: Schema) -> Loss:
    """Return the loss of the proposal: the requested one, or the default for the schema."""
    asked = "survival" if request.loss is None and data.event is not None else request.loss
    if asked is None:
        return defaults.default_loss(data)
    if not isinstance(asked, str):
        return asked
    with clear_refusals():
        return defaults.loss_named(asked, data, request)


def _sampling_noise(rule: Sampling, member: Member, rounds: int) -> tuple[float, float]:
    """Return the noise of sampled batches relative to full ones, and their share of the records."""
    batch = member.batch_under(rule, rounds)
    shape: Any = {"records": member.records, "rounds": rounds, "clip": 1.0, "epsilon": member.epsilon}
    sampled, full = (
        calibrate.noise(kind, batch=size, delta=member.allowed_delta, **shape)
        for kind, size in ((rule.name, batch), ("full", member.records))
    )
    return sampled / full, batch / member.records


def _smoothed(loss: Loss, data: Schema, setting: PlanningProblem, members: Sequence[Member], limit: int) -> Loss:
    """Smooth a proposal's loss with a kink: β of P15, or less if the rounds are too few for it.

    A larger β is closer to the loss itself, by L²/(2β), but takes more rounds: 4βD₀²/(R(R+1)).
    """
    epsilon = min(member.epsilon for member in members)
    records = sum(setting.records) // len(members)
    private = epsilon * records * math.sqrt(setting.available / setting.dimension)
    most = private * setting.clip / (2 * setting.distance)  # εn√M L/(√d D)

    def total(smoothness: float) -> float:
        """Return the loss bound plus the smoothing error, which the proposal minimises over the smoothness."""
        bound = loss_bounds.accelerated_best(
            smoothness=smoothness, distance=setting.distance, rounds=limit, variance=setting.variance("full", limit)
        )
        return bound + loss.smoothed(data.feature_norm, smoothness).smoothing_error

    return loss.smoothed(data.feature_norm, min((most * 0.5**k for k in range(40)), key=total))
