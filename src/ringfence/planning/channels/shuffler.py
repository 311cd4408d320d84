"""The least coins that all silos' budgets allow, for one noise of all of them together, and enough shares."""

import math
from collections.abc import Sequence
from dataclasses import replace

from ringfence.accounting import calibrate
from ringfence.accounting.channels.shuffler import MIXED, counts_rounding, honest_silos
from ringfence.accounting.charges import costs, plan_events
from ringfence.errors import PlanError
from ringfence.planning.channels.coins import CoinNoise, choose, shares_needed
from ringfence.planning.draft import PlanDraft
from ringfence.planning.problem import PlanningProblem
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Guarantee, Plan, PublicKeys, ShufflerChannel, SiloTerms, sampling_named

COLLUDERS = 1
"""Other silos that may collude with the server, unless a number is given."""

BITS = 140
"""Bits per coordinate and record that the protocol may take unless a limit is given: g + b."""

GROUP_BITS = 1024
"""Bits of one share at most: longer ones need as many more shares."""

SURVEY_ROUNDING = 1e-5
"""More than what rounding and the grid add to the shift of a survey: √d·2⁻³⁰ of each answer, for d numbers."""

SET_ASIDE = 0.01
"""Part of delta that the accounting of counts sets aside."""


def restricted(request: PlanRequest, members: Sequence[Member]) -> PlanRequest:
    """Demand keys and a quorum for the shuffler; leave out what totals cannot carry."""
    if request.keys is None:
        raise PlanError("A plan that trusts a shuffler must name everyone's public keys: give the keys.")
    sampling = request.sampling or "full"
    rule = sampling_named(sampling)
    if rule.is_secret or rule.is_phased or request.survey or request.correlation:
        raise PlanError(
            "A shuffler supports full and one-pass sampling only, without a curvature survey or correlated noise: "
            "leave these out."
        )
    if request.weights not in (None, "records") or any(member.weight is not None for member in members):
        raise PlanError(
            "Only totals leave a shuffler, so silos are weighted by how many records take part: leave the weights out."
        )
    participation = request.silos_per_round()
    asked = participation.silos or len(members)
    quorum = asked if request.quorum is None else request.quorum
    colluders = COLLUDERS if request.colluders is None else request.colluders
    if participation.probability is not None:
        raise PlanError("A shuffler needs to know how many silos are asked: give their number, not a probability.")
    if not 2 <= quorum <= asked:
        raise PlanError(
            f"The shuffler's quorum must be between 2 and the {asked} silos that a round asks, but is {quorum}: a silo "
            "hides among the others in its batch."
        )
    if not 0 <= colluders <= quorum - 2:
        raise PlanError(
            f"Of {quorum} silos in a batch, {colluders} may collude with the server, which leaves nobody for a "
            "silo to hide among: a silo knows its own noise, so a shuffler would gain nothing. Let a batch hold "
            f"{colluders + 2} silos or more, or do not use a shuffler. With 0 colluders, only each silo's own noise "
            "protects it against the other silos."
        )
    missing = [member.name for member in members if member.name not in request.keys.silos]
    if missing:
        raise PlanError(f"The keys of {', '.join(missing)} are missing: every silo signs what it sends.")
    return replace(request, sampling=sampling, quorum=quorum, colluders=colluders, weights="records")


def surveys_curvature(request: PlanRequest) -> bool:
    """Return False for plans with a shuffler: an eigenvalue is no sum over records."""
    return False


def mixed_records(request: PlanRequest, members: Sequence[Member]) -> int:
    """Return how many records of honest silos the smallest batch holds that the shuffler lets out."""
    return sum(sorted(member.records for member in members)[: honest_silos(*_batch_of(request))])


def _batch_of(request: PlanRequest) -> tuple[int, int]:
    """Return how many silos a shuffler's batch holds at least, and how many of them may collude with the server."""
    assert request.quorum is not None and request.colluders is not None  # noqa: S101, PT018 (restricted requests)
    return request.quorum, request.colluders


def calibrated(draft: PlanDraft) -> Plan:
    """Return a plan with a shuffler: the fewest coins that meet every silo's guarantee, and enough shares.

    The silos make one noise, so the strictest of their budgets decides for all.
    """
    request, keys = draft.request, draft.request.keys
    assert keys is not None  # noqa: S101 (a restricted request has them)
    ((rounds, rule),) = draft.training_stages
    batches = [draft.batches(member)[0] for member in draft.members]
    answers, dimension = rule.times(draft.turns(rounds).answers or rounds), draft.dimension
    longest = draft.algorithm.query(draft.clip).largest(draft)
    slack = min(member.allowed_delta for member in draft.members) * SET_ASIDE / answers
    shifts = [
        calibrate.gaussian_shift(member.epsilon, member.allowed_delta - 1.01 * answers * slack)
        for member in draft.members
    ]
    shift = min(shifts) * math.sqrt((1 - draft.survey_share) / answers)
    # A survey goes with each silo's own noise; what rounding and the grid add to its shift is less than this.
    draft = replace(
        draft,
        shifts=tuple(own * (1 - 1e-6) - SURVEY_ROUNDING for own in shifts),
        weights=tuple(batch / sum(batches) for batch in batches),
    )
    noise = choose(
        vectors=sum(sorted(batches)[: honest_silos(*_batch_of(request))]),
        dimension=dimension,
        shift=shift * (1 - 1e-9),
        slack=slack,
        bits=request.bits or BITS * dimension,
        inflation=max(counts_rounding(member.all_records, dimension) for member in draft.members),
    )
    channel = _channel(noise, request, slack, batches, dimension + 1, keys)

    def terms(place: int, anyone: float) -> SiloTerms:
        """Return a silo's terms in a shuffler's plan, given its epsilon against anyone."""
        member = draft.members[place]
        server = Guarantee(epsilon=member.epsilon, delta=member.allowed_delta, against="server")
        alone = Guarantee(epsilon=anyone, delta=member.allowed_delta, against="anyone")
        return draft.terms(place, (server, alone), channel.sigma(longest, batches[place]), keys.silos[member.name])

    places = range(len(draft.members))
    # The epsilon of a silo's own coins does not depend on the plan's claims.
    plan = draft.plan(channel, [terms(place, 1.0) for place in places])
    return draft.plan(channel, [terms(place, _alone(plan, plan.silos[place])) for place in places])


def noise_factor(plan: Plan, setting: PlanningProblem) -> float:
    """Return how much more noise the plan's batches carry than Gaussian releases would.

    In standard deviations of the mean over a batch of average size, roundings included: coins come in whole numbers.
    """
    (number,) = plan.training_numbers
    stage = plan.stages[number]
    channel, norm = stage.channel, stage.query.record_norm(plan)
    if not isinstance(channel, ShufflerChannel) or norm is None or plan.algorithm.finds_clip:
        return 0.0  # nothing was chosen by what was counted on
    assumed = replace(setting, mixing_cost=1.0)
    whole = assumed.unit_noise * (stage.most_answers**2 if stage.sampling.is_fresh else stage.most_answers)
    batch = sum(terms.stages[number].batch for terms in plan.silos) * setting.available / len(plan.silos)
    step = 2 * norm / channel.levels
    actual = plan.dimension * step**2 * (batch * channel.coins + setting.available) / 4 / batch**2
    return math.sqrt(actual / whole)


def _channel(
    noise: CoinNoise, request: PlanRequest, slack: float, batches: Sequence[int], numbers: int, keys: PublicKeys
) -> ShufflerChannel:
    """Return the plan's shuffler channel with these coins, its numbers packed into blocks."""
    quorum, colluders = _batch_of(request)
    largest_total = sum(batches) * (noise.levels + noise.coins)
    width = math.ceil(largest_total.bit_length() / 8)
    block = min(numbers, GROUP_BITS // (8 * width))
    blocks = -(-numbers // block)
    return ShufflerChannel(
        levels=noise.levels,
        coins=noise.coins,
        quorum=quorum,
        colluders=colluders,
        slack=slack,
        shares=shares_needed(parties=honest_silos(quorum, colluders), bits=8 * width * block, distance=MIXED / blocks),
        block=block,
        width=width,
        server_key=keys.server,
        shuffler_key=keys.shuffler,
    )


def _alone(plan: Plan, own: SiloTerms) -> float:
    """Return the epsilon of a silo's own coins, to six digits and rounded up, and no less than with the others'."""
    (cost,) = costs(plan_events(plan, own), ("anyone",), own.guarantee.delta)
    if not math.isfinite(cost.epsilon):
        batch = own.stages[plan.training_numbers[0]].batch
        raise PlanError(
            f"The coins of silo '{own.name}' alone, with {batch} {plan.unit}s in a round, would protect nobody if the "
            "server colluded with the shuffler. Allow more bits or larger rounds, or leave it out."
        )
    return max(own.guarantee.epsilon, cost.epsilon * (1 + 1e-6))
