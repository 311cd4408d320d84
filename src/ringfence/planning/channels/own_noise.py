"""The least noise of its own that every silo's budget allows."""

from collections.abc import Sequence
from dataclasses import replace

from ringfence.accounting import calibrate
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import Event
from ringfence.errors import PlanError
from ringfence.planning.draft import PlanDraft
from ringfence.planning.problem import PlanningProblem
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Guarantee, OwnNoise, Plan


def restricted(request: PlanRequest, members: Sequence[Member]) -> PlanRequest:
    """Refuse what is for a shuffler in a request whose silos add their own noise."""
    if any(given is not None for given in (request.keys, request.quorum, request.colluders, request.bits)):
        raise PlanError(
            "Keys, a quorum, colluders and a limit of bits are for plans that trust a shuffler: trust one, or leave "
            "them out."
        )
    return request


def surveys_curvature(request: PlanRequest) -> bool | None:
    """Leave the survey of the curvature to the request, where silos add their own noise."""
    return request.survey


def mixed_records(request: PlanRequest, members: Sequence[Member]) -> None:
    """Return None: every silo makes its own noise."""


def noise_factor(plan: Plan, setting: PlanningProblem) -> float:
    """Return 0: silos' own noise is Gaussian."""
    return 0.0


def calibrated(draft: PlanDraft) -> Plan:
    """Find every silo's least own noise, by the events that its gate will charge, and put the plan together.

    Records that are held out pay for the evaluation alone, whose noise is known.
    """
    channel = OwnNoise(correlation=draft.request.correlation)
    claims = [(Guarantee(epsilon=own.epsilon, delta=own.allowed_delta),) for own in draft.members]
    guesses = [draft.first_guess(own, shift) for own, shift in zip(draft.members, draft.shifts, strict=True)]
    places = range(len(draft.members))
    training = replace(draft, evaluated=False)
    plan = training.plan(channel, [training.terms(place, claims[place], guesses[place]) for place in places])

    def sigma(place: int) -> float:
        """Return the least own noise that meets the guarantee of the silo at that place."""
        (claim,), terms = claims[place], plan.silos[place]

        def events(sigma: float) -> list[tuple[Event, int]]:
            """Return what the silo's gate would charge for own noise of that standard deviation."""
            return plan_events(plan, terms.model_copy(update={"stages": training.stage_terms(place, sigma)}))

        return calibrate.least_noise(events, epsilon=claim.epsilon, delta=claim.delta, start=guesses[place])

    # Silos that differ in name and weight only share one calibration.
    alike = [replace(member, name="", weight=None) for member in draft.members]
    sigmas = {member: sigma(place) for member, place in {own: alike.index(own) for own in alike}.items()}
    return draft.plan(channel, [draft.terms(place, claims[place], sigmas[alike[place]]) for place in places])
