"""The paper's setting in numbers, and the localized algorithm planned for it."""

import math
import sys
from dataclasses import dataclass

from ringfence.accounting import calibrate
from ringfence.accounting.events import require_count, require_positive, require_probability
from ringfence.errors import PlanError
from ringfence.planning import loss_bounds
from ringfence.planning.loss_bounds import LocalizedBound, PhaseBound
from ringfence.planning.problem import EqualSilos


@dataclass(frozen=True)
class Problem:
    """The paper's setting in its symbols: Assumption 1 and the guarantee asked for.

    `available` is M, the harmonic mean 1/E[1/M_r] of how many silos answer in a round; None means all N.
    `diameter` is D; `distance` is D₀ ≥ ‖w₀ − w*‖, by default D/2: the start is the centre of W. `smoothness` None
    means a non-smooth loss. `variance` (φ²) and `heterogeneity` (υ²) are L² where None, which is always true.
    """

    silos: int
    records: int
    dimension: int
    lipschitz: float
    diameter: float
    epsilon: float
    delta: float
    smoothness: float | None = None
    strong_convexity: float = 0.0
    available: float | None = None
    distance: float | None = None
    variance: float | None = None
    heterogeneity: float | None = None

    def __post_init__(self) -> None:
        """Refuse parameters of the paper's problem that are out of range."""
        for name in ("silos", "records", "dimension"):
            require_count(name, getattr(self, name))
        for name in ("lipschitz", "diameter", "epsilon"):
            require_positive(name, getattr(self, name))
        require_probability("delta", self.delta)
        if self.strong_convexity < 0 or not math.isfinite(self.strong_convexity):
            raise PlanError(f"The strong convexity must be 0 or a positive number, but is {self.strong_convexity!r}.")
        if self.smoothness is not None and not self.strong_convexity <= self.smoothness < math.inf:
            raise PlanError(
                f"The smoothness {self.smoothness!r} must be finite and at least the strong convexity "
                f"{self.strong_convexity!r}; leave it out for a non-smooth loss."
            )
        if self.available is not None and not 1 <= self.available <= self.silos:
            raise PlanError(f"From 1 to {self.silos} silos can be available in a round, not {self.available!r}.")
        if self.distance is not None and not 0 < self.distance <= self.diameter:
            raise PlanError(f"The start lies at most the diameter from the optimum; {self.distance!r} does not.")
        if self.lipschitz < self.strong_convexity * self.diameter / 2:
            raise PlanError(
                f"No loss has Lipschitz constant {self.lipschitz:g} and strong convexity {self.strong_convexity:g} on "
                f"a set of diameter {self.diameter:g}, which needs L ≥ μD/2: shrink the domain or lower the ridge."
            )

    @property
    def M(self) -> float:  # noqa: N802 (the paper's symbol)
        """Silos available in a round of the problem, in the harmonic mean."""
        return float(self.silos if self.available is None else self.available)

    @property
    def D0(self) -> float:  # noqa: N802 (the paper's symbol)
        """The largest distance of the start from the optimum."""
        return self.diameter / 2 if self.distance is None else self.distance

    @property
    def phi_squared(self) -> float:
        """φ²: variance of a record's gradient within a silo."""
        return self.lipschitz**2 if self.variance is None else self.variance

    @property
    def upsilon_squared(self) -> float:
        """υ²: how much the silos' gradients differ."""
        return self.lipschitz**2 if self.heterogeneity is None else self.heterogeneity

    @property
    def absent(self) -> float:
        """(N − M)/(N − 1), the share of the heterogeneity that absent silos leave; 0 for a single silo."""
        return (self.silos - self.M) / (self.silos - 1) if self.silos > 1 else 0.0

    @property
    def condition(self) -> float:
        """κ = β/μ; infinite where μ is 0 or the loss is not smooth."""
        if self.smoothness is None or self.strong_convexity == 0:
            return math.inf
        return self.smoothness / self.strong_convexity


def require_smooth(problem: Problem) -> float:
    """Return β, or refuse a non-smooth loss."""
    if problem.smoothness is None:
        raise PlanError(
            "This bound is for smooth losses: give the smoothness, or smooth the loss first "
            "(prescriptions.smoothing_erm chooses how much)."
        )
    return problem.smoothness


def equal_silos(problem: Problem) -> EqualSilos:
    """Return the numbers that the bound of the localized algorithm depends on."""
    return EqualSilos(
        silos=problem.silos,
        records=problem.records,
        available=problem.M,
        lipschitz=problem.lipschitz,
        smoothness=require_smooth(problem),
        diameter=problem.diameter,
        distance=problem.D0,
        absence=problem.absent * problem.upsilon_squared / problem.M,
        noise=4 * problem.dimension / (problem.M * calibrate.gaussian_shift(problem.epsilon, problem.delta) ** 2),
        # The start is the centre of W unless a distance to w* was given, which says nothing about ŵ_1.
        first_reach=problem.diameter / 2 if problem.distance is None else problem.diameter,
    )


def localized_phases(
    problem: Problem, *, most_rounds: int = sys.maxsize, penalty: float | None = None
) -> LocalizedBound:
    """Plan the localized algorithm.

    By default the first penalty is the multiple of ``localized_penalty`` by 2^(k/2), k from 0 to 20, for which the
    bound is least.
    """
    silos = equal_silos(problem)
    if most_rounds < 1:
        raise PlanError(f"A phase needs a round, but there are {most_rounds}: allow at least one.")
    if problem.records < 2:
        raise PlanError("Localization gives each phase half of the records left, so a silo needs at least 2 of them.")
    phases, least = int(math.log2(problem.records)), loss_bounds.localized_penalty(silos)
    penalties = [least * 2 ** (k / 2) for k in range(21)] if penalty is None else [penalty]
    plans = (loss_bounds.localized_phases(silos, first, most_rounds, phases) for first in penalties)
    return min(plans, key=lambda plan: plan.bound)


def phase_noise(problem: Problem, phase: PhaseBound) -> float:
    """Return the noise per coordinate of a silo's full-batch average in a phase."""
    noise = equal_silos(problem).noise
    return problem.lipschitz / phase.records * math.sqrt(noise * problem.M / problem.dimension * phase.rounds)
