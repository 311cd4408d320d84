"""A plan before its noise is known: all that the planner has decided, and how it becomes a plan."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ringfence.planning.availability import turns_needed
from ringfence.planning.request import Member
from ringfence.protocol.algorithms import AlgorithmSpec
from ringfence.protocol.channels import Channel
from ringfence.protocol.domain import Domain
from ringfence.protocol.guarantee import Guarantee
from ringfence.protocol.keys import Key
from ringfence.protocol.losses import Loss
from ringfence.protocol.plan import Participation, Plan, SiloTerms, Stage, StageTerms, Training
from ringfence.protocol.questions import PersonRule, Question, Unit
from ringfence.protocol.questions.base import Facts
from ringfence.protocol.sampling import Full, Sampling, SamplingName
from ringfence.protocol.schema import Schema
from ringfence.protocol.sections import Section

EVALUATIONS = 2
"""Rounds of the evaluation: one to find a ruler, one to measure with it."""


@dataclass(frozen=True)
class PlanDraft:
    """A plan without noise, and without the channel of its training stages.

    `survey` is the share of every silo's budget, in squared shift, that a first look at the curvature takes, or 0.
    `weights` and `shifts` are the members' shares of the objective and the Gaussian shifts that their budgets allow.
    `evaluation` is the last stage's question, about the `held_out` share of the records, if there is to be one: what it
    costs these is what the rest of the plan costs the others.
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
    evaluation: Question | None = None
    purpose: str | None = None
    controller: str | None = None
    contact: str | None = None

    @property
    def dimension(self) -> int:
        """Number of weights."""
        return self.loss.dimension(self.data.width)

    @cached_property
    def training_stages(self) -> list[tuple[int, Sampling]]:
        """Rounds and sampling rule of every training stage."""
        return self.algorithm.training_stages(self.sampling, self.rounds)

    def turns(self, rounds: int) -> Participation:
        """Return who is asked in a training stage of so many rounds: silos take turns where not all of them are."""
        asked, silos = self.participation, len(self.members)
        if asked.silos in (None, silos) or asked.answers is not None:
            return asked
        return asked.model_copy(update={"answers": turns_needed(rounds, asked.share(silos))})

    def batches(self, member: Member) -> list[int]:
        """Return a member's batch in every training stage."""
        return [
            member.batch_under(rule, min(self.turns(rounds).answers or rounds, rounds))
            for rounds, rule in self.training_stages
        ]

    def first_guess(self, member: Member, shift: float) -> float:
        """Return a first guess at the noise of a member's first training stage."""
        longest = self.algorithm.question(self.clip).largest(self)
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
        """Return the terms of the member at that place, with that noise in its first training stage."""
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
        """Return what that member contributes to every stage, with that noise in the first training stage."""
        member, shift = self.members[place], self.shifts[place]
        training = [
            StageTerms(batch=batch, sigma=sigma * self.algorithm.noise(member.records, number))
            for number, batch in enumerate(self.batches(member))
        ]
        surveys = []
        if self.survey:
            question, rounds = self.algorithm.survey()
            movement = question.sensitivity(self, member.records)
            surveys = [StageTerms(batch=member.records, sigma=movement / (math.sqrt(self.survey / rounds) * shift))]
        return (*surveys, *training, *self._evaluation_terms(member, shift))

    def _evaluation_terms(self, member: Member, shift: float) -> list[StageTerms]:
        if self.evaluation is None:
            return []
        return [held_out_terms(self, self.evaluation, member.held_out, shift / math.sqrt(EVALUATIONS))]

    def plan(self, channel: Channel, silos: Sequence[SiloTerms]) -> Plan:
        """Put the plan together."""
        section: Section | None = None if self.held_out is None else "training"
        looks = [self.algorithm.survey()] if self.survey else []
        first = [Stage(question=asks, rounds=rounds, sampling=Full(), section=section) for asks, rounds in looks]
        last = (
            []
            if self.evaluation is None
            else [Stage(question=self.evaluation, rounds=EVALUATIONS, sampling=Full(), section="held-out")]
        )
        training = [
            Stage(
                question=self.algorithm.question(self.clip),
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
            sums="exact",
            held_out=self.held_out,
            unit=self.unit,
            person_rule=self.person_rule,
            rows_per_person=self.rows_per_person,
            silos=tuple(silos),
            purpose=self.purpose,
            controller=self.controller,
            contact=self.contact,
        )


def held_out_terms(facts: Facts, question: Question, held_out: int, shift: float) -> StageTerms:
    """Return what so many held-out records are asked with, if each answer may have that Gaussian shift."""
    # What rounding sums and the grid adds to each of the answers (`accounting.shifts.shift_of`) is less than this.
    allowed = shift * (1 - 1e-6) - math.sqrt(question.terms_summed(facts)) * 2.0**-30
    return StageTerms(batch=held_out, sigma=question.sensitivity(facts, held_out) / allowed)
