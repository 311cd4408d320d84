"""`ringfence silo`: a silo's folder, its agent, what its operator decides, and its side of the engine."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ringfence.cli.ledger import describe_summary
from ringfence.cli.options import NOTE, App, Note, PlanFile, Which, argument, option
from ringfence.cli.output import Output, Table, require_folder, say
from ringfence.errors import require_extra, visible
from ringfence.federation.requests import NEW_BEGINNING, SCHEMA, UNUSUAL_BUDGET
from ringfence.planning.options import REQUIRED, offered

if TYPE_CHECKING:
    from ringfence.silo.folder import SiloFolder
    from ringfence.silo.ledger.budget import Budget


app = App(help="Set up and run a silo, and decide for it.")

Folder = Annotated[Path, argument("The silo's folder, made by `ringfence silo init`.")]
PORT = ("Serve on this port of 127.0.0.1, with a token. Default: on a Unix socket.", "Deployment")


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """A privacy budget, and what is noted beside it."""

    epsilon: float = offered(
        REQUIRED, "Privacy budget: the largest epsilon that all plans on the data may reach together.", "Privacy"
    )
    delta: float = offered(REQUIRED, "Delta of the privacy budget.", "Privacy")
    alone: float | None = offered(
        None,
        "For plans with a shuffler: the most epsilon against a server that colludes with the shuffler. Default: "
        "--epsilon.",
        "Privacy",
    )
    note: str = offered("", *NOTE, metavar="TEXT")
    unusual_budget: bool = offered(False, *UNUSUAL_BUDGET)

    def budget(self) -> "Budget":
        """Return the budget that the options describe."""
        from ringfence.silo.ledger.budget import Budget

        return Budget(self.epsilon, self.delta, anyone=self.alone)


@dataclass(frozen=True, kw_only=True)
class InitOptions(BudgetOptions):
    """A new silo: its name, data, privacy budget and door."""

    folder: Path = offered(REQUIRED, "The folder to create. An existing one must be empty.", argument=True)
    name: str = offered(REQUIRED, "The silo's name in plans.", "Basic")
    data: Path = offered(REQUIRED, "The silo's table, which stays where it is.", "Basic")
    schema: Path = offered(REQUIRED, *SCHEMA)
    same_data_as: Path | None = offered(
        None, "The ledger that these records already have, to continue it.", "Ledger", metavar="LEDGER"
    )
    new_beginning: str = offered("", *NEW_BEGINNING, metavar="REASON")
    port: int | None = offered(None, *PORT)
    courier_group: str | None = offered(
        None, "A group of users on this machine who may carry messages and read nothing else.", "Deployment"
    )


@app.command()
def init(options: InitOptions) -> Output:
    """Create a silo's folder: settings, ledger, privacy budget, keys.

    Examples:
      ringfence silo init north-silo --name north --data north.csv --schema schema.toml --epsilon 4 --delta 1e-6
    """
    from ringfence.silo.operator.setup import create_folder, make_settings

    settings = make_settings(
        name=options.name,
        data_file=str(options.data),
        schema_file=str(options.schema),
        ledger_file=None if options.same_data_as is None else str(options.same_data_as),
        port=options.port,
        courier_group=options.courier_group,
    )
    folder, granted = options.folder, options.budget()
    advice: list[str] = []
    created = create_folder(
        folder,
        settings,
        granted,
        note=options.note,
        unusual_budget=options.unusual_budget,
        new_beginning=options.new_beginning,
        advise=advice.append,
    )
    return Output(
        {"silo": options.name, "folder": str(created.path), "budget": granted.as_data(), "advice": advice},
        f"{folder} is ready: silo '{options.name}', privacy budget epsilon {options.epsilon:g} at delta "
        f"{options.delta:g}. It answers no plan until you approve one. Next: `ringfence silo review {folder} PLAN`, "
        f"then `ringfence silo serve {folder}`.",
        warnings=advice,
    )


@app.command()
def serve(folder: Folder, port: Annotated[int | None, option(*PORT)] = None) -> None:
    """Answer the rounds of approved plans, until stopped.

    Decisions that you make in the meantime take effect at once.

    Examples:
      ringfence silo serve north-silo
    """
    require_extra("serving", "A silo's agent", "starlette", "uvicorn")
    from ringfence.silo import agent

    silo_folder = opened(folder)
    agent.serve(silo_folder, port=port, ready=lambda where: say(f"silo '{silo_folder.name}' is served at {where}"))


@app.command()
def page(folder: Folder, port: int = offered(0, "Port on 127.0.0.1. Default: any free one.")) -> None:
    """Serve the operator's page to a browser on this machine.

    It shows the budget, waiting plans and the ledger, and has a stop button.

    Examples:
      ringfence silo page north-silo
    """
    require_extra("serving", "The operator's page", "starlette", "uvicorn")
    from ringfence.silo.operator import service as operator

    silo_folder = opened(folder)
    token = operator.token_path(silo_folder)
    operator.serve(
        silo_folder,
        port=port,
        ready=lambda address: say(
            f"silo '{silo_folder.name}': open {address} in a browser on this machine and enter the token from {token}"
        ),
    )


@app.command()
def review(folder: Folder, plan: PlanFile) -> Output:
    """Show what a plan would reveal, to whom and at what cost.

    Nothing is approved.

    Examples:
      ringfence silo review north-silo plan.json
    """
    from ringfence.protocol import load_plan
    from ringfence.silo.operator.decisions import review_plan

    result = review_plan(opened(folder), load_plan(plan))
    text, command = result.text(), ["ringfence", "silo", "approve", str(folder), str(plan)]
    if not result.objection:
        text += f"\n\n  {visible(shlex.join([*command, '--digest', result.plan.digest()]))}"
    return Output(result.data(), text)


@app.command()
def approve(
    folder: Folder,
    plan: PlanFile,
    digest: str = offered(
        REQUIRED, "The plan's digest as shown by the review, or its first 12 characters.", metavar="HEX"
    ),
    note: Note = "",
) -> Output:
    """Approve a reviewed plan and reserve its cost from the budget.

    Examples:
      ringfence silo approve north-silo plan.json --digest 5c1f0d2a9b7e
    """
    from ringfence.protocol import load_plan
    from ringfence.silo.operator.decisions import approve_plan, require_reviewed

    loaded = load_plan(plan)
    require_reviewed(loaded, digest)
    result = approve_plan(opened(folder), loaded, note=note)
    return Output(
        {"approved": result.plan.digest(), **result.data()},
        f"Approved plan {result.plan.digest()}: epsilon {result.own[0].epsilon:.4g} at delta "
        f"{result.own[0].delta:.2g} for each {result.plan.unit}. {result.use().words()}",
    )


@app.command()
def revoke(folder: Folder, which: Which, note: Note = "") -> Output:
    """Stop a plan at once; not even past answers are sent again.

    Examples:
      ringfence silo revoke north-silo 5c1f0d2a9b7e --note "asked by the ethics board"
    """
    return _end(folder, which, note, revoke=True)


@app.command()
def end(folder: Folder, which: Which, note: Note = "") -> Output:
    """End a plan and return the unused part of its reservation.

    Rounds that were answered can still be repeated; no new round is answered.

    Examples:
      ringfence silo end north-silo 5c1f0d2a9b7e
    """
    return _end(folder, which, note, revoke=False)


def _end(folder: Path, which: str, note: str, *, revoke: bool) -> Output:
    """End or revoke a plan at a silo, for `silo end` and `silo revoke`."""
    from ringfence.silo.operator.decisions import end_plan

    digest = end_plan(opened(folder), which, revoke=revoke, note=note)
    word = "revoked" if revoke else "ended"
    sentence = f"{word.capitalize()} plan {digest}: the silo answers no further round of it."
    return Output({word: digest}, sentence)


@app.command()
def budget(folder: Folder, options: BudgetOptions) -> Output:
    """Set the privacy budget of the silo's data.

    A larger budget needs a reason (--note). If you lower it, every running plan waits until you approve it again.

    Examples:
      ringfence silo budget north-silo --epsilon 6 --delta 1e-6 --note "a second study, approved on 3 May"
    """
    from ringfence.silo.operator.decisions import set_budget

    granted = options.budget()
    set_budget(opened(folder), granted, note=options.note, unusual_budget=options.unusual_budget)
    return Output({"budget": granted.as_data()}, f"The privacy budget is now {granted}.")


@app.command()
def status(folder: Folder) -> Output:
    """Show the budget, the guarantee, all plans and the agent.

    Examples:
      ringfence silo status north-silo
    """
    from ringfence.silo.operator.decisions import status as read_status

    silo_folder = opened(folder)
    found = read_status(silo_folder)
    end = f"ringfence silo end {shlex.quote(str(folder))} PLAN"
    return Output(
        found,
        *describe_summary(found, silo_folder.ledger_path, ending=end),
        "An agent is serving this folder." if found["serving"] else "No agent is serving this folder.",
        f"The silo signs its certificates with the key {found['public_key']}.",
        warnings=[f"No agent may answer from this folder. {found['objection']}"] if found["objection"] else (),
    )


@app.command()
def ledger(folder: Folder) -> Output:
    """List all entries of the silo's ledger."""
    from ringfence.silo.ledger.summary import describe_entry
    from ringfence.silo.operator.decisions import list_entries

    entries = list_entries(opened(folder))
    rows = [[e["number"], e["time"], e["kind"], describe_entry(e)] for e in entries]
    return Output({"entries": entries}, Table(["entry", "time", "kind", "about"], rows))


@app.command()
def certificate(folder: Folder, out: Path = offered(REQUIRED, "Write the certificate here (JSON).")) -> Output:
    """Export a signed certificate of everything ever released.

    Anybody can check it with `ringfence verify`.

    Examples:
      ringfence silo certificate north-silo --out north.certificate.json
    """
    from ringfence.silo.ledger.certificate import export

    require_folder(out)
    made = export(opened(folder), out)
    return Output(
        {"out": str(out), "silo": made.silo, "entries": len(made.entries), "public_key": made.public_key},
        f"{out} certifies {len(made.entries)} ledger entries of silo '{made.silo}'. Tell its readers your public key "
        f"through another channel: {made.public_key}.",
    )


def opened(folder: Path) -> "SiloFolder":
    """Open the silo's folder that a command is about; a plan may name the losses that its operator put there."""
    from ringfence.protocol.losses.custom import FOLDERS
    from ringfence.silo.folder import SiloFolder

    own = SiloFolder.open(folder)
    FOLDERS.add(own.path.absolute() / "losses")
    return own
