"""`ringfence audit`: attack a mechanism through the real gate, and compare with what is claimed."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_json, print_table, progress, require_folder, say
from ringfence.cli.reporting import NoReport


def audit(
    epsilon: Annotated[float, typer.Option(help="The epsilon that is claimed for all rounds of a run.")] = 3.0,
    delta: Annotated[float, typer.Option(help="The delta of the claim.")] = 1e-5,
    records: Annotated[int, typer.Option(help="Records, or persons, of the silo; up to 64 of them are canaries.")] = 64,
    rounds: Annotated[int | None, typer.Option(help="Rounds of a run; by default 2 of each plan.")] = None,
    runs: Annotated[
        int | None,
        typer.Option(help="Runs that are played; by default 1200, more with few canaries, fewer with a shuffler."),
    ] = None,
    mechanism: Annotated[
        str,
        typer.Option(
            help="full, fixed, poisson, turns, one-pass, correlated, multi-stage, localized, several-plans, survey, "
            "curvature, evaluation, choice, comparison, statistics, survival-curve, second-moments, feature-moments, "
            "preconditioned, shuffled, shuffled-peer, shuffled-alone, person-mean, person-rows, person-sum or "
            "local-sgd."
        ),
    ] = "full",
    sabotage: Annotated[
        str,
        typer.Option(
            help="Break the silo first, to see that it is noticed: none, half-noise, root-half-noise, skip-clip, "
            "repeat-round, with-replacement, wrong-sensitivity, reuse-noise, forget-peer, keep-order or ignore-persons."
        ),
    ] = "none",
    report: Annotated[Path, typer.Option(metavar="FILE", help="Write the report here (HTML).")] = Path(
        "ringfence-audit.html"
    ),
    no_report: NoReport = False,
    json: AsJson = False,
) -> None:
    """Play a hostile server against a silo's gate, and print a lower bound on epsilon beside the claimed one.

    Records are made up; gate, ledger, accountant and noise are the real ones. Exit status 1 if the claim is refuted.
    """
    from ringfence.audit.game import audit as play
    from ringfence.audit.game import default_rounds
    from ringfence.audit.plans import AuditQuestion

    if not no_report:
        require_folder(report)
    question = AuditQuestion(epsilon, delta, records, default_rounds(mechanism) if rounds is None else rounds)
    with progress() as bar:
        task = bar.add_task("runs")
        found = play(
            mechanism,
            question,
            runs=runs,
            sabotage=sabotage,
            watch=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if not no_report:
        from ringfence.report.audited import audit_report

        audit_report(found.data(), found.text()).write(report)
    if json:
        print_json(found.data())
    else:
        print_table(["quantity", "value"], found.rows())
        say("\n".join(["", *found.text(), *([] if no_report else [f"report {report}"])]))
    if found.refuted:
        raise typer.Exit(1)
