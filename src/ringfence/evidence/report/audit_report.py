"""The page of `ringfence audit`: what was claimed, and what an attack could show against it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ringfence.html.charts import Bar, bar_chart, figure
from ringfence.html.markup import bullets, section, table, tag
from ringfence.report.page import ReportPage, facts


def audit_report(found: Mapping[str, Any], verdict: Sequence[str]) -> ReportPage:
    """Put the page together, from an audit's numbers as `ringfence audit --json` prints them and its verdict in words.

    It reads epsilon_claimed, epsilon_lower, epsilon_lower_any_mechanism, delta, confidence, refuted, mechanism,
    records, rounds, runs, score, score_allowed and score_lower; whatever else is there is listed as it is.
    """
    chart = bar_chart(
        [
            Bar("claimed", (float(found["epsilon_claimed"]),)),
            Bar("shown", (float(found["epsilon_lower"]),)),
            Bar("shown*", (float(found["epsilon_lower_any_mechanism"]),)),
        ],
        names=("epsilon",),
        title="Claimed and shown",
        description="The claimed epsilon beside the lower bounds that the attack demonstrates: assuming the stated "
        "mechanism, and (*) for any mechanism.",
        x_label="epsilon",
    )
    parts = (
        tag("p", verdict[0], class_="note warning" if found["refuted"] else "note"),
        facts(
            {
                "claimed epsilon": float(found["epsilon_claimed"]),
                "lower bound shown": float(found["epsilon_lower"]),
                "confidence": f"{found['confidence']:.4%}".rstrip("0").rstrip(".").removesuffix("%") + "%",
                "attacks run": found["runs"],
            }
        ),
        section("The verdict", bullets(verdict)),
        section(
            "Claimed and shown",
            figure(
                chart,
                "The attacker plants records, plays the server against the silo's real gate, and guesses which records "
                "were present. Its success rate gives a lower bound on epsilon; a true claim lies above that bound. "
                "Shown* assumes nothing about the mechanism.",
            ),
            table(
                "The guesses",
                ["quantity", "share correct"],
                [
                    ("measured", f"{found['score']:.2%}"),
                    ("lower bound at this confidence", f"{found['score_lower']:.2%}"),
                    ("upper bound if the claim is true", f"{found['score_allowed']:.2%}"),
                ],
            ),
        ),
        section(
            "How it was done",
            table(
                "All numbers",
                ["quantity", "value"],
                [(name.replace("_", " "), value) for name, value in found.items() if _is_shown(name, value)],
            ),
        ),
    )
    kicker = f"Audit report · {datetime.now(UTC):%d %B %Y, %H:%M} UTC · mechanism {found['mechanism']}"
    title = "The audit refutes the claim" if found["refuted"] else "The audit does not refute the claim"
    return ReportPage(title, kicker, parts, {"claimed-and-shown": chart})


def _is_shown(name: str, value: object) -> bool:
    """Tell whether a value goes into the table: the verdict and the confidence, in digits enough, stand above it."""
    return name not in ("confidence", "refuted") and isinstance(value, str | int | float)
