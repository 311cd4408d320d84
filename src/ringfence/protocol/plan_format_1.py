"""Plans of format 1, as version 0.1.0 wrote them: read for ever, written no more.

What these fields mean never changes. A plan of format 1 had one optional survey, then rounds of gradients, with one
sampling rule and one channel for all of them; it becomes a plan with a stage for the survey and one for the rounds, or
one for every phase. Its name stays that of its canonical JSON, every default written out, however its file was written.
"""

import json
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from ringfence.protocol.algorithms import AlgorithmSpec, Localized
from ringfence.protocol.channels import Channel, OwnNoise, ShufflerChannel
from ringfence.protocol.domain import Domain
from ringfence.protocol.guarantee import Guarantee, Observer
from ringfence.protocol.keys import Key
from ringfence.protocol.losses import Loss
from ringfence.protocol.plan import Participation, SiloTerms, Stage, StageTerms, Training
from ringfence.protocol.public import Public, SiloName, canonical_json
from ringfence.protocol.questions import Curvature, Gradient, Moments
from ringfence.protocol.sampling import Full, SamplingName
from ringfence.protocol.schema import Schema


class _Terms(Public):
    name: SiloName
    records: int = Field(ge=1, le=2**53)
    batch: int = Field(ge=1, le=2**53)
    sigma: float = Field(gt=0)
    epsilon: float = Field(gt=0)
    delta: float = Field(gt=0, lt=1)
    weight: float = Field(gt=0, le=1)
    survey_sigma: float | None = Field(default=None, gt=0)
    alone_epsilon: float | None = Field(default=None, gt=0)
    key: Key | None = None


class _Survey(Public):
    statistic: Literal["curvature", "moments"] = "curvature"
    margin: float = Field(default=2.0, ge=0)


class _Shuffle(Public):
    levels: int = Field(ge=1, le=2**20)
    coins: int = Field(ge=1, le=2**30)
    quorum: int = Field(ge=2)
    slack: float = Field(gt=0, lt=1)
    shares: int = Field(ge=2, le=2**16)
    block: int = Field(ge=1, le=2**20)
    width: int = Field(ge=1, le=7)
    server_key: Key
    shuffler_key: Key


class PlanFormat1(Public):
    """A plan's fields in format 1."""

    format: Literal[1] = 1
    run: str = Field(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z_.-]+$")
    data: Schema
    loss: Loss
    clip: float = Field(gt=0)
    domain: Domain
    sampling: SamplingName
    rounds: int = Field(ge=0, le=10_000_000)
    algorithm: AlgorithmSpec
    correlation: float = Field(default=0.0, ge=0, lt=1)
    survey: _Survey | None = None
    ridge: float = Field(default=0.0, ge=0)
    participation: Participation = Participation()
    adjacency: Literal["replace-one"] = "replace-one"
    trust: Literal["nobody", "shuffler"] = "nobody"
    shuffle: _Shuffle | None = None
    silos: tuple[_Terms, ...] = Field(min_length=1, max_length=100_000)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        shuffled = self.shuffle is not None
        if shuffled != (self.trust == "shuffler"):
            raise ValueError("a plan says how it shuffles if, and only if, it trusts a shuffler")
        if self.rounds == 0 and self.survey is None:
            raise ValueError("a plan needs at least one round, or a survey")
        for terms in self.silos:
            if (self.survey is None) != (terms.survey_sigma is None):
                raise ValueError(f"silo '{terms.name}' must have noise for the survey if, and only if, there is one")
            if (terms.alone_epsilon is not None, terms.key is not None) != (shuffled, shuffled):
                raise ValueError(
                    f"silo '{terms.name}' has a key and the epsilon of its noise alone if, and only if, the plan "
                    "trusts a shuffler"
                )
        if isinstance(self.algorithm, Localized) != (self.sampling == "phased"):
            raise ValueError("the localized algorithm and phased sampling go together, and with nothing else")
        if isinstance(self.algorithm, Localized):
            self._check_phases(self.algorithm)
        if (self.correlation or self.survey) and shuffled:
            raise ValueError("a shuffler takes full and one-pass sampling only, without correlated noise or a survey")
        return self

    def _check_phases(self, algorithm: Localized) -> None:
        """Check what the stages of phases, whose rounds and records are the algorithm's, would no longer show."""
        if algorithm.own_rounds != self.rounds:
            raise ValueError("the phases' rounds must add up to the plan's rounds")
        for terms in self.silos:
            if terms.records >> len(algorithm.phases) == 0:
                raise ValueError(f"silo '{terms.name}' has too few records for this many phases, each half as large")
            if terms.batch != terms.records // 2:
                raise ValueError(f"the first phase takes half of the records: batch of silo '{terms.name}' differs")

    def named_bytes(self, content: bytes) -> bytes:
        """Return the bytes that version 0.1.0 named the plan by: canonical JSON with every default written out.

        What it wrote itself is just that, and is kept as it is, so that no later default can get into an old name.
        """
        raw = json.loads(content)
        as_written = content == canonical_json(raw) and raw.keys() == type(self).model_fields.keys()
        return content if as_written else self.canonical()

    def upgraded(self) -> dict[str, Any]:
        """Return the fields of the same plan in today's format."""
        return {
            "run": self.run,
            "data": self.data,
            "training": Training(loss=self.loss, domain=self.domain, algorithm=self.algorithm, ridge=self.ridge),
            "stages": (*self._survey_stages(), *self._training_stages()),
            "adjacency": self.adjacency,
            "silos": tuple(self._upgraded_terms(terms) for terms in self.silos),
        }

    def _survey_stages(self) -> list[Stage]:
        if self.survey is None:
            return []
        question = Moments() if self.survey.statistic == "moments" else Curvature(margin=self.survey.margin)
        return [Stage(question=question, rounds=1, sampling=Full())]

    def _training_stages(self) -> list[Stage]:
        channel: Channel = OwnNoise(correlation=self.correlation)
        if self.shuffle is not None:
            channel = ShufflerChannel(**self.shuffle.model_dump())
        question, participation = Gradient(clip=self.clip), self.participation
        return [
            Stage(question=question, rounds=rounds, sampling=rule, channel=channel, participation=participation)
            for rounds, rule in self.algorithm.training_stages(self.sampling, self.rounds)
            if rounds
        ]

    def _upgraded_terms(self, terms: _Terms) -> SiloTerms:
        stages = [] if terms.survey_sigma is None else [StageTerms(batch=terms.records, sigma=terms.survey_sigma)]
        for number in range(len(self._training_stages())):  # one, or one for each phase, of half the last one's records
            sigma = terms.sigma * self.algorithm.noise(terms.records, number)
            stages.append(StageTerms(batch=terms.batch >> number, sigma=sigma))
        against: list[tuple[float, Observer]] = [(terms.epsilon, "anyone")]
        if terms.alone_epsilon is not None:
            against = [(terms.epsilon, "server"), (terms.alone_epsilon, "anyone")]
        return SiloTerms(
            name=terms.name,
            records=terms.records,
            weight=terms.weight,
            guarantees=tuple(
                Guarantee(epsilon=epsilon, delta=terms.delta, against=observer) for epsilon, observer in against
            ),
            stages=tuple(stages),
            key=terms.key,
        )
