"""`ringfence example`, `ringfence demo` and `ringfence tour`: to try things out, each in one command."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.options import AsJson, argument, option
from ringfence.cli.output import print_json, print_result, print_table, progress, say
from ringfence.errors import require_extra


def example(
    folder: Annotated[Path, argument("Where to write: a new folder, or one without these files.")] = Path(),
    json: AsJson = False,
) -> None:
    """Write invented records of three hospitals, and their schema.

    Examples:
      ringfence example
      ringfence example hospitals
    """
    from ringfence.cli.example import write_example

    files = [str(file) for file in write_example(folder)]
    print_result(f"Wrote {', '.join(files)}.", {"files": files}, json=json)


def demo(json: AsJson = False) -> None:
    """Train on handwritten digits of five silos, and show the errors.

    Each line is trained and evaluated privately at its own epsilon.

    Examples:
      ringfence demo
    """
    import numpy as np

    from ringfence.cli import demo as experiment

    digits = experiment.load_digits(np.random.default_rng())
    if not json:
        say("Is a digit odd or even? Five silos, each with two of the ten digits; each silo adds its own noise.")
    with progress() as bar:
        task = bar.add_task("rounds")

        lines = list(
            experiment.run(
                digits,
                planned=lambda plan: bar.reset(task, total=plan.rounds),
                watch=lambda _: bar.advance(task),
            )
        )
    best = experiment.non_private_error(digits)
    if json:
        rows = [{"epsilon": line.epsilon, "error": line.error, "low": line.low, "high": line.high} for line in lines]
        print_json({"lines": rows, "non_private_error": best, "statement": lines[1].statement.text()})
        return
    say()
    print_table(
        ["epsilon", "error", "from", "to"],
        [*([line.epsilon, line.error, line.low, line.high] for line in lines), ["none", best, "", ""]],
        title="Errors on held-out digits, measured privately by the same silos, with 95% intervals",
    )
    shown = lines[1]
    say("\nEach line is a separate run. The digits are public, so the costs of the runs are not added up.")
    say("The last line is the best fit without privacy, by somebody who may see all digits.")
    say(f"Privacy statement of the run at epsilon {shown.epsilon:g}:\n\n{shown.statement.text()}")


def tour(rounds: Annotated[int, option("Number of rounds.", min=1)] = 12) -> None:
    """Run a federation of a server and three silos on this machine.

    It starts an engine's server and three silos, trains, shows the ledgers, and removes everything again.

    Examples:
      ringfence tour
    """
    require_extra("deployment", "The tour", "psutil", "nvflare", "fastapi", "uvicorn")
    from ringfence.deployment.tour import tour as run

    run(say, rounds=rounds)


def doctor(
    folders: Annotated[
        list[Path] | None,
        argument("Folders to check: of a silo or a shuffler, or a startup kit.", metavar="[FOLDER]..."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Check this machine and your folders, and say what to fix.

    The exit status is 1 if something is wrong.

    Examples:
      ringfence doctor
      ringfence doctor north-silo
    """
    from ringfence.deployment.doctor import examine

    findings = examine(folders or [])
    if json:
        print_json({"findings": [dataclasses.asdict(finding) for finding in findings]})
    else:
        for place in dict.fromkeys(finding.place for finding in findings):
            say(f"{place}:")
            for finding in findings:
                if finding.place == place:
                    say(f"  {'ok   ' if finding.well else 'WRONG'} {finding.check}: {finding.says}")
    if not all(finding.well for finding in findings):
        raise typer.Exit(1)
