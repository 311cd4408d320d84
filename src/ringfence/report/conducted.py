"""The report of a deployed run from the server's side: what it knows, and no more."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ringfence.server.conduct import rounds_answered
from ringfence.server.rounds import RoundOutcome, RunResult
from ringfence.server.transcript import Answered, Asked, Closed, Entry, read

NOTE = "The guarantees are those that the plan claims."
PROOF = "Each silo proves them by its own ledger, which the server cannot see."


def report(folder: Path, trained: RunResult) -> dict[str, Any]:
    """Return what happened in the folder's finished run: who was asked and who answered when, and what is claimed."""
    header, entries = read(folder)
    plan = header.plan
    rounds = _rounds(entries, trained.history)
    answered = rounds_answered(plan, trained.history)
    return {
        "kind": "ringfence-run",
        "plan": plan.digest(),
        "run": plan.run,
        "begun": header.time,
        "ended": rounds[-1]["closed"] if rounds else header.time,
        "guarantees": f"{NOTE} {plan.leading_channel.claim_words} {PROOF}",
        "trust": plan.trust,
        "adjacency": plan.adjacency,
        "unit": plan.unit,
        "silos": {
            terms.name: {
                "records": terms.records,
                "answered": answered[terms.name],
                "claimed": [claim.model_dump() for claim in terms.guarantees],
            }
            for terms in plan.silos
        },
        "rounds": rounds,
        "findings": {
            name: {"statistic": found.statistic.tolist(), "noise": found.noise}
            for name, found in trained.findings.items()
        },
    }


def _rounds(entries: Iterable[Entry], history: Iterable[RoundOutcome]) -> list[dict[str, Any]]:
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
