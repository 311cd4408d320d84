"""The `ringfence` command."""

import os
import sys
from typing import Annotated

import typer

from ringfence import __version__
from ringfence.cli import (
    accounting,
    audit,
    dossier,
    evaluation,
    first_steps,
    kits,
    ledger,
    model,
    reproduce,
    schema,
    server,
    service,
    shuffler,
    silo,
    silo_data,  # noqa: F401 (it adds commands to those of silo)
    statistics,
    training,
)
from ringfence.cli.help import CHECK, OPERATE, SERVE, START, TRAIN
from ringfence.cli.options import App, option
from ringfence.cli.output import say, warn
from ringfence.deployment.processes import forbid_core_dumps, leave
from ringfence.errors import RingfenceError

app = App(name="ringfence")

silo.app.command("service")(service.of_silo)
shuffler.app.command("service")(service.of_shuffler)
server.app.command("service")(service.of_server)

app.command(rich_help_panel=START)(first_steps.example)
app.command(rich_help_panel=START)(first_steps.demo)
app.command(rich_help_panel=START)(first_steps.tour)
app.command(rich_help_panel=START)(first_steps.doctor)
app.add_typer(schema.app, name="schema", rich_help_panel=TRAIN)
app.command(rich_help_panel=TRAIN)(accounting.plan)
app.command(rich_help_panel=TRAIN)(training.train)
app.command(rich_help_panel=TRAIN)(model.predict)
app.command(rich_help_panel=TRAIN)(evaluation.evaluate)
app.add_typer(model.app, name="model", rich_help_panel=TRAIN)
app.command(rich_help_panel=TRAIN)(statistics.statistics)
app.add_typer(silo.app, name="silo", rich_help_panel=OPERATE)
app.command(rich_help_panel=OPERATE)(ledger.ledger)
app.add_typer(server.app, name="server", rich_help_panel=SERVE)
app.add_typer(shuffler.app, name="shuffler", rich_help_panel=SERVE)
app.add_typer(kits.app, name="federation", rich_help_panel=SERVE)
app.command(rich_help_panel=CHECK)(ledger.verify)
app.add_typer(dossier.app, name="dossier", rich_help_panel=CHECK)
app.command(rich_help_panel=CHECK)(audit.audit)
app.command(rich_help_panel=CHECK)(accounting.account)
app.command(rich_help_panel=CHECK)(accounting.bounds)
app.command(rich_help_panel=CHECK)(reproduce.reproduce)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, option("Show the version and exit.", None, "--version")] = False) -> None:
    """Private federated learning without a trusted server.

    Examples:
      ringfence example
      ringfence train north.csv south.csv --schema schema.toml --target ill --epsilon 1
      ringfence train --help
    """
    if version:
        say(__version__)
        raise typer.Exit


INTERRUPTED = 130


def run() -> None:
    """Run the command line; what goes wrong on purpose is one sentence on standard error and status 1."""
    forbid_core_dumps()
    # NumPy reads it when it is loaded: threads of a product wait for each other, where processors are shared for long.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app()
    except RingfenceError as problem:
        warn(f"ringfence: {problem}")
        leave(1)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # typer turns Ctrl-C into this status without a word
            warn("ringfence: interrupted. The ledgers show what was released so far.")
        leave(int(ended.code or 0))
    except Exception:
        sys.excepthook(*sys.exc_info())
        leave(1)
