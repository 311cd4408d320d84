"""The page of `ringfence audit`: the claimed epsilon, and the lower bound that the attack demonstrates."""

from collections.abc import Mapping, Sequence
from typing import Any

from ringfence.evidence.report.page import ReportPage, kicker_line
from ringfence.html.charts import Bar, bar_chart, figure
from ringfence.html.markup import bullets, key_numbers, note, section, table


def audit_report(audit: Mapping[str, Any], verdict: Sequence[str]) -> ReportPage:
    """Return the page, from an audit's numbers as `ringfence audit --json` prints them and its verdict in words."""
    claimed, lower = float(audit["epsilon_claimed"]), float(audit["epsilon_lower"])
    chart = bar_chart(
        [
            Bar("claimed", (claimed,)),
            Bar("shown", (lower,)),
            Bar("shown*", (float(audit["epsilon_lower_any_mechanism"]),)),
        ],
        names=("epsilon",),
        title="Claimed and shown",
        description="The claimed epsilon beside the lower bounds that the attack demonstrates: assuming the stated "
        "mechanism, and (*) for any mechanism.",
        x_label="epsilon",
    )
    parts = (
        note(verdict[0], warning=audit["refuted"]),
        key_numbers(
            {
                "claimed epsilon": claimed,
                "lower bound shown": lower,
                "confidence": f"{audit['confidence']:.4%}".rstrip("0").rstrip(".").removesuffix("%") + "%",
                "attacks run": audit["runs"],
            }
        ),
        section("The verdict", bullets(*verdict)),
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
                    ("measured", f"{audit['score']:.2%}"),
                    ("lower bound at this confidence", f"{audit['score_lower']:.2%}"),
                    ("upper bound if the claim is true", f"{audit['score_allowed']:.2%}"),
                ],
            ),
        ),
        section(
            "How it was done",
            table(
                "All numbers",
                ["quantity", "value"],
                [
                    (name.replace("_", " "), value)
                    for name, value in audit.items()
                    if name not in ("confidence", "refuted") and isinstance(value, str | int | float)
                ],
            ),
        ),
    )
    kicker = kicker_line("Audit report", f"mechanism {audit['mechanism']}")
    title = "The audit refutes the claim" if audit["refuted"] else "The audit does not refute the claim"
    return ReportPage(title, kicker, parts, {"claimed-and-shown": chart})
