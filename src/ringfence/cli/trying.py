"""`ringfence example`, `ringfence demo` and `ringfence tour`: to try things out, each in one command."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_json, print_result, print_table, progress, say


def example(
    folder: Annotated[Path, typer.Argument(help="Where to write; a new folder, or one without these files.")] = Path(),
    json: AsJson = False,
) -> None:
    """Write invented records of three hospitals, and their schema, to try everything on."""
    from ringfence.example import write_example

    files = [str(file) for file in write_example(folder)]
    print_result(f"wrote {', '.join(files)}", {"files": files}, json=json)


def demo(json: AsJson = False) -> None:
    """Train and evaluate privately on real digits held by five silos; show the error for each epsilon."""
    import numpy as np

    from ringfence import demo as experiment

    digits = experiment.load_digits(np.random.default_rng())
    if not json:
        say("Odd against even digits: five silos, each with two digits; every silo adds its own noise.")
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
        title="Errors on held-out digits, told with noise by the same silos, and their 95% intervals",
    )
    shown = lines[1]
    say("\nEach line is a run of its own; these digits are public, so the runs' costs are not added up.")
    say("The last is the best fit to all silos' digits, which only whoever may see them all can have.")
    say(f"The privacy statement of the run at epsilon {shown.epsilon:g}:\n\n{shown.statement.text()}")


def tour(rounds: Annotated[int, typer.Option(help="Rounds of the run.", min=1)] = 12) -> None:
    """Bring up an engine's server and three silos here, train, show the ledgers, and leave nothing behind."""
    from ringfence.deployment.tour import tour as run

    run(say, rounds=rounds)
