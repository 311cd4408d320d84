"""The plan: the one public document from which everything that affects privacy is built.

A plan is public facts (schema, silos and their guarantees, training) and a tuple of stages; a stage asks one query,
once or many times, over one channel. A silo's operator approves a plan by its digest. Clip, sampling, noise and
adjacency come from it together, so that they cannot disagree; no later message can change any of them."""

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from ringfence.errors import PlanError
from ringfence.protocol.channels import Channel, OwnNoise
from ringfence.protocol.documents.custody import Line
from ringfence.protocol.documents.keys import Key, PublicKeys
from ringfence.protocol.losses import Loss
from ringfence.protocol.losses.base import Constants
from ringfence.protocol.plan import sections
from ringfence.protocol.plan.algorithms import AlgorithmSpec
from ringfence.protocol.plan.checks import check_plan
from ringfence.protocol.plan.domain import Domain, Proximal, WholeSpace
from ringfence.protocol.plan.guarantee import Guarantee, Observer, against, observers_of
from ringfence.protocol.plan.sampling import Part, Sampling
from ringfence.protocol.plan.sections import Section
from ringfence.protocol.public import Document, Public, SiloName
from ringfence.protocol.queries import Query
from ringfence.protocol.queries.base import PersonRule, Unit
from ringfence.protocol.schema.schema import Schema
from ringfence.storage.files import read_file


class StageTerms(Public):
    """One silo's terms in one stage.

    `batch` is the number of records that an answer is the mean over, `sigma` the standard deviation of the noise on
    each of its numbers.
    """

    batch: int = Field(ge=1, le=2**53)
    sigma: float = Field(gt=0)


class SiloTerms(Public):
    """One silo's terms in a plan: its records, weight, guarantees and stages.

    `stages` has its terms in every stage of the plan. `guarantees` cover all stages together, one for each kind of
    observer, the decisive one first; the silo proves them again with its own accountant before it approves. `weight` is
    the silo's public share of the objective. `key` checks its signatures, where answers are signed.
    """

    name: SiloName
    records: int = Field(ge=1, le=2**53)
    weight: float = Field(gt=0, le=1)
    guarantees: tuple[Guarantee, ...] = Field(min_length=1)
    stages: tuple[StageTerms, ...]
    key: Key | None = None

    @property
    def guarantee(self) -> Guarantee:
        """The decisive guarantee in a silo's terms of the plan."""
        return self.guarantees[0]

    def against(self, observer: Observer) -> Guarantee:
        """Return the guarantee in a silo's terms of the plan that is stated against the observer."""
        return against(self.guarantees, observer)


class Participation(Public):
    """How many silos the server asks in a round.

    `silos`: that many, drawn anew in each round; `probability`: each one independently; neither: all of them. This adds
    no privacy, since the server sees who answers. `answers` does: it limits how many rounds of a stage a silo answers,
    by any request, so that its noise need not cover more. Silos then take turns.
    """

    silos: int | None = Field(default=None, ge=1)
    probability: float | None = Field(default=None, gt=0, le=1)
    answers: int | None = Field(default=None, ge=1, le=10_000_000)

    @model_validator(mode="after")
    def _is_one_rule(self) -> Self:
        """Refuse a participation that states two rules for which silos a round asks."""
        if self.silos is not None and self.probability is not None:
            raise ValueError("give either a number of silos or a probability, not both")
        if self.answers is not None and self.silos is None:
            raise ValueError("where silos take turns, give the number of silos that a round asks")
        return self

    def share(self, silos: int) -> float:
        """Return the average share of that many silos that a round of a plan's stage asks."""
        return self.probability or (self.silos or silos) / silos


EVERYBODY = Participation()


class Stage(Public):
    """One query, asked in `rounds` rounds of messages, and how its answers come about and leave the silos.

    `section` is the one that it is asked of; None means all records.
    """

    query: Query
    rounds: int = Field(ge=1, le=10_000_000)
    sampling: Sampling
    channel: Channel = OwnNoise()
    participation: Participation = EVERYBODY
    section: Section | None = None

    @property
    def most_answers(self) -> int:
        """The most rounds of a plan's stage that a silo answers."""
        return min(self.participation.answers or self.rounds, self.rounds)


class Training(Public):
    """What is trained: the loss, the domain of the weights, the algorithm, and the penalties.

    `ridge` adds (ridge/2)·‖w‖² to the objective; the server adds its gradient, since no record is in it. `lasso` adds
    lasso·‖w‖₁, the intercept left out; the server takes a proximal step for it.
    """

    loss: Loss
    domain: Domain
    algorithm: AlgorithmSpec
    ridge: float = Field(default=0.0, ge=0)
    lasso: float | None = Field(default=None, gt=0)


class StageRound(NamedTuple):
    """A round of messages within its stage: the stage, its number, and the number of the round in it."""

    stage: Stage
    number: int
    round: int


class Plan(Document):
    """The document that all parties agree on before a run.

    `training` is None where nothing is trained. Queries about a model trained elsewhere then need its loss,
    `model_loss`; other queries need neither.

    `run` distinguishes two runs that are otherwise equal. Rounds of messages are numbered through all stages, from 0.

    `unit` is what a guarantee protects. If it is a person, a silo's `records` are persons, each with any number of
    rows, in everything that the plan says: batches, samples, parts and the terms of a mean. `person_rule` is how a
    person's rows enter a gradient: the `mean` of their clipped gradients; the sum of the clipped gradients of the first
    `rows_per_person` of them, divided by that number (`rows`); or the `sum` of their gradients, clipped as one.

    `held_out` is the share of a silo's records in the held-out section, in whole percent (`protocol.plan.sections`).

    `purpose`, `controller` and `contact` are for people: what the plan is for, who is legally responsible, and whom to
    ask. They are public and part of what is approved. Nothing is computed from them.
    """

    format: Literal[1] = 1
    run: str = Field(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z_.-]+$")
    data: Schema
    training: Training | None = None
    model_loss: Loss | None = None
    stages: tuple[Stage, ...] = Field(min_length=1, max_length=1000)
    adjacency: Literal["replace-one"] = "replace-one"
    unit: Unit = "record"
    person_rule: PersonRule | None = None
    rows_per_person: int | None = Field(default=None, ge=1, le=2**20)
    held_out: float | None = Field(default=None, ge=0.01, le=0.99)
    silos: tuple[SiloTerms, ...] = Field(min_length=1, max_length=100_000)
    purpose: Line | None = None
    controller: Line | None = None
    contact: Line | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Check the whole plan when it is made."""
        check_plan(self)
        return self

    @property
    def loss(self) -> Loss:
        """The loss of one record; ValueError in a plan without a model."""
        loss = self.model_loss if self.training is None else self.training.loss
        if loss is None:
            raise ValueError("model_loss: a plan that asks about a model without training one must name its loss")
        return loss

    @property
    def domain(self) -> Domain:
        """The set that the plan's weights stay in; without training, any weights are allowed."""
        return WholeSpace() if self.training is None else self.training.domain

    @property
    def algorithm(self) -> AlgorithmSpec:
        """The training algorithm; ValueError in a plan that trains nothing."""
        if self.training is None:
            raise ValueError("This plan trains nothing.")
        return self.training.algorithm

    @property
    def ridge(self) -> float:
        """The factor of ‖w‖²/2 in the plan's objective."""
        return 0.0 if self.training is None else self.training.ridge

    @property
    def lasso(self) -> float:
        """The factor of ‖w‖₁, without the intercept, in the plan's objective."""
        return 0.0 if self.training is None else self.training.lasso or 0.0

    @property
    def proximal(self) -> Proximal:
        """The lasso's proximal step within the plan's domain, taken after every gradient step."""
        return Proximal(self.domain, self.lasso, self.loss.outputs if self.data.intercept else 0)

    @cached_property
    def _terms(self) -> dict[str, SiloTerms]:
        """The plan's terms by the silo's name."""
        return {terms.name: terms for terms in self.silos}

    def terms(self, silo: str) -> SiloTerms | None:
        """Return the named silo's terms, or None if it takes no part in the plan."""
        return self._terms.get(silo)

    def records_in(self, stage: Stage, terms: SiloTerms) -> int:
        """Return the number of the silo's records in the stage's section."""
        return sections.size(stage.section, terms.records, self.held_out)

    @property
    def depends_on_positions(self) -> bool:
        """Whether the plan divides records by their positions, which must not change while it runs."""
        return any(stage.sampling.is_fresh or stage.section is not None for stage in self.stages)

    def others(self, silo: str) -> str:
        """Name the other silos of the plan, ten at most."""
        names = [terms.name for terms in self.silos if terms.name != silo]
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        return (", ".join(names[:10]) + more) or "none"

    @property
    def dimension(self) -> int:
        """Number of weights: 0 in a plan without a model."""
        about_model = self.training is not None or self.model_loss is not None
        return self.loss.dimension(self.data.width) if about_model else 0

    @cached_property
    def rounds(self) -> int:
        """Number of rounds of messages in a plan: of its survey, training and evaluation. Each is charged."""
        return sum(stage.rounds for stage in self.stages)

    @cached_property
    def steps(self) -> int:
        """Rounds of a plan whose answers move the model's weights: its training rounds."""
        return sum(stage.rounds for stage in self.training_stages)

    @cached_property
    def training_numbers(self) -> tuple[int, ...]:
        """The numbers of the plan's stages whose answers move the model's weights."""
        return tuple(number for number, stage in enumerate(self.stages) if stage.query.trains)

    @property
    def training_stages(self) -> tuple[Stage, ...]:
        """The plan's stages whose answers move the model's weights."""
        return tuple(self.stages[number] for number in self.training_numbers)

    def place(self, round: int) -> StageRound:
        """Return the stage of a round of messages, and the round in it; IndexError if the plan has no such round."""
        if round >= 0:
            for number, first in enumerate(self.first_rounds):
                if round < first + self.stages[number].rounds:
                    return StageRound(self.stages[number], number, round - first)
        raise IndexError(f"the plan has no round {round}")

    @cached_property
    def first_rounds(self) -> tuple[int, ...]:
        """The number of the first round of every stage of the plan."""
        ends = itertools.accumulate((stage.rounds for stage in self.stages), initial=0)
        return tuple(ends)[:-1]

    @cached_property
    def observers(self) -> tuple[Observer, ...]:
        """Whom the plan's guarantees are stated against, the decisive one first."""
        return observers_of(*(stage.channel.observers for stage in self.stages))

    @cached_property
    def leading_channel(self) -> Channel:
        """The channel whose guarantees rely on the most parties: its statements about trust hold for the plan."""
        channels = (stage.channel for stage in self.stages)
        return max(channels, key=lambda channel: (len(channel.observers), channel.least_answers()))

    @property
    def most_colluders(self) -> int | None:
        """How many other silos may collude with the server by the plan; None if all of them may."""
        known = (stage.channel.most_colluders() for stage in self.stages)
        return min((number for number in known if number is not None), default=None)

    @property
    def aim(self) -> str:
        """The plan's purpose as an infinitive: to predict a target, or to ask for something else."""
        asked = dict.fromkeys(stage.query.name for stage in self.stages)
        return f"to predict “{self.data.target_words}”" if self.steps else f"to ask for {', '.join(asked)}"

    @property
    def responsible(self) -> dict[str, str]:
        """Purpose, controller and contact, as far as the plan states them."""
        said = {"Purpose": self.purpose, "Controller": self.controller, "Contact": self.contact}
        return {name: text for name, text in said.items() if text is not None}

    @property
    def trust(self) -> str:
        """The party that the plan's guarantees rely on, besides the silo itself."""
        return self.leading_channel.trust

    @property
    def keys(self) -> PublicKeys | None:
        """The public keys that the plan pins, if one of its channels needs any."""
        return self.leading_channel.keys({terms.name: terms.key for terms in self.silos if terms.key is not None})

    @property
    def constants(self) -> Constants:
        """L, β and μ of the plan's per-record loss over the domain, before clipping; the ridge adds to β and μ."""
        loss = self.loss.constants_on(self.data, self.domain.reach(self.dimension))
        return Constants(loss.lipschitz, loss.smoothness + self.ridge, loss.strong_convexity + self.ridge)


def _read_embedded(value: Any) -> Any:
    """Read a plan inside another document: its own bytes as text."""
    return Plan.parse(value.encode(), error=_NotAPlanError) if isinstance(value, str) else value


class _NotAPlanError(PlanError, ValueError):
    """Lets a document that holds a plan say what is wrong with it."""


EmbeddedPlan: TypeAlias = Annotated[
    Plan, BeforeValidator(_read_embedded), PlainSerializer(lambda plan: plan.content.decode(), return_type=str)
]
"""A plan inside another document, as the very bytes that it is named by."""


def fewest_colluders(plans: Iterable[Plan]) -> int | None:
    """Return the smallest number of colluding silos that any of the plans allows; None if no plan names a number.

    The guarantee of all plans together holds against that many.
    """
    return min((plan.most_colluders for plan in plans if plan.most_colluders is not None), default=None)


def protected_by(plans: Iterable[Plan]) -> Unit:
    """Return the privacy unit of all these plans together: a record, unless each of them protects persons."""
    return "person" if {plan.unit for plan in plans} == {"person"} else "record"


def rounds_words(*plans: Plan) -> str:
    """Return how many rounds the plans have, and of which parts: "16 rounds: 2 survey, 12 training, 2 evaluation"."""
    parts: Counter[str] = Counter()
    for plan in plans:
        for stage in plan.stages:
            parts[stage.query.rounds_for] += stage.rounds
    total = f"{parts.total()} round{'' if parts.total() == 1 else 's'}"
    return f"{total}: {', '.join(f'{count} {part}' for part, count in parts.items())}" if len(parts) > 1 else total


def load_plan(path: Path) -> Plan:
    """Read a plan from a JSON file."""
    return Plan.parse(read_file(path, "plan", PlanError), error=PlanError, source=str(path))


@dataclass(frozen=True)
class Task:
    """What a plan has one silo do in one round; mechanism, accountant and simulator all read it here.

    Its answer is a vector of `length` numbers: the stage's query over `batch` records, with noise of standard
    deviation `sigma` per number. `records` is how many records the stage is asked of. `part` is the part of the plan's
    partition that they come from; None means that the stage's sampling draws from all of them.
    """

    stage: Stage
    number: int
    """The stage's number."""
    length: int
    batch: int
    sigma: float
    records: int
    part: Part | None = None


def task(plan: Plan, terms: SiloTerms, round: int, answered: int) -> Task:
    """Return what the silo does in that round of messages, after `answered` earlier answers in the same stage."""
    stage, number, _ = plan.place(round)
    own, records = terms.stages[number], plan.records_in(stage, terms)
    part = stage.sampling.part(records=records, batch=own.batch, answered=answered)
    return Task(stage, number, stage.query.length(plan), own.batch, own.sigma, records, part)
