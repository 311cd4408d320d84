"""The plan: the one public document from which everything that affects privacy is built.

A silo's operator approves a plan by its digest. Clip, sampling, noise and adjacency stand in it together,
so that they cannot disagree; no later message can change any of them.
"""

import math
from functools import cached_property
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from ringfence.protocol.domain import Domain
from ringfence.protocol.losses import Constants, Loss, Softmax
from ringfence.protocol.public import Public
from ringfence.protocol.schema import Categorical, Schema

Sampling: TypeAlias = Literal["full", "fixed", "poisson", "one-pass"]
"""Which of a silo's records take part in a round.

full: all of them. fixed: a fresh set of `batch` distinct records. poisson: each record independently, with
probability batch / records. one-pass: the next `batch` records of a fixed partition, each record once.
"""

SiloName: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f/]+$")]


class SiloTerms(Public):
    """What one silo contributes, and the guarantee its records get in return.

    `sigma` is the standard deviation, per coordinate, of the Gaussian noise on the silo's averaged
    gradient. `epsilon` and `delta` are the guarantee for all rounds of the plan together; the silo proves
    it again with its own accountant before it approves. `weight` is the silo's public share of the
    objective.
    """

    name: SiloName
    records: int = Field(ge=1, le=2**53)
    batch: int = Field(ge=1, le=2**53)
    sigma: float = Field(gt=0)
    epsilon: float = Field(gt=0)
    delta: float = Field(gt=0, lt=1)
    weight: float = Field(gt=0, le=1)


class Participation(Public):
    """How many silos the server asks in a round.

    `silos`: that many, drawn afresh; `probability`: each one independently; neither: all of them. It costs
    no privacy and, since the server sees who answers, buys none.
    """

    silos: int | None = Field(default=None, ge=1)
    probability: float | None = Field(default=None, gt=0, le=1)

    @model_validator(mode="after")
    def _is_one_rule(self) -> Self:
        if self.silos is not None and self.probability is not None:
            raise ValueError("give either a number of silos or a probability, not both")
        return self


class MinibatchSGD(Public):
    """Noisy minibatch SGD: the paper's Algorithm 2.

    w ← Proj(w + v), v ← momentum·v − step·g. The model is the average of the round's query points, the
    r-th with weight growth^r, leaving out the first `skip` of them.
    """

    name: Literal["minibatch-sgd"] = "minibatch-sgd"
    step: float = Field(gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    skip: int = Field(default=0, ge=0)
    growth: float = Field(default=1.0, ge=1)


AlgorithmSpec: TypeAlias = MinibatchSGD


class Plan(Public):
    """Everything the parties agree on before a training run.

    The gradient a silo releases in a round is the mean, over `batch`, of its records' gradients, each cut
    to norm `clip`, plus Gaussian noise of its `sigma`. `ridge` adds (ridge/2)·‖w‖² to the objective; the
    server adds its gradient, since no record is in it. `run` sets apart two runs that agree in all else.
    """

    format: Literal[1] = 1
    run: str = Field(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z_.-]+$")
    data: Schema
    loss: Loss
    clip: float = Field(gt=0)
    domain: Domain
    sampling: Sampling
    rounds: int = Field(ge=1, le=10_000_000)
    algorithm: AlgorithmSpec
    ridge: float = Field(default=0.0, ge=0)
    participation: Participation = Participation()
    adjacency: Literal["replace-one"] = "replace-one"
    silos: tuple[SiloTerms, ...] = Field(min_length=1, max_length=100_000)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self._check_loss_fits_target()
        names = [terms.name for terms in self.silos]
        if len(set(names)) != len(names):
            raise ValueError("two silos have the same name")
        if not math.isclose(math.fsum(terms.weight for terms in self.silos), 1.0, rel_tol=1e-9):
            raise ValueError("the silos' weights must add up to 1")
        if (self.participation.silos or 0) > len(self.silos):
            raise ValueError("a round cannot ask more silos than there are")
        if isinstance(self.algorithm, MinibatchSGD) and self.algorithm.skip >= self.rounds:
            raise ValueError("the average must keep at least one round: lower `skip`")
        for terms in self.silos:
            self._check_batch(terms)
            self._check_grid(terms)
        return self

    def _check_loss_fits_target(self) -> None:
        column = self.data.target_column
        classes = len(column.categories) if isinstance(column, Categorical) else 0
        if self.loss.name == "logistic":
            fits = classes == 2
        elif isinstance(self.loss, Softmax):
            fits = classes == self.loss.classes > 2
        else:
            fits = classes == 0
        if not fits:
            raise ValueError(
                f"the {self.loss.name} loss does not fit the target '{self.data.target}': logistic needs two "
                "categories, softmax three or more and as many as it has classes, the others a numeric target"
            )

    def _check_batch(self, terms: SiloTerms) -> None:
        if terms.batch > terms.records:
            raise ValueError(f"silo '{terms.name}' has {terms.records} records, fewer than its batch")
        if self.sampling == "full" and terms.batch != terms.records:
            raise ValueError(f"full sampling averages over all records: batch of silo '{terms.name}' differs")
        if self.sampling == "one-pass" and terms.batch * self.rounds > terms.records:
            raise ValueError(
                f"one pass of {self.rounds} rounds of {terms.batch} records needs more than the "
                f"{terms.records} records of silo '{terms.name}'"
            )

    def _check_grid(self, terms: SiloTerms) -> None:
        # Released numbers are multiples of about sigma·2⁻³⁰ and must be exact in 53 bits (see silo.mechanism).
        # A sum of up to `records` gradients of norm `clip`, divided by `batch`, is the largest mean.
        largest_mean = self.clip * terms.records / terms.batch
        if terms.sigma < largest_mean * 2.0**-20:
            raise ValueError(
                f"the noise of silo '{terms.name}' is less than a millionth of the clip, which protects nobody "
                "and cannot be added exactly"
            )
        if not 2.0**-300 < terms.sigma < 2.0**300:
            raise ValueError(f"the noise of silo '{terms.name}' is out of the range of numbers we compute with")

    @cached_property
    def _terms(self) -> dict[str, SiloTerms]:
        return {terms.name: terms for terms in self.silos}

    def terms(self, silo: str) -> SiloTerms | None:
        """Return the named silo's terms, or None if it has no part in the plan."""
        return self._terms.get(silo)

    @property
    def dimension(self) -> int:
        """Number of weights, and of numbers in every message."""
        return self.data.width * self.loss.outputs

    @property
    def constants(self) -> Constants:
        """L, β and μ of the per-record loss over the domain, before clipping; the ridge adds to β and μ."""
        loss = self.loss.constants(self.data.feature_norm, self.data.target_bound, self.domain.reach(self.dimension))
        return Constants(loss.lipschitz, loss.smoothness + self.ridge, loss.strong_convexity + self.ridge)

    @cached_property
    def _digest(self) -> str:
        return super().digest()

    def digest(self) -> str:
        """Return the plan's name in messages and ledgers; computed once, since a plan never changes."""
        return self._digest
