"""A plan before its noise is calibrated, and how the two are put together."""

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ringfence.estimates.evaluation import chosen_figures
from ringfence.planning.algorithm_choice import AlgorithmChoice
from ringfence.planning.curves import COLUMNS_ROUNDS, COLUMNS_SHARE
from ringfence.planning.problem import turns_needed
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import (
    AlgorithmSpec,
    Channel,
    ColumnDistributions,
    Domain,
    Evaluation,
    Facts,
    Full,
    Guarantee,
    Loss,
    Participation,
    PersonRule,
    Plan,
    Query,
    Sampling,
    Schema,
    Section,
    SiloTerms,
    Stage,
    StageTerms,
    Training,
    Unit,
)
from ringfence.protocol.documents.keys import Key

EVALUATIONS = 2
"""Rounds of an evaluation: one finds bin edges, one measures with them."""


@dataclass(frozen=True)
class PlanDraft:
    """A plan without noise, and without the channel of its training stages.

    `weights` and `shifts` are the members' shares of the objective and the Gaussian shifts of their budgets. If it is
    `evaluated`, the last stage asks the held-out records, and costs them what the other stages cost the training
    records. `columns` is the survey of columns, if one is made.
    """

    request: PlanRequest
    data: Schema
    loss: Loss
    domain: Domain
    clip: float
    choice: AlgorithmChoice
    members: tuple[Member, ...]
    weights: tuple[float, ...]
    shifts: tuple[float, ...]
    unit: Unit
    person_rule: PersonRule | None
    rows_per_person: int | None
    evaluated: bool
    columns: ColumnDistributions | None = None

    @property
    def dimension(self) -> int:
        """Number of weights of the drafted plan."""
        return self.loss.dimension(self.data.width)

    @property
    def algorithm(self) -> AlgorithmSpec:
        """The drafted plan's algorithm."""
        return self.choice.algorithm

    @cached_property
    def training_stages(self) -> list[tuple[int, Sampling]]:
        """Rounds and sampling rule of every training stage of the draft."""
        return self.algorithm.training_stages(self.choice.sampling, self.choice.rounds)

    @cached_property
    def surveys(self) -> list[tuple[Query, int, float]]:
        """The queries before the draft's training, each with its rounds and its share of the budget (in μ²)."""
        columns = [] if self.columns is None else [(self.columns, COLUMNS_ROUNDS, COLUMNS_SHARE)]
        return [*columns, *([(*self.algorithm.survey(), self.choice.survey)] if self.choice.survey else [])]

    @property
    def survey_share(self) -> float:
        """The share of the budget in squared shift that all surveys of the draft take."""
        return math.fsum(share for _, _, share in self.surveys)

    def turns(self, rounds: int) -> Participation:
        """Return who is asked in the draft's training stage of that many rounds; if not all silos, they take turns."""
        asked, silos = self.request.silos_per_round(), len(self.members)
        if asked.silos in (None, silos) or asked.answers is not None:
            return asked
        return asked.model_copy(update={"answers": turns_needed(rounds, asked.share(silos))})

    def batches(self, member: Member) -> list[int]:
        """Return a member's batch in every training stage of the draft."""
        return [
            member.batch_under(rule, min(self.turns(rounds).answers or rounds, rounds))
            for rounds, rule in self.training_stages
        ]

    def first_guess(self, member: Member, shift: float) -> float:
        """Return a first guess at the noise of a member's first training stage in the draft."""
        longest = self.algorithm.query(self.clip).largest(self)
        answers = self.turns(self.choice.rounds).answers or self.choice.rounds
        return 2 * longest / (self.batches(member)[0] * shift) * math.sqrt(answers)

    def terms(self, place: int, guarantees: tuple[Guarantee, ...], sigma: float, key: Key | None = None) -> SiloTerms:
        """Return the draft's terms of the member at that place, with that noise in its first training stage."""
        member = self.members[place]
        return SiloTerms(
            name=member.name,
            records=member.all_records,
            weight=self.weights[place],
            guarantees=guarantees,
            stages=self.stage_terms(place, sigma),
            key=key,
        )

    def stage_terms(self, place: int, sigma: float) -> tuple[StageTerms, ...]:
        """Return the batch and noise of every stage for the member at that place, given its first training noise."""
        member, shift = self.members[place], self.shifts[place]
        training = [
            StageTerms(batch=batch, sigma=sigma * self.algorithm.noise(member.records, number))
            for number, batch in enumerate(self.batches(member))
        ]
        evaluations = []
        surveys = [
            StageTerms(
                batch=member.records,
                sigma=query.sensitivity(self, member.records) / (math.sqrt(share / rounds) * shift),
            )
            for query, rounds, share in self.surveys
        ]
        if self.evaluated:
            evaluations = [held_out_terms(self, Evaluation(), member.held_out, shift / math.sqrt(EVALUATIONS))]
        return (*surveys, *training, *evaluations)

    def plan(self, channel: Channel, silos: Sequence[SiloTerms]) -> Plan:
        """Put the plan together from its draft."""
        request, held_out = self.request, any(member.held_out for member in self.members)
        section: Section | None = "training" if held_out else None
        first = [
            Stage(query=query, rounds=rounds, sampling=Full(), section=section) for query, rounds, _ in self.surveys
        ]
        evaluations = []
        if self.evaluated:
            noise = evaluation_noise([member.held_out for member in self.members], self.shifts)
            query = Evaluation(figures=chosen_figures(self.loss, request.figures, noise))
            evaluations = [Stage(query=query, rounds=EVALUATIONS, sampling=Full(), section="held-out")]
        training = [
            Stage(
                query=self.algorithm.query(self.clip),
                rounds=rounds,
                sampling=rule,
                channel=channel,
                participation=self.turns(rounds),
                section=section,
            )
            for rounds, rule in self.training_stages
        ]
        return Plan(
            run=request.run or secrets.token_hex(8),
            data=self.data,
            training=Training(
                loss=self.loss,
                domain=self.domain,
                algorithm=self.algorithm,
                ridge=request.ridge,
                lasso=request.lasso or None,
            ),
            stages=(*first, *training, *evaluations),
            held_out=request.held_out_share if held_out else None,
            unit=self.unit,
            person_rule=self.person_rule,
            rows_per_person=self.rows_per_person,
            silos=tuple(silos),
            purpose=request.purpose,
            controller=request.controller,
            contact=request.contact,
        )


def evaluation_noise(records: Sequence[int], shifts: Sequence[float]) -> float:
    """Return the noise in the mean over silos of an evaluation's answers in one round, by their Gaussian shifts."""
    return math.hypot(*(math.sqrt(EVALUATIONS) / shift for shift in shifts)) / max(sum(records), 1)


def held_out_terms(facts: Facts, query: Query, held_out: int, shift: float) -> StageTerms:
    """Return batch and noise for that many held-out records, if each answer may have that Gaussian shift."""
    # Rounding of sums and the grid add less than this to each answer (`accounting.sampling.shift_of`).
    allowed = shift * (1 - 1e-6) - math.sqrt(query.terms_summed(facts)) * 2.0**-30
    return StageTerms(batch=held_out, sigma=query.sensitivity(facts, held_out) / allowed)
