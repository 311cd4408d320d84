"""The privacy statement: who is protected from whom, per what unit, at what (epsilon, delta), and what is not."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field, model_validator

from ringfence.accounting import accountant
from ringfence.accounting.charges import all_events, person_events
from ringfence.accounting.events import Event, Events, seen_by
from ringfence.foreign_text import visible
from ringfence.protocol.custody import Remark
from ringfence.protocol.guarantee import Guarantee, Observer, against, against_words, observers_of
from ringfence.protocol.plan import Plan
from ringfence.protocol.prospects import weighting
from ringfence.protocol.public import Public

_FORMAT_1 = {
    "records", "rounds", "epsilon", "delta", "alone_epsilon", "total_epsilon", "total_delta", "total_alone_epsilon",
}  # fmt: skip


class SiloGuarantee(Public):
    """What one silo's records are guaranteed: by this run's plan, and by its ledger for everything ever released.

    Both hold however plans were chosen and whenever you stop. Each is told against every kind of observer, the one
    that counts first. `used` is what this run's rounds came to: bookkeeping. Where it is missing, an earlier version
    wrote what was used as if it were guaranteed.
    """

    records: int
    rounds: int
    # Not strict: a list of JSON, once it went through the function below, is a list. Guarantees are strict themselves.
    this_run: tuple[Guarantee, ...] = Field(min_length=1, strict=False)
    all_runs: tuple[Guarantee, ...] = Field(min_length=1, strict=False)
    used: tuple[Guarantee, ...] = Field(default=(), strict=False)
    remarks: tuple[Remark, ...] = Field(default=(), strict=False)
    """What the ledger says of its beginning and of changes of its data."""

    @model_validator(mode="before")
    @classmethod
    def _read_format_1(cls, value: Any) -> Any:
        """Read what version 0.1.0 wrote: an epsilon against a server without the shuffler, and one against anyone."""
        if not isinstance(value, dict) or value.keys() != _FORMAT_1:
            return value
        return {
            "records": value["records"],
            "rounds": value["rounds"],
            "this_run": _pair(value["epsilon"], value["alone_epsilon"], value["delta"]),
            "all_runs": _pair(value["total_epsilon"], value["total_alone_epsilon"], value["total_delta"]),
        }

    @model_validator(mode="after")
    def _is_told_against_everyone(self) -> Self:
        for told in (self.this_run, self.all_runs):
            named = tuple(guarantee.against for guarantee in told)
            if "anyone" not in named or named != observers_of(named):
                raise ValueError("a cost must be stated once against each kind of observer, with 'anyone' last")
        return self

    @property
    def run(self) -> Guarantee:
        """What this run's plan guarantees, against the observer that counts."""
        return self.this_run[0]

    @property
    def total(self) -> Guarantee:
        """What is guaranteed of all runs together, against the same observer."""
        return against(self.all_runs, self.run.against)

    @property
    def has_more_runs(self) -> bool:
        """Whether all runs together are told at more than this one."""
        return self.total.epsilon > self.run.epsilon * (1 + 1e-9)


def _pair(server: float, anyone: float, delta: float) -> tuple[dict[str, Any], ...]:
    both = ({"epsilon": server, "delta": delta, "against": "server"}, {"epsilon": anyone, "delta": delta})
    return both if anyone != server else both[1:]


_EARLIER = ("  Earlier runs on the same data count as their plans state. Some may rely on more than this one does.",)

WEAK = 0.9
"""A guarantee under which somebody may guess right more often than this is called weak."""


@dataclass(frozen=True)
class Statement:
    """The guarantee of a finished run, in numbers and in words.

    `others` are plans that the run asked for beside the one that its model comes from, as a choice among candidates
    does: what is told of this run is of all of them together.
    """

    plan: Plan
    silos: Mapping[str, SiloGuarantee]
    others: tuple[Plan, ...] = ()

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans of the run."""
        return (self.plan, *self.others)

    def __str__(self) -> str:
        return self.text()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show it in IPython and notebooks as `print` does."""
        del cycle
        printer.text(str(self))

    def text(self) -> str:
        """Return the statement as a person reads it."""
        return "\n".join(
            [
                "What is protected",
                "",
                *(f"  {self._silo(name, silo)}" for name, silo in self.silos.items()),
                "",
                *self._choice(),
                *self._weighting(),
                *self._remarks(),
                self.words(),
            ]
        )

    def words(self) -> str:
        """Return what the numbers mean for a record, and for a person with several, and what they do not cover."""
        return "\n".join(
            [
                *self._bet(),
                "",
                "What is not protected",
                "",
                *self._unprotected(),
                *self._person(),
                "  - Anything done with the data outside this ledger: numbers measured without noise, for example.",
            ]
        )

    def _unprotected(self) -> list[str]:
        """Say what is public, what is learned on purpose, and of whom a silo's guarantee does not speak."""
        facts = (
            f"  - Facts about the population that hold with or without any one {self.plan.unit}: learning them is the "
            "purpose."
        )
        if self.plan.unit == "record":
            return [
                "  - How many records a silo has, and the schema: both are public.",
                facts,
                "  - A person with several records, in one silo or in many: the unit is one record of one silo.",
            ]
        return [
            "  - How many persons a silo has, and the schema: both are public. How many rows they have is not.",
            facts,
            "  - A person with rows in several silos: the unit is one person of one silo, with all their rows there, "
            f"as identified by the column '{visible(self.plan.data.person or '')}'.",
        ]

    def _choice(self) -> list[str]:
        """Say that what stands above is for all candidates together."""
        if not self.others:
            return []
        told = (
            f"This run trained {len(self.others)} candidates and compared them. Its epsilon and delta cover all their "
            "messages together, including those of the losing candidates."
        )
        return [*_filled(told), ""]

    def _weighting(self) -> list[str]:
        """Say whom the model is for, where silos do not count by how many they have."""
        told = visible(weighting(self.plan))
        return [*_filled(f"{told[0].upper()}{told[1:]}."), ""] if told else []

    def _remarks(self) -> list[str]:
        told = [
            line
            for name, silo in self.silos.items()
            for remark in silo.remarks
            for line in _filled(f"{name}: {remark}")
        ]
        return [*told, ""] if told else []

    def _bet(self) -> list[str]:
        """Say it as a bet: how often an observer's best guess is right, and what the stronger guarantees rely on."""
        first, *others = self.plan.observers
        channel, guess = self.plan.leading_channel, best_guess(self._worst(first))
        return [
            *_filled(
                f"In words: {channel.observer_words()} and tries to tell whether one of a silo's {self.plan.unit}s or "
                f"another in its place was used, is right with probability at most {guess:.1%}; a coin toss is right "
                f"with 50%. Epsilon and delta guarantee this {self._scope()}. Computed exactly from the noise of this "
                f"run alone, the probability is at most {self._exact_guess(first):.1%}."
            ),
            *(f"  {line}".rstrip() for line in channel.reliance_words()),
            *(
                _EARLIER
                if others and any(silo.total.epsilon > silo.run.epsilon for silo in self.silos.values())
                else ()
            ),
            *(line for observer in others for line in ["", *self._without(observer)]),
        ]

    def _scope(self) -> str:
        """Say of which runs the bet is, and who may have chosen them."""
        if any(silo.used for silo in self.silos.values()):
            return "over all runs in the ledger, however they were chosen and whenever you stop"
        if any(silo.has_more_runs for silo in self.silos.values()):
            return "over all runs on this data so far, if none was chosen by the results of another"
        return "for this run alone"

    def _without(self, observer: Observer) -> list[str]:
        worst = self._worst(observer)
        guess = best_guess(worst)
        return _filled(
            f"{against_words(observer).capitalize()}, only the silo's own noise protects its {self.plan.unit}s: "
            f"epsilon = {worst.epsilon:.4g}, delta = {worst.delta:.2g}. Their guess is then right with probability "
            f"at most {guess:.1%}{', which is weak protection' if guess > WEAK else ''}."
        )

    def _events(self, observer: Observer) -> dict[str, tuple[tuple[Event, int], ...]]:
        """Return what this run lets the observer see of each silo."""
        return {
            terms.name: tuple(seen_by(observer, all_events(self.plans, terms.name)))
            for terms in self.plan.silos
            if terms.name in self.silos
        }

    def _exact_guess(self, observer: Observer) -> float:
        """Return how often the observer's best guess is right after this run."""
        return max(exact_guess(events) for events in set(self._events(observer).values()))

    def _person(self) -> list[str]:
        """Say what this run costs a person with a record in each of two or three silos, those that protect least."""
        delta = max(terms.guarantee.delta for terms in self.plan.silos)
        events = self._events("anyone")
        alone = {each: accountant.epsilon(each, delta) for each in set(events.values())}
        order = sorted(events, key=lambda name: -alone[events[name]])
        costs = [
            f"{several} silos pays epsilon = {accountant.epsilon(self._person_events(order[:number]), delta):.4g}"
            for number, several in ((2, "two"), (3, "three"))
            if number <= len(order)
        ]
        rows = "a record" if self.plan.unit == "record" else "rows"
        text = (
            f"In this run, at delta = {delta:.2g} and with the silos that protect least, a person with {rows} in "
            f"each of {', in each of '.join(costs)}."
        )
        return textwrap.wrap(text, 104, initial_indent="    ", subsequent_indent="    ") if costs else []

    def _person_events(self, silos: Sequence[str]) -> list[tuple[Event, int]]:
        return [event for plan in self.plans for event in person_events(plan, silos)]

    def _worst(self, observer: Observer) -> Guarantee:
        """Return the weakest of all silos' guarantees against the observer, over all runs."""
        return max((against(silo.all_runs, observer) for silo in self.silos.values()), key=lambda g: g.epsilon)

    def _silo(self, name: str, silo: SiloGuarantee) -> str:
        line = (
            f"{visible(name)}: each of {silo.records} {self.plan.unit}s, over {silo.rounds} "
            f"round{'' if silo.rounds == 1 else 's'}, by epsilon = {silo.run.epsilon:.4g}, delta = {silo.run.delta:.2g}"
        )
        if silo.this_run[1:]:
            line += f" {against_words(silo.run.against, self.plan.most_colluders)}"
        if silo.has_more_runs:
            known = "whenever you stop" if silo.used else "used so far, not a guarantee"
            total = f"epsilon = {silo.total.epsilon:.4g}, delta = {silo.total.delta:.2g}"
            line += f" (all runs on this data, {known}: {total})"
        for other in silo.this_run[1:]:
            if other.epsilon > silo.run.epsilon * (1 + 1e-9):
                line += f"; {against_words(other.against)} epsilon = {other.epsilon:.4g}"
        return line


def _filled(text: str) -> list[str]:
    return textwrap.wrap(text, 104, initial_indent="  ", subsequent_indent="  ")


def best_guess(guarantee: Guarantee) -> float:
    """Return the largest success probability of telling two equally likely worlds apart under (ε, δ)-DP."""
    epsilon, delta = guarantee.epsilon, guarantee.delta
    return min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon))) if epsilon < 700 else 1.0


def exact_guess(events: Events) -> float:
    """Return how often telling two equally likely worlds apart is right after these events: (1 + TV)/2, TV = δ(0)."""
    return (1 + accountant.delta(events, 0.0)) / 2
