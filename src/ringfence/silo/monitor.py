"""Monitoring of an agent: a line in its log for each decision, and metrics for Prometheus.

All of it is public: decisions and their reasons, and the ledger's budget, charges and entries. None of it depends on a
record, nor on how long anything took.
"""

import threading
import time
from collections import Counter
from collections.abc import Sequence

from ringfence.protocol import RefusalReason
from ringfence.protocol.plan.guarantee import against
from ringfence.silo.ledger.history import Account
from ringfence.silo.ledger.ledger import Ledger
from ringfence.storage.decision_log import DecisionLog

_DECISIONS = (("answered", ""), ("repeated", ""), *(("refused", reason.value) for reason in RefusalReason))


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
        decided = _metric(
            "ringfence_decisions_total", "counter", "Requests decided since the agent was started.", decisions
        )
        started = round(self._started)
        return (
            decided + of_ledger + _metric("process_start_time_seconds", "gauge", "Start of the agent.", [({}, started)])
        )


def _ledger_metrics(account: Account) -> str:
    """Return the Prometheus metrics of the agent's ledger: rounds, budget and costs."""
    spent, limits = account.spent(), account.budget.limits
    rounds = [charge for approved in account.plans.values() for charge in approved.rounds.values()]
    stored = sum(charge.answer is not None for charge in rounds)
    numbers = (
        ("ledger_head", "gauge", "Number of the ledger's last entry.", account.number),
        ("rounds_charged_total", "counter", "Rounds ever charged.", len(rounds)),
        ("rounds_released_total", "counter", "Rounds ever answered.", stored),
        ("budget_delta", "gauge", "The delta at which epsilons are stated.", account.budget.delta),
    )
    granted = [against(limits, cost.against).epsilon for cost in spent]
    left = [account.left(cost.against) for cost in spent]
    epsilons = (
        ("granted", "The most that all releases may cost together.", granted),
        ("used", "Cost of all charged rounds: a running tally, not a guarantee.", [cost.epsilon for cost in spent]),
        ("left", "What may still be approved beyond all running plans.", left),
    )
    observers = [{"against": str(cost.against)} for cost in spent]
    return "".join(
        [
            *(_metric(f"ringfence_{name}", kind, meaning, [({}, value)]) for name, kind, meaning, value in numbers),
            *(
                _metric(f"ringfence_epsilon_{name}", "gauge", meaning, list(zip(observers, values, strict=True)))
                for name, meaning, values in epsilons
            ),
        ]
    )


def _metric(name: str, kind: str, meaning: str, samples: Sequence[tuple[dict[str, str], float]]) -> str:
    """Return the lines of a Prometheus metric; labels are our own names, which need no escaping."""
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        listed = ",".join(f'{label}="{text}"' for label, text in labels.items())
        lines.append(f"{name}{{{listed}}} {value!r}" if listed else f"{name} {value!r}")
    return "\n".join([*lines, ""])
