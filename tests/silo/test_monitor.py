"""What an agent tells those who watch over it: each decision once, what the ledger says, and nothing else."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.accounting import charges
from ringfence.protocol import NoisyUpdate, Plan, RefusalReason
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger import history as account
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.monitor import Monitor
from ringfence.silo.operator import decisions
from ringfence.storage.decision_log import DecisionLog
from tests.silo.agents import Served, approved, edit_ledger, make_silo_folder, serving
from tests.support import MakePlan, refusal


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(make_silo_folder(tmp_path), "--port", "0") as running:
        yield running


def samples(text: str) -> dict[str, float]:
    """Read Prometheus' text format as strictly as its grammar: every line is a comment or a sample."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if re.fullmatch(r"# (HELP [a-z_]+ .+|TYPE [a-z_]+ (counter|gauge))", line):
            continue
        match = re.fullmatch(r'([a-z_]+(?:\{[a-z]+="[a-z-]*"(?:,[a-z]+="[a-z-]*")*\})?) ([0-9.e+-]+)', line)
        assert match, line
        assert match[1] not in found
        found[match[1]] = float(match[2])
    assert text.endswith("\n")
    return found


def log(served: Served) -> list[dict[str, object]]:
    text = (served.silo_folder.path / "decisions.log").read_text()
    return [{name: value for name, value in json.loads(line).items() if name != "time"} for line in text.splitlines()]


def converse(served: Served, plan: Plan) -> None:
    """Have two rounds answered, one of them twice, and two refused."""
    for round in (0, 0, 1):
        assert isinstance(served.ask(plan, round), NoisyUpdate)
    assert refusal(served.ask(plan, 0, 0.5)) is RefusalReason.ROUND_ANSWERED
    assert refusal(served.ask(plan, 99)) is RefusalReason.ROUND_OUT_OF_RANGE


def test_every_decision_is_one_line_of_the_log(served: Served, plan_of: MakePlan) -> None:
    plan = approved(served.silo_folder, plan_of())
    converse(served, plan)
    about = {"plan": plan.digest()}
    assert log(served) == [
        {"decision": "answered", **about, "round": 0, "head": 5},
        {"decision": "repeated", **about, "round": 0, "head": 5},
        {"decision": "answered", **about, "round": 1, "head": 7},
        {"decision": "refused", "reason": "round-answered", **about, "round": 0, "head": 8},
        {"decision": "refused", "reason": "round-out-of-range", **about, "round": 99, "head": 9},
    ]


def test_metrics_are_what_was_decided_and_what_the_ledger_says(served: Served, plan_of: MakePlan) -> None:
    plan = approved(served.silo_folder, plan_of())
    converse(served, plan)
    status, text, headers = served.caller().send("GET", "/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = samples(text.decode())
    decided = {name: count for name, count in found.items() if name.startswith("ringfence_decisions_total") and count}
    assert decided == {
        'ringfence_decisions_total{decision="answered"}': 2,
        'ringfence_decisions_total{decision="repeated"}': 1,
        'ringfence_decisions_total{decision="refused",reason="round-answered"}': 1,
        'ringfence_decisions_total{decision="refused",reason="round-out-of-range"}': 1,
    }
    for reason in RefusalReason:  # each has its number from the beginning
        assert f'ringfence_decisions_total{{decision="refused",reason="{reason.value}"}}' in found
    state = decisions.status(served.silo_folder)
    (shown,) = state["costs"]
    assert found["ringfence_ledger_head"] == state["entries"]
    assert found["ringfence_rounds_charged_total"] == found["ringfence_rounds_released_total"] == 2
    assert found['ringfence_epsilon_granted{against="anyone"}'] == shown["budget"]
    assert found['ringfence_epsilon_used{against="anyone"}'] == shown["used"] > 0
    assert found['ringfence_epsilon_left{against="anyone"}'] == shown["left"]
    parts = [found[f'ringfence_epsilon_{part}{{against="anyone"}}'] for part in ("used", "reserved", "kept", "left")]
    assert sum(parts) == pytest.approx(found['ringfence_epsilon_granted{against="anyone"}'])
    assert found["ringfence_budget_delta"] == state["delta"]


def test_costs_are_composed_anew_only_when_the_ledger_has_another_entry(
    ledger: Ledger, gate: Gate, plan_of: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    composed = []
    real = charges.costs

    def counted(*arguments: object) -> object:
        composed.append(arguments)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(account, "costs", counted)
    watching = Monitor(ledger, DecisionLog(tmp_path))
    first = watching.metrics()
    once = len(composed)
    assert once > 0
    assert watching.metrics() == first
    assert len(composed) == once
    gate.approve(plan_of())
    assert watching.metrics() != first
    assert len(composed) == 2 * once


def test_an_agent_whose_ledger_cannot_be_trusted_gives_no_metrics_and_logs_that_it_refuses(
    served: Served, plan_of: MakePlan
) -> None:
    plan = approved(served.silo_folder, plan_of())
    assert isinstance(served.ask(plan, 0), NoisyUpdate)
    statement = "UPDATE entries SET hash = 'other' WHERE number = (SELECT max(number) FROM entries)"
    edit_ledger(served.silo_folder.ledger_path, statement)
    assert refusal(served.ask(plan, 1)) is RefusalReason.UNAVAILABLE
    assert served.caller().send("GET", "/metrics")[0] == 503
    assert log(served)[-1] == {"decision": "refused", "reason": "unavailable", "plan": plan.digest(), "round": 1}
