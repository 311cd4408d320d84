"""`ringfence server`: conduct a plan's rounds across silos that run by themselves."""

import json as json_format
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.evaluation import print_evaluation
from ringfence.cli.help import App
from ringfence.cli.output import (
    AsJson,
    print_json,
    print_result,
    print_table,
    progress,
    remark,
    require_folder,
    say,
    warn,
)
from ringfence.cli.reporting import Figures, Track, trackers
from ringfence.errors import DoorError, OutputError, TrainingError
from ringfence.storage.toml_files import read_toml

if TYPE_CHECKING:
    from ringfence.protocol.plan import Plan
    from ringfence.server.channels import Collect
    from ringfence.server.rounds import RoundOutcome
    from ringfence.transport.exchange import Exchange

_PATIENCE = 120.0
"""Seconds for which a shuffler that cannot be reached is tried again, as an engine's server is."""

app = App(help="Run plans across deployed silos.")


@app.command()
def run(
    plan: Annotated[Path, typer.Argument(help="The plan that the silos approved (JSON).")],
    folder: Annotated[
        Path, typer.Option(help="Folder of this run. Repeat the command to resume it.", rich_help_panel="Basic")
    ],
    doors: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=DOOR",
            help="A silo's door: its folder, its courier.toml or unix:PATH. Or a TOML file of doors.",
            rich_help_panel="Engine",
        ),
    ] = [],  # noqa: B006
    engine: Annotated[
        str,
        typer.Option(
            help="What carries the messages: nvflare, flower, or direct (to doors on this machine).",
            rich_help_panel="Engine",
        ),
    ] = "direct",
    kit: Annotated[
        Path | None, typer.Option(help="With nvflare: the administrator's startup kit.", rich_help_panel="Engine")
    ] = None,
    superlink: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With flower: a SuperLink in Flower's config.toml.", rich_help_panel="Engine"
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="How long a round waits for silos that do not answer.", rich_help_panel="Basic")
    ] = 60.0,
    quorum: Annotated[
        str,
        typer.Option(
            help="Fewest silos whose answers complete a round: a number, a share like 50%, or all.",
            rich_help_panel="Basic",
        ),
    ] = "1",
    patience: Annotated[
        int,
        typer.Option(
            help="How often a round without a quorum is asked again, and how many rounds a silo may miss before the "
            "server stops waiting for it.",
            rich_help_panel="Basic",
        ),
    ] = 3,
    shuffler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The shuffler: https://HOST:PORT, or http://127.0.0.1:PORT.",
            rich_help_panel="Shuffler",
        ),
    ] = None,
    shuffler_token: Annotated[
        Path | None, typer.Option(help="File with the shuffler's token.", rich_help_panel="Shuffler")
    ] = None,
    shuffler_certificate: Annotated[
        Path | None,
        typer.Option(
            help="Authorities that may sign the shuffler's certificate (PEM). Default: the system's.",
            rich_help_panel="Shuffler",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="The server's private key, from `ringfence server key`.", rich_help_panel="Shuffler"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the model here (JSON). Default: in the folder.", rich_help_panel="Output")
    ] = None,
    figures: Figures = None,
    track: Track = None,
    json: AsJson = False,
) -> None:
    """Run a plan round by round, and write the model and a report.

    If it is stopped or killed, repeat the command to resume. Plans of `evaluate` and `statistics` train nothing: they
    end with a report and no model.

    Examples:
      ringfence server run plan.json --folder run --doors north=north-silo --doors south=south-silo
      ringfence server run plan.json --folder run --engine nvflare --kit admin
    """
    from ringfence.model import Model
    from ringfence.protocol.plan import load_plan
    from ringfence.report.conducted import conducted_report, report
    from ringfence.server.conduct import Quorum, conduct, rounds_answered
    from ringfence.server.questions.evaluation import reported
    from ringfence.tracking import Recorder

    loaded = load_plan(plan)
    out = _model_file(loaded, out, folder)
    needed = Quorum.parse(quorum)
    if not (0 < seconds < math.inf and patience >= 0):
        raise TrainingError("--seconds must be positive, and --patience 0 or more.")
    collect = _collect(loaded, shuffler, shuffler_token, shuffler_certificate, key, seconds)
    recorder = Recorder(loaded, *trackers(track))
    with _exchange(engine, loaded, doors, kit, superlink) as exchange, progress() as bar:
        task = bar.add_task("rounds", total=loaded.rounds)

        def watch(outcome: "RoundOutcome") -> None:
            recorder(outcome)
            bar.advance(task)

        def waiting(round: int, silos: Sequence[str]) -> None:
            whom = f"for {_named('silo' if len(silos) == 1 else 'silos', silos)}" if silos else "for the shuffler"
            remark(bar, f"Round {round} is waiting {whom}.")

        try:
            trained = conduct(
                loaded,
                exchange,
                folder,
                seconds=seconds,
                quorum=needed,
                patience=patience,
                watch=watch,
                waiting=waiting,
                collect=collect,
            )
        except TrainingError as stuck:
            raise TrainingError(f"{stuck}{_why(exchange)}") from None
        except KeyboardInterrupt:
            warn(f"ringfence: interrupted. The run is kept in {folder}; repeat the command to resume it.")
            raise
    evaluation = reported(loaded, trained.findings)
    content = report(folder, trained)
    if out is not None:
        answered = rounds_answered(loaded, trained.history)
        _write(out, Model.of(loaded, trained.weights, answered, evaluation=evaluation).canonical())
    made = {"model": out, "report": folder / "report.json", "page": folder / "report.html"}
    _write(folder / "report.json", json_format.dumps(content, indent=2, allow_nan=False).encode() + b"\n")
    recorder.end(content["guarantees"])
    conducted_report(loaded, content, recorder.rounds).write(folder / "report.html", figures=figures)
    if json:
        print_json({**content, **{what: None if path is None else str(path) for what, path in made.items()}})
    else:
        if evaluation is not None:
            print_evaluation(evaluation)
            say()
        _print(content, made)


@app.command()
def key(
    out: Annotated[Path, typer.Option(help="Write the private key here. An existing key is kept.")],
    json: AsJson = False,
) -> None:
    """Make or show the key that silos seal their messages to.

    Only plans with a shuffler need it.

    Examples:
      ringfence server key --out server.key
    """
    from ringfence.deployment.batch_collector import make_key

    public = make_key(out)
    print_result(
        f"{out} holds the server's private key. The public key, for plans, is {public}.",
        {"key": str(out), "public_key": public},
        json=json,
    )


def _collect(
    plan: "Plan", address: str | None, token: Path | None, certificate: Path | None, key: Path | None, seconds: float
) -> "Collect | None":
    """Return the way to the shuffler, if the plan has one."""
    if not any(stage.channel.is_collected for stage in plan.stages):
        if (address, token, certificate, key) != (None, None, None, None):
            raise TrainingError("This plan has no shuffler: remove --key and the options of the shuffler.")
        return None
    if address is None or token is None or key is None:
        raise TrainingError("This plan has a shuffler: give --shuffler, --shuffler-token and --key.")
    from ringfence.deployment.batch_collector import collector
    from ringfence.deployment.shuffler_client import ShufflerClient

    client = ShufflerClient.read(address, token, certificate=certificate, patience=_PATIENCE)
    return collector(plan, client, key, seconds)


def _exchange(
    engine: str, plan: "Plan", doors: Sequence[str], kit: Path | None, superlink: str | None
) -> "AbstractContextManager[Exchange]":
    """Return the engine's exchange. An engine is one more case here, and all of it is behind `transport.exchange`."""
    if engine == "direct":
        from ringfence.deployment.door import Door
        from ringfence.transport.direct import DirectExchange

        places = _places(doors)
        unknown = [name for name in places if plan.terms(name) is None]
        missing = [terms.name for terms in plan.silos if terms.name not in places]
        if unknown or missing:
            wrong = [_named("missing", missing), _named("not in the plan", unknown)]
            raise DoorError(
                f"Give one door for each silo of the plan, as --doors NAME=FOLDER: {'; '.join(filter(None, wrong))}."
            )
        return DirectExchange(
            {
                name: Door(place, patience=0) if place.startswith("unix:") else Door.read(Path(place), patience=0)
                for name, place in places.items()
            }
        )
    if engine == "nvflare":
        from ringfence.deployment.nvflare.engine import NvflareExchange

        if kit is None or doors:
            raise TrainingError(
                "The engine nvflare needs --kit, the administrator's startup kit, and takes no --doors."
            )
        return NvflareExchange(kit, [terms.name for terms in plan.silos], tell=warn)
    if engine == "flower":
        from ringfence.deployment.flower.engine import FlowerExchange

        if superlink is None or doors:
            raise TrainingError(
                "The engine flower needs --superlink, a name in Flower's config.toml, and takes no --doors."
            )
        return FlowerExchange(superlink, tell=warn)
    raise TrainingError(f"There is no engine '{engine}': choose direct, nvflare or flower.")


def _model_file(plan: "Plan", out: Path | None, folder: Path) -> Path | None:
    """Return where the model is to be written, if the plan trains one."""
    if not plan.steps:
        if out is not None:
            raise TrainingError("This plan trains no model, so there is nothing to write: remove --out.")
        return None
    out = out or folder / "model.json"
    if out.parent != folder:
        require_folder(out)
    return out


def _why(exchange: "Exchange") -> str:
    """Say what the doors of silent silos said, as far as an engine knows."""
    from ringfence.transport.direct import DirectExchange

    problems = exchange.problems() if isinstance(exchange, DirectExchange) else {}
    return "".join(f" {name}: {problem}" for name, problem in list(problems.items())[:3])


def _named(what: str, names: Sequence[str]) -> str:
    return f"{what} {', '.join(names[:5])}{' and more' if len(names) > 5 else ''}" if names else ""


def _places(options: Sequence[str]) -> dict[str, str]:
    """Read NAME=DOOR options, and files of them; paths in a file are relative to it."""
    places: dict[str, str] = {}
    for option in options:
        name, equals, place = option.partition("=")
        found = {name: place} if equals and name and place else _file_of_doors(Path(option))
        for name, place in found.items():
            if name in places:
                raise DoorError(f"Silo '{name}' has two doors: give one.")
            places[name] = place
    return places


def _file_of_doors(path: Path) -> dict[str, str]:
    try:
        content: dict[str, Any] = read_toml(path)
    except OSError as problem:
        raise DoorError(f"'{path}' is neither NAME=DOOR nor a readable file of doors ({problem.strerror}).") from None
    except ValueError as problem:
        raise DoorError(f"{path} is not valid TOML: {problem}.") from None
    if not all(isinstance(place, str) for place in content.values()):
        raise DoorError(f'{path} must hold lines like clinic = "folders/clinic", one per silo.')
    return {name: _beside(path, place) for name, place in content.items()}


def _beside(path: Path, place: str) -> str:
    """Return a door that a file names; pathlib keeps what is absolute as it is."""
    kind = "unix:" if place.startswith("unix:") else ""
    return f"{kind}{path.parent / place.removeprefix(kind)}"


def _write(path: Path, content: bytes) -> None:
    """Write a file of the run, so that a reader never sees half a model."""
    from ringfence.report.page import write_whole

    try:
        write_whole(path, content)
    except OSError as problem:
        raise OutputError(
            f"{path} could not be written ({problem.strerror}). The run is kept: repeat the command to write it."
        ) from None


def _print(content: dict[str, Any], made: dict[str, Path | None]) -> None:
    print_table(
        ["silo", f"{content['unit']}s", "rounds", "claimed epsilon", "claimed delta"],
        [
            [name, silo["records"], f"{silo['answered']}/{len(content['rounds'])}", claim["epsilon"], claim["delta"]]
            for name, silo in content["silos"].items()
            for claim in silo["claimed"][:1]
        ],
    )
    files = "".join(f"\n{what} {path}" for what, path in made.items() if path is not None)
    say(f"\n{content['guarantees']}\n\nplan {content['plan']}{files}")
