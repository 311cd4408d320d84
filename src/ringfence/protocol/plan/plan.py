"""The plan: the one public document from which everything that affects privacy is built.

A plan is public facts (the data's schema, the silos and what each is promised, what is trained if anything is) and a
tuple of stages; a stage asks one question, once or many times, over one channel. A silo's operator approves a plan by
its digest. Clip, sampling, noise and adjacency stand in it together, so that they cannot disagree; no later message can
change any of them.
"""

import itertools
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from ringfence.errors import PlanError
from ringfence.protocol import sections
from ringfence.protocol.algorithms import AlgorithmSpec
from ringfence.protocol.channels import Channel, OwnNoise
from ringfence.protocol.custody import Line
from ringfence.protocol.domain import Domain, WholeSpace
from ringfence.protocol.guarantee import Guarantee, Observer, against, observers_of
from ringfence.protocol.keys import Key, PublicKeys
from ringfence.protocol.losses import Constants, Loss
from ringfence.protocol.plan_checks import check_plan
from ringfence.protocol.proximal import Proximal
from ringfence.protocol.public import Document, Public, SiloName, canonical_json, format_of
from ringfence.protocol.questions import PersonRule, Question, Unit
from ringfence.protocol.sampling import Sampling
from ringfence.protocol.schema import Schema
from ringfence.protocol.sections import Section
from ringfence.storage.files import read_file


class StageTerms(Public):
    """What one silo contributes to one stage.

    `batch` is the number of records that an answer is the mean over, `sigma` the standard deviation of the noise on
    each of its numbers.
    """

    batch: int = Field(ge=1, le=2**53)
    sigma: float = Field(gt=0)


class SiloTerms(Public):
    """What one silo contributes, and the guarantees its records get in return.

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
        """The decisive guarantee."""
        return self.guarantees[0]

    def against(self, observer: Observer) -> Guarantee:
        """Return the guarantee that is stated against the observer."""
        return against(self.guarantees, observer)


class Participation(Public):
    """How many silos the server asks in a round.

    `silos`: that many, drawn anew in each round; `probability`: each one independently; neither: all of them. This adds
    no privacy, since the server sees who answers. `answers` does: it limits how many rounds of a stage a silo answers,
    whoever asks, so that its noise need not cover more. Silos then take turns.
    """

    later_fields: ClassVar[frozenset[str]] = frozenset({"answers"})

    silos: int | None = Field(default=None, ge=1)
    probability: float | None = Field(default=None, gt=0, le=1)
    answers: int | None = Field(default=None, ge=1, le=10_000_000)

    @model_validator(mode="after")
    def _is_one_rule(self) -> Self:
        if self.silos is not None and self.probability is not None:
            raise ValueError("give either a number of silos or a probability, not both")
        if self.answers is not None and self.silos is None:
            raise ValueError("where silos take turns, give the number of silos that a round asks")
        return self

    def share(self, silos: int) -> float:
        """Return the average share of that many silos that a round asks."""
        return self.probability or (self.silos or silos) / silos


EVERYBODY = Participation()


class Stage(Public):
    """One question, asked in `rounds` rounds of messages, and how its answers come about and leave the silos.

    `section` is the one that it is asked of; None means all records.
    """

    later_fields: ClassVar[frozenset[str]] = frozenset({"section"})

    question: Question
    rounds: int = Field(ge=1, le=10_000_000)
    sampling: Sampling
    channel: Channel = OwnNoise()
    participation: Participation = EVERYBODY
    section: Section | None = None

    @property
    def most_answers(self) -> int:
        """The most rounds that a silo answers."""
        return min(self.participation.answers or self.rounds, self.rounds)

    @property
    def goes_by_place(self) -> bool:
        """Whether records' positions decide who takes part, so that they must not change while a plan runs."""
        return self.sampling.goes_by_place or self.section is not None


class Training(Public):
    """What is trained: the loss, the set that the weights stay in, the ridge, and what the server does with answers.

    `ridge` adds (ridge/2)·‖w‖² to the objective; the server adds its gradient, since no record is in it. `lasso` adds
    lasso·‖w‖₁, the intercept left out; the server takes a proximal step for it.
    """

    later_fields: ClassVar[frozenset[str]] = frozenset({"lasso"})

    loss: Loss
    domain: Domain
    algorithm: AlgorithmSpec
    ridge: float = Field(default=0.0, ge=0)
    lasso: float | None = Field(default=None, gt=0)


class Place(NamedTuple):
    """The place of a round of messages in a plan: its stage, the stage's number, and the round within the stage."""

    stage: Stage
    number: int
    round: int


class Plan(Document):
    """Everything the parties agree on before a run.

    `training` is left out where nothing is trained. Questions about a model trained elsewhere then need only its loss,
    `model_loss`; other questions need neither, and are sent without weights.

    `run` distinguishes two runs that are otherwise equal. Rounds of messages are numbered through all stages, from 0.
    `sums` is how silos add up their records: noise that suffices for exact sums may not cover floating-point errors.

    `unit` is what a guarantee protects. If it is a person, a silo's `records` are persons, each with any number of
    rows, in everything that the plan says: batches, samples, parts and the terms of a mean. `person_rule` is how a
    person's rows enter a gradient: the `mean` of their clipped gradients; the sum of the clipped gradients of the first
    `rows_per_person` of them, divided by that number (`rows`); or the `sum` of their gradients, clipped as one.

    `held_out` is the share of a silo's records in the held-out section, in whole percent, where the plan divides them
    (`protocol.sections`).

    `purpose`, `controller` and `contact` are for people: what the plan is for, who is legally responsible, and whom to
    ask. They are public and part of what is approved. Nothing is computed from them.
    """

    newest_format: ClassVar[int] = 2
    later_fields: ClassVar[frozenset[str]] = frozenset(
        {"training", "model_loss", "person_rule", "rows_per_person", "held_out", "purpose", "controller", "contact"}
    )

    format: Literal[2] = 2
    run: str = Field(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z_.-]+$")
    data: Schema
    training: Training | None = None
    model_loss: Loss | None = None
    stages: tuple[Stage, ...] = Field(min_length=1, max_length=1000)
    adjacency: Literal["replace-one"] = "replace-one"
    unit: Unit = "record"
    person_rule: PersonRule | None = None
    rows_per_person: int | None = Field(default=None, ge=1, le=2**20)
    sums: Literal["floating-point", "exact"] = "floating-point"
    held_out: float | None = Field(default=None, ge=0.01, le=0.99)
    silos: tuple[SiloTerms, ...] = Field(min_length=1, max_length=100_000)
    purpose: Line | None = None
    controller: Line | None = None
    contact: Line | None = None

    @classmethod
    def _read(cls, content: bytes) -> Self:
        if format_of(content) == cls.newest_format:
            return super()._read(content)
        from ringfence.protocol.plan_format_1 import PlanFormat1

        former = PlanFormat1.model_validate_json(content)
        return cls(**former.upgraded())._of(former.named_bytes(content))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
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
        """The set that the weights stay in; without training, any weights are allowed."""
        return WholeSpace() if self.training is None else self.training.domain

    @property
    def algorithm(self) -> AlgorithmSpec:
        """What the server does with the answers; ValueError in a plan that trains nothing."""
        if self.training is None:
            raise ValueError("This plan trains nothing.")
        return self.training.algorithm

    @property
    def ridge(self) -> float:
        """The factor of ‖w‖²/2 in the objective."""
        return 0.0 if self.training is None else self.training.ridge

    @property
    def lasso(self) -> float:
        """The factor of ‖w‖₁, without the intercept, in the objective."""
        return 0.0 if self.training is None else self.training.lasso or 0.0

    @property
    def proximal(self) -> Proximal:
        """What the server does after every step: the lasso's proximal step, within the domain."""
        return Proximal(self.domain, self.lasso, self.loss.outputs if self.data.intercept else 0)

    @cached_property
    def _terms(self) -> dict[str, SiloTerms]:
        return {terms.name: terms for terms in self.silos}

    def terms(self, silo: str) -> SiloTerms | None:
        """Return the named silo's terms, or None if it takes no part in the plan."""
        return self._terms.get(silo)

    def records_in(self, stage: Stage, terms: SiloTerms) -> int:
        """Return how many of the silo's records the stage is asked of."""
        return sections.size(stage.section, terms.records, self.held_out)

    @property
    def goes_by_place(self) -> bool:
        """Whether the plan divides records by their positions."""
        return any(stage.goes_by_place for stage in self.stages)

    def others(self, silo: str) -> str:
        """Name the other silos, ten at most."""
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
        """Total number of rounds of messages."""
        return sum(stage.rounds for stage in self.stages)

    @cached_property
    def steps(self) -> int:
        """Rounds whose answers move the model's weights."""
        return sum(stage.rounds for stage in self.training_stages)

    @cached_property
    def training_numbers(self) -> tuple[int, ...]:
        """The numbers of the stages whose answers move the model's weights."""
        return tuple(number for number, stage in enumerate(self.stages) if stage.question.trains)

    @property
    def training_stages(self) -> tuple[Stage, ...]:
        """The stages whose answers move the model's weights."""
        return tuple(self.stages[number] for number in self.training_numbers)

    def place(self, round: int) -> Place:
        """Return the place of a round of messages; IndexError if the plan has no such round."""
        if round >= 0:
            for number, first in enumerate(self.first_rounds):
                if round < first + self.stages[number].rounds:
                    return Place(self.stages[number], number, round - first)
        raise IndexError(f"the plan has no round {round}")

    @cached_property
    def first_rounds(self) -> tuple[int, ...]:
        """The number of every stage's first round."""
        ends = itertools.accumulate((stage.rounds for stage in self.stages), initial=0)
        return tuple(ends)[:-1]

    @cached_property
    def observers(self) -> tuple[Observer, ...]:
        """Whom guarantees are stated against, the decisive one first."""
        return observers_of(*(stage.channel.observers for stage in self.stages))

    @cached_property
    def leading_channel(self) -> Channel:
        """The channel whose guarantees rely on the most: what it says about trust holds for the plan."""
        channels = (stage.channel for stage in self.stages)
        return max(channels, key=lambda channel: (len(channel.observers), channel.least_answers()))

    @property
    def most_colluders(self) -> int | None:
        """How many other silos may collude with the server; None if all of them may."""
        known = (stage.channel.most_colluders() for stage in self.stages)
        return min((number for number in known if number is not None), default=None)

    @property
    def aim(self) -> str:
        """What the plan is for: to predict something, or to ask something else."""
        asked = dict.fromkeys(stage.question.name for stage in self.stages)
        return f"to predict “{self.data.target_words}”" if self.steps else f"to ask for {', '.join(asked)}"

    @property
    def responsible(self) -> dict[str, str]:
        """Its purpose, controller and contact; those that the plan does not state are left out."""
        said = {"Purpose": self.purpose, "Controller": self.controller, "Contact": self.contact}
        return {name: text for name, text in said.items() if text is not None}

    @property
    def trust(self) -> str:
        """Whom the guarantees rely on, apart from the silo itself."""
        return self.leading_channel.trust

    @property
    def keys(self) -> PublicKeys | None:
        """The keys that the plan pins, if one of its channels needs any."""
        return self.leading_channel.keys({terms.name: terms.key for terms in self.silos if terms.key is not None})

    @property
    def constants(self) -> Constants:
        """L, β and μ of the per-record loss over the domain, before clipping; the ridge adds to β and μ."""
        loss = self.loss.constants_on(self.data, self.domain.reach(self.dimension))
        return Constants(loss.lipschitz, loss.smoothness + self.ridge, loss.strong_convexity + self.ridge)


def _read_embedded(value: Any) -> Any:
    """Read a plan that stands inside another document: its own bytes as text; in format 1, an object."""
    if isinstance(value, str):
        return Plan.parse(value.encode(), error=_NotAPlanError)
    if isinstance(value, dict):
        return Plan.parse(canonical_json(value), error=_NotAPlanError)
    return value


class _NotAPlanError(PlanError, ValueError):
    """Lets a document that holds a plan say what is wrong with it."""


EmbeddedPlan: TypeAlias = Annotated[
    Plan, BeforeValidator(_read_embedded), PlainSerializer(lambda plan: plan.content.decode(), return_type=str)
]
"""A plan inside another document, as the very bytes that it is named by."""


def fewest_colluders(plans: Iterable[Plan]) -> int | None:
    """Return how many silos may collude with the server whatever plan they turn to; None if no plan names a number.

    What several plans come to together, each counted with its own number, holds against that many.
    """
    return min((plan.most_colluders for plan in plans if plan.most_colluders is not None), default=None)


def protected_by(plans: Iterable[Plan]) -> Unit:
    """Return what all these plans together protect: a record, unless each of them protects persons."""
    return "person" if {plan.unit for plan in plans} == {"person"} else "record"


def load_plan(path: Path) -> Plan:
    """Read a plan from a JSON file."""
    return Plan.parse(read_file(path, "plan", PlanError), error=PlanError, source=str(path))
