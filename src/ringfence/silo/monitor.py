"""Monitoring of an agent: a line in its log for each decision, and metrics for Prometheus.

All of it is public: decisions and their reasons, and the ledger's budget, charges and entries. None of it depends on a
record, nor on how long anything took.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from ringfence.protocol import RefusalReason
from ringfence.silo.ledger.history import Account
from ringfence.silo.ledger.ledger import Ledger
from ringfence.storage.decision_log import DecisionLog

_DECISIONS = (("answered", ""), ("repeated", ""), *(("refused", reason.value) for reason in RefusalReason))

Samples = Sequence[tuple[dict[str, str], float]]
"""The values of a metric, each with its labels."""


class Monitor:
    """Counts and logs the decisions about one ledger."""

    def __init__(self, ledger: Ledger, log: DecisionLog) -> None:
        """Monitor an agent: count its decisions, write them to the log, and read its ledger."""
        self._ledger = ledger
        self._log = log
        self._started = time.time()
        self._counts = Counter(dict.fromkeys(_DECISIONS, 0))
        self._lock = threading.Lock()
        self._composed = -1, ""

    def note(self, decision: str, *, plan: str = "", round: int | None = None, reason: str = "") -> None:
        """Count a decision of the agent, and write it into the log."""
        with self._lock:
            self._counts[decision, reason] += 1
        self._log(decision, plan=plan, round=round, reason=reason, head=self._ledger.number)

    def metrics(self) -> str:
        """Return the agent's metrics in Prometheus' text format; LedgerError if the ledger cannot be read.

        Costs are composed again only when the ledger has a new entry.
        """
        account = self._ledger.look(Account.snapshot)
        with self._lock:
            if self._composed[0] != account.number:
                self._composed = account.number, _ledger_metrics(account)
            decisions = [
                ({"decision": decision, "reason": reason} if reason else {"decision": decision}, count)
                for (decision, reason), count in self._counts.items()
            ]
            of_ledger = self._composed[1]
        decided = "Requests decided since the agent was started."
        return (
            _metric("ringfence_decisions_total", "counter", decided, decisions)
            + of_ledger
            + _metric("process_start_time_seconds", "gauge", "Start of the agent.", [({}, round(self._started))])
        )


def _ledger_metrics(account: Account) -> str:
    """Return the Prometheus metrics of the agent's ledger: rounds, budget and costs."""
    uses, budget = account.uses(), account.budget
    rounds = [charge for approved in account.plans.values() for charge in approved.rounds.values()]
    stored = sum(charge.answer is not None for charge in rounds)

    def by_observer(epsilons: Iterable[float]) -> Samples:
        """Return an epsilon against each observer of the ledger as labelled samples."""
        return [({"against": str(use.limit.against)}, epsilon) for use, epsilon in zip(uses, epsilons, strict=True)]

    metrics: list[tuple[str, str, str, Samples]] = [
        ("ledger_head", "gauge", "Number of the ledger's last entry.", [({}, account.number)]),
        ("rounds_charged_total", "counter", "Rounds ever charged.", [({}, len(rounds))]),
        ("rounds_released_total", "counter", "Rounds ever answered.", [({}, stored)]),
        ("budget_delta", "gauge", "The delta at which epsilons are stated.", [({}, budget.delta)]),
        ("epsilon_granted", "gauge", "The most that all releases may cost together.",
         by_observer(use.limit.epsilon for use in uses)),
        ("epsilon_used", "gauge", "Cost of all charged rounds: a running tally, not a guarantee.",
         by_observer(use.used for use in uses)),
        ("epsilon_reserved", "gauge", "What running plans may add to it.", by_observer(use.reserved for use in uses)),
        ("epsilon_kept", "gauge", "What is kept for plans that earlier answers may lead to.",
         by_observer(use.kept for use in uses)),
        ("epsilon_left", "gauge", "What may still be approved: the budget less all of these.",
         by_observer(use.left for use in uses)),
    ]  # fmt: skip
    return "".join(_metric(f"ringfence_{name}", kind, meaning, samples) for name, kind, meaning, samples in metrics)


def _metric(name: str, kind: str, meaning: str, samples: Samples) -> str:
    """Return the lines of a Prometheus metric; labels are our own names, which need no escaping."""
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        listed = ",".join(f'{label}="{text}"' for label, text in labels.items())
        lines.append(f"{name}{{{listed}}} {value!r}" if listed else f"{name} {value!r}")
    return "\n".join([*lines, ""])
