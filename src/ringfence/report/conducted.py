"""The report of a deployed run from the server's side: what it knows, and no more."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.server.conduct import rounds_answered
from ringfence.server.rounds import Outcome, Trained
from ringfence.server.transcript import Answered, Asked, Closed, Entry, read

NOTE = (
    "The guarantees are those that the plan claims. A silo that follows it gives them by its own noise, and proves "
    "them by its own ledger, which the server cannot see."
)
SHUFFLED_NOTE = (
    "The guarantees are those that the plan claims. Silos that follow it give them by the noise that they make "
    "together, as long as the shuffler does not work together with the server; each silo's own noise alone gives "
    "alone_epsilon. They prove it by their ledgers, which the server cannot see."
)


def report(folder: Path, trained: Trained) -> dict[str, Any]:
    """Return what happened in the folder's finished run: who was asked and who answered when, and what is claimed."""
    header, entries = read(folder)
    plan = header.plan
    rounds = _rounds(entries, trained.history)
    answered = rounds_answered(plan, trained.history)
    content: dict[str, Any] = {
        "kind": "ringfence-run",
        "plan": plan.digest(),
        "run": plan.run,
        "begun": header.time,
        "ended": rounds[-1]["closed"] if rounds else header.time,
        "guarantees": NOTE if plan.shuffle is None else SHUFFLED_NOTE,
        "silos": {
            terms.name: {
                "records": terms.records,
                "answered": answered[terms.name],
                "claimed": _claimed(plan, terms),
            }
            for terms in plan.silos
        },
        "rounds": rounds,
    }
    if trained.findings is not None:
        content["survey"] = {
            "statistic": trained.findings.statistic.tolist(),
            "noise": trained.findings.noise,
        }
    return content


def _claimed(plan: Plan, terms: SiloTerms) -> dict[str, Any]:
    claimed = {"epsilon": terms.epsilon, "delta": terms.delta, "adjacency": plan.adjacency, "trust": plan.trust}
    return claimed if terms.alone_epsilon is None else {**claimed, "alone_epsilon": terms.alone_epsilon}


def _rounds(entries: Iterable[Entry], history: Iterable[Outcome]) -> list[dict[str, Any]]:
    outcomes = iter(history)
    rounds: list[dict[str, Any]] = []
    asked: Asked | None = None
    times: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry, Asked):
            asked, times = entry, {}
        elif isinstance(entry, Answered):
            times[entry.silo] = entry.time  # of the last one: an update is the last that is taken from a silo
        elif isinstance(entry, Closed) and asked is not None:
            outcome = next(outcomes)
            rounds.append(
                {
                    "round": entry.round,
                    "asked": list(asked.silos),
                    "begun": asked.time,
                    "answered": {name: times[name] for name in outcome.answered},
                    "refused": dict(outcome.refused),
                    "unusable": list(outcome.unusable),
                    "closed": entry.time,
                }
            )
    return rounds
