"""The `ringfence` command."""

import sys
from typing import Annotated

import typer
import typer.core

from ringfence import __version__
from ringfence.cli import (  # noqa: F401 (they add commands to those of silo and server)
    accounting,
    audit,
    doctor,
    dossier,
    evaluation,
    federation,
    kits,
    ledger,
    model,
    predicting,
    reproduce,
    schema,
    server,
    service,
    shuffler,
    silo,
    silo_backup,
    silo_data,
    silo_loss,
    silo_own,
    statistics,
    training,
    trying,
)
from ringfence.cli.output import say, warn
from ringfence.deployment import core_dumps
from ringfence.deployment.processes import leave
from ringfence.errors import RingfenceError

typer.core.HAS_RICH = False  # else plain help has rich's escapes in it: \\[required]
app = typer.Typer(
    name="ringfence",
    help="Private federated learning without a trusted server.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # its traceback shows local variables, which may hold records
)
app.command()(accounting.account)
app.command()(accounting.plan)
app.command()(accounting.bounds)
app.command()(statistics.statistics)
app.command()(training.train)
app.command()(predicting.predict)
app.command()(evaluation.evaluate)
app.command()(ledger.ledger)
app.command()(trying.demo)
app.command()(trying.example)
app.command()(reproduce.reproduce)
app.command()(audit.audit)
app.command()(ledger.verify)
app.command()(trying.tour)
app.command()(doctor.doctor)
silo.app.command("service")(service.of_silo)
shuffler.app.command("service")(service.of_shuffler)
server.app.command("service")(service.of_server)
app.add_typer(model.app, name="model")
app.add_typer(dossier.app, name="dossier")
app.add_typer(schema.app, name="schema")
app.add_typer(server.app, name="server")
app.add_typer(shuffler.app, name="shuffler")
app.add_typer(silo.app, name="silo")
app.add_typer(federation.app, name="federation")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        say(__version__)
        raise typer.Exit


INTERRUPTED = 130


def run() -> None:
    """Run the command line; what goes wrong on purpose is one sentence on standard error and status 1."""
    core_dumps.forbid()
    try:
        app()
    except RingfenceError as problem:
        warn(f"ringfence: {problem}")
        leave(1)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # typer turns Ctrl-C into this status without a word
            warn("ringfence: stopped; ledgers show what was released until now.")
        leave(int(ended.code or 0))
    except Exception:
        sys.excepthook(*sys.exc_info())
        leave(1)
