"""A silo's own noise on the grid, independent in every round or correlated over rounds."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from ringfence.protocol.channels.base import BaseChannel, require_computable
from ringfence.protocol.plan.effort import NOISE, NUMBER, PASS, Effort
from ringfence.protocol.plan.guarantee import Observer

if TYPE_CHECKING:
    from ringfence.protocol.plan.plan import Plan, SiloTerms, Stage


class OwnNoise(BaseChannel):
    """A vector with Gaussian noise of the silo's `sigma` on every number, for any recipient.

    `correlation` θ lets the noise of one pass partly cancel over the rounds (`accounting.correlation`); 0 means that
    each round's noise is independent.
    """

    observers: ClassVar[tuple[Observer, ...]] = ("anyone",)
    trust: ClassVar[str] = "nobody"
    name: Literal["own-noise"] = "own-noise"
    correlation: float = Field(default=0.0, ge=0, lt=1)

    def check(self, plan: "Plan", stage: "Stage", number: int) -> None:
        """Require own noise that can be added exactly, and records that take part once where noise is correlated."""
        rule = stage.sampling
        if self.correlation and rule.times(stage.most_answers) > 1:
            raise ValueError("correlated noise needs one-pass sampling, where a record takes part in one round only")
        # Correlated noise is added to a sum that is up to Σ c_k ≤ 1 + R^θ/θ times as large as one mean.
        spread = 1.0 + stage.most_answers**self.correlation / self.correlation if self.correlation else 1.0
        largest = stage.query.largest(plan) * spread
        for terms in plan.silos:
            own = terms.stages[number]
            share = rule.most(records=plan.records_in(stage, terms), batch=own.batch) / own.batch
            # Released numbers are multiples of about sigma·2⁻³⁰ and must be exact in 53 bits (silo.channels.own_noise).
            if own.sigma < largest * share * 2.0**-20:
                raise ValueError(
                    f"the noise of silo '{terms.name}' is less than a millionth of the clip, which protects nobody "
                    "and cannot be added exactly"
                )
            require_computable(terms.name, own.sigma)

    def longest_answer(self, plan: "Plan", stage: "Stage") -> int:
        """Return 8 bytes for each number of an answer with the silo's own noise."""
        return 8 * stage.query.length(plan)

    def effort(self, plan: "Plan", stage: "Stage", batch: int) -> Effort:
        """Return the draws of own noise for every number, in all rounds of the stage where noise is correlated."""
        numbers = stage.query.length(plan)
        remembered = numbers * (stage.rounds if self.correlation else 0)
        # Most of the memory is the message's text, which is there several times while it is written and stored.
        return Effort(NOISE * numbers + PASS * remembered, 40 * NUMBER * numbers + 4 * NUMBER * remembered)

    def uncovered(self, plan: "Plan", stage: "Stage", number: int) -> str:
        """Name correlated noise, which no loss bound covers, if the silo's own noise is correlated."""
        return "correlated noise" if self.correlation else ""

    def observer_words(self) -> str:
        """Name everybody as the observer: a silo's own noise protects against anyone."""
        return "anyone who sees everything that a silo sends (the server, all other silos together, an eavesdropper)"

    def claim_words(self) -> str:
        """Say that a silo's own noise provides the guarantee, without other parties."""
        return "A silo that follows it provides them by its own noise, against anyone who sees what it sends."

    def reliance_words(self) -> list[str]:
        """Say that the guarantee of own noise relies on no other party."""
        return ["This holds whatever they know and do: each silo adds its own noise before anything leaves it."]

    def noise_level(self, sigma: float) -> float | None:
        """Return the sigma of the silo's own noise; None if the noises of rounds cancel in part."""
        return None if self.correlation else sigma

    def noise_words(self, sigma: float, unit: str) -> str:
        """Name the standard deviation of the silo's own noise."""
        return f"each number gets noise of standard deviation {sigma:.4g}"

    def further_words(self) -> list[str]:
        """Explain correlated noise to an operator, if the silo's own noise is correlated."""
        if not self.correlation:
            return []
        return [
            f"The noise of later rounds cancels part of the earlier rounds' noise (correlation {self.correlation:g}): "
            "the sum over rounds becomes more accurate, and the cost stated here includes that."
        ]

    def audience(self, plan: "Plan", terms: "SiloTerms") -> list[str]:
        """Say that everybody may see an answer that has the silo's own noise."""
        return [
            "The server, and anyone it passes messages to: assume that everyone sees them.",
            f"Other silos in the plan: {plan.others(terms.name)}. The guarantee holds even if all of them collude with "
            "the server.",
        ]
