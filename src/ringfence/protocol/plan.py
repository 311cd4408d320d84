"""The plan: the one public document from which everything that affects privacy is built.

A silo's operator approves a plan by its digest. Clip, sampling, noise and adjacency stand in it together,
so that they cannot disagree; no later message can change any of them.
"""

import math
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from ringfence.errors import PlanError
from ringfence.protocol.algorithms import AlgorithmSpec, Localized, MinibatchSGD, MultiStage
from ringfence.protocol.domain import Domain
from ringfence.protocol.losses import Constants, Loss
from ringfence.protocol.public import Public
from ringfence.protocol.schema import Categorical, Schema
from ringfence.protocol.shuffle import LABEL_BYTES, Key, Shuffle

Sampling: TypeAlias = Literal["full", "fixed", "poisson", "one-pass", "phased"]
"""Which of a silo's records take part in a round.

full: all of them. fixed: a fresh set of `batch` distinct records. poisson: each record independently, with
probability batch / records. one-pass: the next `batch` records of a fixed partition, each record once. phased:
all records of the phase's part of a fixed partition; `batch` is the size of the first and largest part.
"""

Trust: TypeAlias = Literal["nobody", "shuffler"]
"""Whom a silo's guarantee relies on, beside the silo itself."""

SiloName: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f/]+$")]


class SiloTerms(Public):
    """What one silo contributes, and the guarantee its records get in return.

    `sigma` is the standard deviation, per coordinate, of the Gaussian noise on the silo's averaged
    gradient. `epsilon` and `delta` are the guarantee for all rounds of the plan together; the silo proves
    it again with its own accountant before it approves. `weight` is the silo's public share of the
    objective, `survey_sigma` the noise on its answer to the plan's survey, if there is one.

    With a shuffler, (epsilon, delta) is the guarantee against the server, `alone_epsilon` the one, at the same delta,
    against a server that works together with the shuffler or with all other silos: the silo's own noise alone. `sigma`
    is then the standard deviation of the silo's own coins, and `key` checks its signatures.
    """

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


class Survey(Public):
    """A first question, before the rounds, whose noisy answer tells the server what it should know of the features.

    curvature: the largest eigenvalue of the silo's second-moment matrix (1/n)·Σ xxᵀ; `margin` standard
    deviations of its noise are added before the steps rely on it. moments: mean and mean square of every
    feature, in units of the largest feature norm, and of a numeric target, in units of its bound.
    """

    statistic: Literal["curvature", "moments"] = "curvature"
    margin: float = Field(default=2.0, ge=0)


class Plan(Public):
    """Everything the parties agree on before a training run.

    The gradient a silo releases in a round is the mean, over `batch`, of its records' gradients, each cut
    to norm `clip`, plus Gaussian noise of its `sigma`. `ridge` adds (ridge/2)·‖w‖² to the objective; the
    server adds its gradient, since no record is in it. `correlation` θ lets the noise of a one-pass run cancel
    in part over the rounds (`planning.correlation`); 0 means independent noise. A `survey` takes a round of its
    own, number 0, before the rounds. `run` sets apart two runs that agree in all else.

    `trust` says whom the guarantees rely on beside the silo itself: nobody; or a shuffler that does not work together
    with the server, and honest noise of the other silos (`shuffle`).
    """

    format: Literal[1] = 1
    run: str = Field(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z_.-]+$")
    data: Schema
    loss: Loss
    clip: float = Field(gt=0)
    domain: Domain
    sampling: Sampling
    rounds: int = Field(ge=0, le=10_000_000)
    algorithm: AlgorithmSpec
    correlation: float = Field(default=0.0, ge=0, lt=1)
    survey: Survey | None = None
    ridge: float = Field(default=0.0, ge=0)
    participation: Participation = Participation()
    adjacency: Literal["replace-one"] = "replace-one"
    trust: Trust = "nobody"
    shuffle: Shuffle | None = None
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
        self._check_algorithm()
        for terms in self.silos:
            self._check_batch(terms)
            self._check_grid(terms.name, terms.sigma, self.clip * terms.records / terms.batch * self._spread)
            if isinstance(self.algorithm, Localized):  # a later phase of few rounds has less noise than the first
                for phase in range(len(self.algorithm.phases)):
                    self._check_grid(terms.name, terms.sigma * self.algorithm.noise(terms.records, phase), self.clip)
            self._check_survey(terms)
        self._check_trust()
        return self

    def _check_trust(self) -> None:
        shuffle = self.shuffle
        if (shuffle is not None) != (self.trust == "shuffler"):
            raise ValueError("a plan says how it shuffles if, and only if, it trusts a shuffler")
        if shuffle is None:
            if any(terms.key is not None or terms.alone_epsilon is not None for terms in self.silos):
                raise ValueError("a silo's key and its epsilon alone belong to plans that trust a shuffler")
            return
        if self.sampling not in ("full", "one-pass") or self.correlation or self.survey is not None:
            raise ValueError("through a shuffler go full and one-pass sampling, without correlated noise or a survey")
        most = self.participation.silos or len(self.silos)
        if self.participation.probability is not None or not 2 <= shuffle.quorum <= most:
            raise ValueError("the shuffler's quorum must be at least 2 silos and at most as many as a round asks")
        total = sum(terms.batch for terms in self.silos)
        for terms in self.silos:
            if terms.key is None or terms.alone_epsilon is None:
                raise ValueError(f"silo '{terms.name}' needs a key and the epsilon of its noise alone")
            if not math.isclose(terms.weight, terms.batch / total, rel_tol=1e-9):
                raise ValueError("only totals leave the shuffler, so silos weigh as many records as take part")
            if not math.isclose(terms.sigma, shuffle_sigma(shuffle, self.clip, terms.batch), rel_tol=1e-9):
                raise ValueError(f"the noise of silo '{terms.name}' is not that of its coins")
        if total * (shuffle.levels + shuffle.coins) >= 256**shuffle.width:
            raise ValueError("the counts of all silos together do not fit the width of their shares")
        if shuffle.blocks(self.numbers) > 256**LABEL_BYTES:
            raise ValueError("there are more blocks of weights than a message can number: make the blocks longer")
        if shuffle.server_key == shuffle.shuffler_key:
            raise ValueError("server and shuffler need two keys: whoever held both would read every silo's own counts")

    def _check_algorithm(self) -> None:
        spec = self.algorithm
        if self.rounds == 0 and self.survey is None:
            raise ValueError("a plan needs at least one round, or a survey")
        if isinstance(spec, MinibatchSGD) and self.rounds and spec.skip >= self.rounds:
            raise ValueError("the average must keep at least one round: lower `skip`")
        if isinstance(spec, MultiStage) and sum(stage.rounds for stage in spec.stages) != self.rounds:
            raise ValueError("the stages' rounds must add up to the plan's rounds")
        if isinstance(spec, Localized) and sum(phase.rounds for phase in spec.phases) != self.rounds:
            raise ValueError("the phases' rounds must add up to the plan's rounds")
        if isinstance(spec, MultiStage) and self.ridge + spec.penalty == 0:
            raise ValueError("stages halve the error of a strongly convex problem only: give a ridge or a penalty")
        if isinstance(spec, Localized) != (self.sampling == "phased"):
            raise ValueError("the localized algorithm and phased sampling go together, and with nothing else")
        if self.correlation and self.sampling != "one-pass":
            raise ValueError("correlated noise is for one-pass sampling, where a record takes part in one round only")

    def _check_loss_fits_target(self) -> None:
        column = self.data.target_column
        classes = len(column.categories) if isinstance(column, Categorical) else 0
        kind = self.loss.target_kind
        fits = {"label": classes == 2, "class": classes == self.loss.outputs > 2, "number": classes == 0}[kind]
        if not fits:
            raise ValueError(
                f"the {self.loss.name} loss does not fit the target '{self.data.target}': logistic and hinge need two "
                "categories, softmax three or more and as many as it has classes, the others a numeric target"
            )

    def _check_batch(self, terms: SiloTerms) -> None:
        if terms.batch > terms.records:
            raise ValueError(f"silo '{terms.name}' has {terms.records} records, fewer than its batch")
        if self.sampling == "full" and terms.batch != terms.records:
            raise ValueError(f"full sampling averages over all records: batch of silo '{terms.name}' differs")
        if isinstance(self.algorithm, Localized):
            if terms.records >> len(self.algorithm.phases) == 0:
                raise ValueError(f"silo '{terms.name}' has too few records for so many phases, each half as large")
            if terms.batch != terms.records // 2:
                raise ValueError(f"the first phase takes half of the records: batch of silo '{terms.name}' differs")
        if self.sampling == "one-pass" and terms.batch * self.rounds > terms.records:
            raise ValueError(
                f"one pass of {self.rounds} rounds of {terms.batch} records needs more than the "
                f"{terms.records} records of silo '{terms.name}'"
            )

    @property
    def _spread(self) -> float:
        """How much larger than one mean the sum may get that correlated noise is added to: Σ c_k ≤ 1 + R^θ/θ."""
        return 1.0 + self.rounds**self.correlation / self.correlation if self.correlation else 1.0

    def _check_grid(self, silo: str, sigma: float, largest: float) -> None:
        # Released numbers are multiples of about sigma·2⁻³⁰ and must be exact in 53 bits (see silo.mechanism).
        # A sum of up to `records` gradients of norm `clip`, divided by `batch`, is the largest mean.
        if sigma < largest * 2.0**-20:
            raise ValueError(
                f"the noise of silo '{silo}' is less than a millionth of the clip, which protects nobody "
                "and cannot be added exactly"
            )
        if not 2.0**-300 < sigma < 2.0**300:
            raise ValueError(f"the noise of silo '{silo}' is out of the range of numbers we compute with")

    def _check_survey(self, terms: SiloTerms) -> None:
        if (self.survey is None) != (terms.survey_sigma is None):
            raise ValueError(f"silo '{terms.name}' must have noise for the survey if, and only if, there is one")
        if self.survey is not None and terms.survey_sigma is not None:
            largest = self.data.feature_norm**2 if self.survey.statistic == "curvature" else 1.0
            self._check_grid(terms.name, terms.survey_sigma, largest)

    @cached_property
    def _terms(self) -> dict[str, SiloTerms]:
        return {terms.name: terms for terms in self.silos}

    def terms(self, silo: str) -> SiloTerms | None:
        """Return the named silo's terms, or None if it has no part in the plan."""
        return self._terms.get(silo)

    @property
    def dimension(self) -> int:
        """Number of weights, and of numbers in a noisy gradient."""
        return self.data.width * self.loss.outputs

    @property
    def preliminaries(self) -> int:
        """Rounds of messages before the first gradient: 1 if there is a survey."""
        return 0 if self.survey is None else 1

    @property
    def numbers(self) -> int:
        """How many numbers a silo's shares carry: a count per weight, and how many records they are of."""
        return self.dimension + 1

    @property
    def exchanges(self) -> int:
        """Rounds of messages in all."""
        return self.preliminaries + self.rounds

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


def load_plan(path: Path) -> Plan:
    """Read a plan's file, as `ringfence plan --out` writes it."""
    try:
        return Plan.parse(path.read_bytes(), error=PlanError)
    except OSError as problem:
        raise PlanError(f"The plan {path} could not be read: {problem.strerror}.") from None


def shuffle_sigma(shuffle: Shuffle, clip: float, batch: int) -> float:
    """Return the standard deviation, per coordinate, of one silo's coins in its average over `batch` records."""
    return 2 * clip / shuffle.levels * math.sqrt(batch * shuffle.coins) / 2 / batch
