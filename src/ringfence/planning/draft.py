"""A plan before its noise is calibrated, and how the two are put together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ringfence.planning.problem import turns_needed
from ringfence.planning.request import Member
from ringfence.protocol import (
    AlgorithmSpec,
    Channel,
    Domain,
    Facts,
    Full,
    Guarantee,
    Loss,
    Participation,
    PersonRule,
    Plan,
    Query,
    Sampling,
    SamplingName,
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

    `survey` is the survey's share of every silo's budget (in μ²), or 0. `weights` and `shifts` are the members' shares
    of the objective and the Gaussian shifts of their budgets. `evaluation` is the query of the last stage, which asks
    the `held_out` share of the records and costs them what the other stages cost the training records.
    """

    run: str
    data: Schema
    loss: Loss
    domain: Domain
    algorithm: AlgorithmSpec
    ridge: float
    lasso: float
    clip: float
    sampling: SamplingName
    rounds: int
    survey: float
    participation: Participation
    members: tuple[Member, ...]
    weights: tuple[float, ...]
    shifts: tuple[float, ...]
    unit: Unit
    person_rule: PersonRule | None
    rows_per_person: int | None
    held_out: float | None = None
    evaluation: Query | None = None
    purpose: str | None = None
    controller: str | None = None
    contact: str | None = None

    @property
    def dimension(self) -> int:
        """Number of weights of the drafted plan."""
        return self.loss.dimension(self.data.width)

    @cached_property
    def training_stages(self) -> list[tuple[int, Sampling]]:
        """Rounds and sampling rule of every training stage of the draft."""
        return self.algorithm.training_stages(self.sampling, self.rounds)

    def turns(self, rounds: int) -> Participation:
        """Return who is asked in the draft's training stage of that many rounds; if not all silos, they take turns."""
        asked, silos = self.participation, len(self.members)
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
        answers = self.turns(self.rounds).answers or self.rounds
        return 2 * longest / (self.batches(member)[0] * shift) * math.sqrt(answers)

    def terms(
        self,
        place: int,
        guarantees: tuple[Guarantee, ...],
        sigma: float,
        *,
        weight: float | None = None,
        key: Key | None = None,
    ) -> SiloTerms:
        """Return the draft's terms of the member at that place, with that noise in its first training stage."""
        member = self.members[place]
        return SiloTerms(
            name=member.name,
            records=member.all_records,
            weight=self.weights[place] if weight is None else weight,
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
        surveys = []
        if self.survey:
            query, rounds = self.algorithm.survey()
            sensitivity = query.sensitivity(self, member.records)
            surveys = [StageTerms(batch=member.records, sigma=sensitivity / (math.sqrt(self.survey / rounds) * shift))]
        if self.evaluation is None:
            return (*surveys, *training)
        last = held_out_terms(self, self.evaluation, member.held_out, shift / math.sqrt(EVALUATIONS))
        return (*surveys, *training, last)

    def plan(self, channel: Channel, silos: Sequence[SiloTerms]) -> Plan:
        """Put the plan together from its draft."""
        section: Section | None = None if self.held_out is None else "training"
        looks = [self.algorithm.survey()] if self.survey else []
        first = [Stage(query=asks, rounds=rounds, sampling=Full(), section=section) for asks, rounds in looks]
        last = (
            []
            if self.evaluation is None
            else [Stage(query=self.evaluation, rounds=EVALUATIONS, sampling=Full(), section="held-out")]
        )
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
            run=self.run,
            data=self.data,
            training=Training(
                loss=self.loss,
                domain=self.domain,
                algorithm=self.algorithm,
                ridge=self.ridge,
                lasso=self.lasso or None,
            ),
            stages=(*first, *training, *last),
            held_out=self.held_out,
            unit=self.unit,
            person_rule=self.person_rule,
            rows_per_person=self.rows_per_person,
            silos=tuple(silos),
            purpose=self.purpose,
            controller=self.controller,
            contact=self.contact,
        )


def held_out_terms(facts: Facts, query: Query, held_out: int, shift: float) -> StageTerms:
    """Return batch and noise for that many held-out records, if each answer may have that Gaussian shift."""
    # Rounding of sums and the grid add less than this to each answer (`accounting.sampling.shift_of`).
    allowed = shift * (1 - 1e-6) - math.sqrt(query.terms_summed(facts)) * 2.0**-30
    return StageTerms(batch=held_out, sigma=query.sensitivity(facts, held_out) / allowed)
