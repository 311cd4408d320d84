"""`ringfence ledger` and `ringfence verify`: what was released from a data set, and what a certificate proves of it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli.output import AsJson, print_json, print_result, print_table


def ledger(
    file: Annotated[Path, typer.Argument(help="A silo's ledger file.")],
    json: AsJson = False,
) -> None:
    """Show what was released, when, at what cost, what is left, and whether the hash chain holds."""
    from ringfence.silo.summary import summarise

    summary = summarise(file)
    if json:
        print_json(summary)
    else:
        print_summary(summary, file)


def print_summary(summary: dict[str, Any], file: Path) -> None:
    """Print what a ledger says."""
    from ringfence.protocol.guarantee import AGAINST

    first, *others = summary["costs"]
    typer.echo(f"Ledger of silo '{summary['silo']}' ({file}): {summary['entries']} entries, the hash chain holds.")
    typer.echo(
        f"Budget epsilon {first['budget']:.4g} at delta {summary['delta']:.2g}; spent {first['spent']:.4g}, "
        f"reserved for running plans {first['reserved']:.4g}, left {first['left']:.4g}."
    )
    for cost in others:
        typer.echo(
            f"{AGAINST[cost['against']].capitalize()}: budget epsilon {cost['budget']:.4g}, spent {cost['spent']:.4g}, "
            f"left {cost['left']:.4g}."
        )
    if summary["plans"]:
        print_table(
            ["plan", "approved", "state", "rounds", "epsilon", "delta", "first release", "last release"],
            [
                [p["plan"][:12], p["approved"][:16], p["state"], f"{p['charged']}/{p['rounds']}", cost["epsilon"],
                 cost["delta"], p["first_release"][:16], p["last_release"][:16]]
                for p in summary["plans"] for cost in p["costs"][:1]
            ],
        )  # fmt: skip
    for remark in summary["remarks"]:
        typer.echo(remark)
    if summary["refusals"]:
        counts = ", ".join(f"{reason}: {count}" for reason, count in summary["refusals"].items())
        typer.echo(f"Refused requests: {counts}.")


def verify(
    file: Annotated[Path, typer.Argument(help="A certificate, as `ringfence silo certificate` writes it.")],
    key: Annotated[
        str | None, typer.Option(help="The silo's public key, as you got it from the silo by another way.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Check a silo's certificate: hash chain, every charge from the plans, totals and signature."""
    from ringfence.verification import verify_file

    finding = verify_file(file, key=key)
    print_result(finding.text(), finding.data(), json=json)
