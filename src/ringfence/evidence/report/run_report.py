"""The server's report of a deployed run, as data and as a page."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ringfence.estimates.metrics import EvaluationReport
from ringfence.evidence.report import sections
from ringfence.evidence.report.page import ReportPage, counted
from ringfence.federation.tracking import Progress
from ringfence.html.charts import figure
from ringfence.html.markup import Html, Value, key_numbers, note, outline, paragraph, section, table, tag
from ringfence.model.statement import Statement
from ringfence.protocol import Plan, against_words, claimed_against
from ringfence.server import state as learned
from ringfence.server.conduct import rounds_answered
from ringfence.server.rounds import RoundOutcome, RunResult
from ringfence.server.transcript import Answered, Asked, Closed, RunEntry, read_transcript

PROOF = "Each silo proves them with its own ledger, which the server cannot see."
MOST_LINES = 200


def run_report(folder: Path, trained: RunResult, evaluation: EvaluationReport | None) -> dict[str, Any]:
    """Return the finished run of a folder as data: requests and answers by round, and the claimed guarantees."""
    header, entries = read_transcript(folder)
    plan = header.plan
    rounds = _rounds(entries, trained.history)
    answered = rounds_answered(plan, trained.history)
    return {
        "kind": "ringfence-run",
        "plan": plan.digest(),
        "run": plan.run,
        "begun": header.time,
        "ended": rounds[-1]["closed"] if rounds else header.time,
        "guarantees": f"The guarantees are those that the plan claims for each {plan.unit}, for this run alone. "
        f"{plan.leading_channel.claim_words()} {PROOF}",
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
        "findings": learned.as_data(trained.findings),
        "evaluation": None if evaluation is None else evaluation.model_dump(mode="json"),
    }


def _rounds(entries: Iterable[RunEntry], history: Iterable[RoundOutcome]) -> list[dict[str, Any]]:
    """Return, for the run's report, who was asked, answered and refused in each round, and when."""
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


def run_report_page(
    plan: Plan, content: Mapping[str, Any], rounds: Sequence[Progress], evaluation: EvaluationReport | None
) -> ReportPage:
    """Return the page of a run; `content` is what `run_report` returns for it."""
    silos: Mapping[str, Any] = content["silos"]
    last: Mapping[str, float] = next((p.epsilon for p in reversed(rounds) if p.epsilon), {})
    shown = {terms.name: terms for terms in plan.silos if terms.name in last}
    figures = {
        "budgets": sections.budget_chart(
            {name: (last[name],) for name in shown},
            {name: terms.guarantee.epsilon for name, terms in shown.items()},
            names=("used",),
            limit_name="plan's claim",
        ),
        "epsilon": sections.epsilon_chart(rounds),
        "updates": sections.update_chart(rounds, plan),
        **sections.evaluation_charts(evaluation),
    }
    title, what = _subject(plan, len(silos), evaluation)
    parts = (
        paragraph(
            f"{what}. This is the server's report: it knows the plan and the noisy messages, and nothing else.",
            class_="lead",
        ),
        key_numbers(
            {
                f"largest epsilon claimed, per {plan.unit}": max(terms.guarantee.epsilon for terms in plan.silos),
                **sections.rounds_number(plan),
                "silos": len(silos),
                f"{plan.unit}s in total": f"{sum(terms.records for terms in plan.silos):,}",
            }
        ),
        _protection_section(plan, content),
        section(
            "What it cost each silo",
            figure(
                figures["budgets"],
                f"What the answers used so far cost each {plan.unit} (bookkeeping), beside the plan's claim for all "
                f"its rounds {claimed_against(plan.observers, plan.most_colluders)}.",
            ),
            _silo_table(plan, silos),
        ),
        sections.rounds_section(plan, figures["epsilon"], figures["updates"]),
        sections.evaluation_section(evaluation, figures),
        _participation_section(content["rounds"]),
        sections.plan_section(plan, list(silos)),
    )
    kicker = f"Run report · {content['begun'][:16].replace('T', ' ')} UTC · plan {plan.digest()[:12]}"
    return ReportPage(title, kicker, parts, figures)


def _subject(plan: Plan, silos: int, evaluation: EvaluationReport | None) -> tuple[str, str]:
    """Return the title of a run report's page, and a sentence on what was done."""
    target, who = f"“{plan.data.target_words}”", counted(silos, "silo")
    if plan.steps:
        return f"A model of {target} from {who}", f"{who} trained one model that predicts {target}"
    if evaluation is not None:
        words = f"{who} measured how well a model predicts {target}; nothing was trained"
        return f"How well a model predicts {target}, measured by {who}", words
    return f"Statistics of {who}", f"{who} answered; nothing was trained"


def _protection_section(plan: Plan, content: Mapping[str, Any]) -> Html:
    """Return the run report's section on what the plan claims for each silo."""
    answered = {name: silo["answered"] for name, silo in content["silos"].items()}
    return sections.protection_section(
        plan.unit,
        note(str(content["guarantees"])),
        paragraph(
            "Each silo can prove what it released with a signed certificate that anyone can check with ",
            tag("code", "ringfence verify"),
            ". The certificate also covers the silo's other runs, which this page cannot know.",
        ),
        outline(Statement.claimed(plan, answered).words()),
    )


def _silo_table(plan: Plan, silos: Mapping[str, Any]) -> Html:
    """Return the run report's table of each silo's claims, against every kind of observer."""
    rows: list[tuple[Value, ...]] = [
        (
            terms.name,
            terms.records,
            silos[terms.name]["answered"],
            *(claim.epsilon for claim in terms.guarantees),
            terms.guarantee.delta,
        )
        for terms in plan.silos
    ]
    claims = [f"claimed epsilon {against_words(observer, plan.most_colluders)}" for observer in plan.observers]
    named = claims if len(claims) > 1 else ["claimed epsilon"]
    header = ["silo", f"{plan.unit}s", "rounds answered", *named, "delta"]
    return table("Per silo", header, rows)


def _participation_section(rounds: Sequence[Mapping[str, Any]]) -> Html:
    """Return the run report's section on rounds in which a silo that was asked did not answer."""
    incomplete: list[tuple[Value, ...]] = []
    for entry in rounds:
        silent = [name for name in entry["asked"] if name not in entry["answered"] and name not in entry["refused"]]
        if silent or entry["refused"]:
            refused = "; ".join(f"{name}: {reason}" for name, reason in entry["refused"].items())
            incomplete.append((entry["round"], len(entry["answered"]), ", ".join(silent), refused))
    if not incomplete:
        return section("Who took part", paragraph("Every silo answered every round it was asked in."))
    more = f" (first {MOST_LINES} of {len(incomplete)})" if len(incomplete) > MOST_LINES else ""
    return section(
        "Who took part",
        table(
            f"Rounds with a missing answer{more}",
            ["round", "answers", "no usable answer", "refused"],
            incomplete[:MOST_LINES],
        ),
    )
