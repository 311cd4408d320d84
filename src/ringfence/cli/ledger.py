"""`ringfence ledger` and `ringfence verify`: what was released from a data set, and what a certificate proves of it."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ringfence.cli.options import Note
from ringfence.cli.output import Output, Table
from ringfence.planning.options import REQUIRED, offered


def ledger(
    file: Path = offered(REQUIRED, "A silo's ledger file.", argument=True),
    end: str | None = offered(
        None, "End this plan first (its file or digest), to return what a killed run left reserved.", metavar="PLAN"
    ),
    note: Note = "",
) -> Output:
    """Show what a ledger records: releases, costs, what is left.

    The hash chain is checked as well.

    Examples:
      ringfence ledger north.ledger
      ringfence ledger north.ledger --end 5c1f0d2a9b7e
    """
    from ringfence.silo.ledger.summary import summarise
    from ringfence.silo.operator.decisions import end_in_ledger

    if end is not None:
        end_in_ledger(file, end, note=note)
    summary = summarise(file)
    return Output(
        summary, *describe_summary(summary, file, ending=f"ringfence ledger {shlex.quote(str(file))} --end PLAN")
    )


def describe_summary(summary: dict[str, Any], file: Path, *, ending: str) -> Iterator[str | Table]:
    """Yield what a ledger's summary says, for people, and the command that ends one of its plans."""
    from ringfence.protocol import against_words, claimed_against
    from ringfence.silo.ledger.summary import budget_words

    first, *others = summary["costs"]
    yield f"Ledger of silo '{summary['silo']}' ({file}): {summary['entries']} entries, hash chain intact."
    observer = claimed_against([cost["against"] for cost in summary["costs"]], summary["colluders"])
    guarantee = first["guarantee"]
    yield (
        f"Guaranteed for each {summary['unit']}, {observer}, over all releases together, however plans are chosen and "
        f"whenever you stop: epsilon {guarantee['epsilon']:.4g} at delta {guarantee['delta']:.2g}."
    )
    yield budget_words(first, summary["delta"])
    for cost in others:
        guarantee = cost["guarantee"]
        yield (
            f"{against_words(cost['against']).capitalize()}: epsilon {guarantee['epsilon']:.4g} at delta "
            f"{guarantee['delta']:.2g}. {budget_words(cost, summary['delta'])}"
        )
    if summary["plans"]:
        yield Table(
            ["plan", "approved", "state", "rounds", "epsilon used", "delta", "first release", "last release"],
            [
                [p["plan"][:12], p["approved"][:16], p["state"], f"{p['charged']}/{p['rounds']}", cost["epsilon"],
                 cost["delta"], p["first_release"][:16], p["last_release"][:16]]
                for p in summary["plans"] for cost in p["costs"][:1]
            ],
        )  # fmt: skip
    running = [plan["plan"][:12] for plan in summary["plans"] if plan["state"] == "running"]
    if running:
        yield (
            f"Running, with the rest of their cost reserved: {', '.join(running)}. If a run was killed or is no "
            f"longer wanted, `{ending}` returns what it reserved."
        )
    yield from summary["remarks"]
    if summary["refusals"]:
        counts = ", ".join(f"{reason}: {count}" for reason, count in summary["refusals"].items())
        yield f"Refused requests: {counts}."
    if summary["same_user"]:
        yield "The operator allowed the courier to run as a user who can read the data."


def verify(
    files: list[Path] = offered(
        REQUIRED,
        "Certificates of one silo, as written by `ringfence silo certificate`. With several, also check that "
        "none omits what another shows.",
        argument=True,
        metavar="CERTIFICATE...",
    ),
    key: str | None = offered(None, "The silo's public key, which the silo told you through another channel."),
    transcript: Path | None = offered(
        None, "A run's folder. Also check that the ledger has every head that the silo signed for it."
    ),
) -> Output:
    """Check a silo's certificate.

    The hash chain, every charge (computed again from the plans), the totals and the signature are checked.

    Examples:
      ringfence verify north.certificate.json --key PUBLIC-KEY
    """
    from ringfence.evidence.forks import require_one_history, require_transcript_heads
    from ringfence.evidence.verification import verify_file

    finding, newest = max(((verify_file(file, key=key), file) for file in files), key=lambda pair: pair[0].entries)
    text, data = [finding.text()], finding.data()
    if len(files) > 1:
        require_one_history(files)
        text.append(f"The {len(files)} certificates are from one ledger that only grew. The above is for the newest.")
    if transcript is not None:
        witnessed = require_transcript_heads(newest, transcript)
        text.append(witnessed.text())
        data["heads"] = vars(witnessed)
    return Output(data, "\n\n".join(text))
