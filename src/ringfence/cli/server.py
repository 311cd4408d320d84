"""`ringfence server`: conduct a plan's rounds across silos that run by themselves."""

import json
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.cli.evaluation import describe_evaluation
from ringfence.cli.options import App
from ringfence.cli.output import Output, Table, remark, require_folder, warn
from ringfence.cli.training import TrackingOptions
from ringfence.errors import WHY, DoorError, OutputError, TrainingError, os_error_as, require_extra
from ringfence.federation.progress import progress
from ringfence.planning.options import REQUIRED, offered
from ringfence.storage.toml_files import read_toml

if TYPE_CHECKING:
    from ringfence.protocol import Plan
    from ringfence.server.channels import Collect
    from ringfence.server.rounds import RoundOutcome
    from ringfence.transport.exchange import Exchange

_PATIENCE = 120.0
"""Seconds for which a shuffler that cannot be reached is tried again, as an engine's server is."""

app = App(help="Run plans across deployed silos.")


@dataclass(frozen=True, kw_only=True)
class RunOptions(TrackingOptions):
    """A plan, the silos' doors or engine, the shuffler, and how long to wait."""

    plan: Path = offered(REQUIRED, "The plan that the silos approved (JSON).", argument=True)
    folder: Path = offered(REQUIRED, "Folder of this run. Repeat the command to resume it.", "Basic")
    doors: Sequence[str] = offered(
        (),
        "A silo's door: its folder, its courier.toml or unix:PATH. Or a TOML file of doors.",
        "Engine",
        metavar="NAME=DOOR",
    )
    engine: str = offered(
        "direct", "What carries the messages: nvflare, flower, or direct (to doors on this machine).", "Engine"
    )
    kit: Path | None = offered(None, "With nvflare: the administrator's startup kit.", "Engine")
    superlink: str | None = offered(None, "With flower: a SuperLink in Flower's config.toml.", "Engine", metavar="NAME")
    seconds: float = offered(60.0, "How long a round waits for silos that do not answer.", "Basic")
    quorum: str = offered(
        "1", "Fewest silos whose answers complete a round: a number, a share like 50%, or all.", "Basic"
    )
    patience: int = offered(
        3,
        "How often a round without a quorum is asked again, and how many rounds a silo may miss before the server "
        "stops waiting for it.",
        "Basic",
    )
    shuffler: str | None = offered(
        None, "The shuffler: https://HOST:PORT, or http://127.0.0.1:PORT.", "Shuffler", metavar="ADDRESS"
    )
    shuffler_token: Path | None = offered(None, "File with the shuffler's token.", "Shuffler")
    shuffler_certificate: Path | None = offered(
        None, "Authorities that may sign the shuffler's certificate (PEM). Default: the system's.", "Shuffler"
    )
    key: Path | None = offered(None, "The server's private key, from `ringfence server key`.", "Shuffler")
    out: Path | None = offered(None, "Write the model here (JSON). Default: in the folder.", "Output")


@app.command()
def run(options: RunOptions) -> Output:
    """Run a plan round by round, and write the model and a report.

    If it is stopped or killed, repeat the command to resume. Plans of `evaluate` and `statistics` train nothing: they
    end with a report and no model.

    Examples:
      ringfence server run plan.json --folder run --doors north=north-silo --doors south=south-silo
      ringfence server run plan.json --folder run --engine nvflare --kit admin
    """
    from ringfence.evidence.report.run_report import run_report, run_report_page
    from ringfence.federation.tracking import Recorder
    from ringfence.model.model import Model
    from ringfence.protocol import load_plan
    from ringfence.server.conduct import Quorum, conduct, rounds_answered
    from ringfence.server.queries.evaluation import evaluation_of_run

    plan, folder = load_plan(options.plan), options.folder
    out = _model_file(plan, options.out, folder)
    quorum = Quorum.parse(options.quorum)
    if not (0 < options.seconds < math.inf and options.patience >= 0):
        raise TrainingError("--seconds must be positive, and --patience 0 or more.")
    collect = _collect(plan, options)
    recorder = Recorder(plan, *options.trackers())
    with _exchange(plan, options) as exchange, progress() as bar:
        task = bar.add_task("rounds", total=plan.rounds)

        def watch(outcome: "RoundOutcome") -> None:
            """Record a finished round of `server run`, and advance its progress bar."""
            recorder(outcome)
            bar.advance(task)

        def waiting(round: int, silos: Sequence[str]) -> None:
            """Print which silos, or the shuffler, a round of `server run` is waiting for."""
            whom = f"for {_named('silo' if len(silos) == 1 else 'silos', silos)}" if silos else "for the shuffler"
            remark(bar, f"Round {round} is waiting {whom}.")

        try:
            trained = conduct(
                plan,
                exchange,
                folder,
                seconds=options.seconds,
                quorum=quorum,
                patience=options.patience,
                watch=watch,
                waiting=waiting,
                collect=collect,
            )
        except TrainingError as stuck:
            raise TrainingError(f"{stuck}{_why(exchange)}") from None
        except KeyboardInterrupt:
            warn(f"ringfence: interrupted. The run is kept in {folder}; repeat the command to resume it.")
            raise
    evaluation = evaluation_of_run(plan, trained.findings)
    content = run_report(folder, trained, evaluation)
    if out is not None:
        answered = rounds_answered(plan, trained.history)
        _write(out, Model.of(plan, trained.weights, answered, knots=trained.knots, evaluation=evaluation).canonical())
    made = {"model": out, "report": folder / "report.json", "page": folder / "report.html"}
    _write(folder / "report.json", json.dumps(content, indent=2, allow_nan=False).encode() + b"\n")
    recorder.end(content["guarantees"])
    page = run_report_page(plan, content, recorder.rounds, evaluation)
    page.write(folder / "report.html", svg=options.svg)
    asked = len(content["rounds"])
    files = "".join(f"\n{what} {path}" for what, path in made.items() if path is not None)
    return Output(
        {**content, **{what: None if path is None else str(path) for what, path in made.items()}},
        *([] if evaluation is None else [*describe_evaluation(evaluation), ""]),
        Table(
            ["silo", f"{content['unit']}s", "rounds", "claimed epsilon", "claimed delta"],
            [
                [name, silo["records"], f"{silo['answered']}/{asked}", claim["epsilon"], claim["delta"]]
                for name, silo in content["silos"].items()
                for claim in silo["claimed"][:1]
            ],
        ),
        f"\n{content['guarantees']}\n\nplan {content['plan']}{files}",
    )


@app.command()
def key(out: Path = offered(REQUIRED, "Write the private key here. An existing key is kept.")) -> Output:
    """Make or show the key that silos seal their messages to.

    Only plans with a shuffler need it.

    Examples:
      ringfence server key --out server.key
    """
    from ringfence.deployment.batch_collector import make_key

    public = make_key(out)
    return Output(
        {"key": str(out), "public_key": public},
        f"{out} holds the server's private key. The public key, for plans, is {public}.",
    )


def _collect(plan: "Plan", options: RunOptions) -> "Collect | None":
    """Return the way to the shuffler, if the plan has one."""
    address, token, key = options.shuffler, options.shuffler_token, options.key
    if not any(stage.channel.is_collected for stage in plan.stages):
        if (address, token, options.shuffler_certificate, key) != (None, None, None, None):
            raise TrainingError("This plan has no shuffler: remove --key and the options of the shuffler.")
        return None
    if address is None or token is None or key is None:
        raise TrainingError("This plan has a shuffler: give --shuffler, --shuffler-token and --key.")
    from ringfence.deployment.batch_collector import collector
    from ringfence.deployment.shuffler_client import ShufflerClient

    client = ShufflerClient.read(address, token, certificate=options.shuffler_certificate, patience=_PATIENCE)
    return collector(plan, client, key, options.seconds)


def _exchange(plan: "Plan", options: RunOptions) -> "AbstractContextManager[Exchange]":
    """Return the engine's exchange. An engine is one more case here, and all of it is behind `transport.exchange`."""
    engine, doors = options.engine, options.doors
    if engine == "direct":
        from ringfence.deployment.door import Door
        from ringfence.transport.exchange import DirectExchange

        places = _places(doors)
        unknown = [name for name in places if plan.terms(name) is None]
        missing = [terms.name for terms in plan.silos if terms.name not in places]
        if unknown or missing:
            wrong = [_named("missing", missing), _named("not in the plan", unknown)]
            raise DoorError(
                f"Give one door for each silo of the plan, as --doors NAME=FOLDER: {'; '.join(filter(None, wrong))}."
            )
        door = {
            name: Door(place, patience=0) if place.startswith("unix:") else Door.read(Path(place), patience=0)
            for name, place in places.items()
        }
        return DirectExchange({name: door[name].ask for name in places})
    if engine == "nvflare":
        require_extra("deployment", "The engine nvflare", "nvflare")
        from ringfence.deployment.nvflare.exchange import NvflareExchange

        if options.kit is None or doors:
            raise TrainingError(
                "The engine nvflare needs --kit, the administrator's startup kit, and takes no --doors."
            )
        return NvflareExchange(options.kit, [terms.name for terms in plan.silos], tell=warn)
    if engine == "flower":
        require_extra("flower", "The engine flower", "flwr")
        from ringfence.deployment.flower.exchange import FlowerExchange

        if options.superlink is None or doors:
            raise TrainingError(
                "The engine flower needs --superlink, a name in Flower's config.toml, and takes no --doors."
            )
        return FlowerExchange(options.superlink, tell=warn)
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
    """Return what the doors of silent silos said, as far as the server's engine knows."""
    from ringfence.transport.exchange import DirectExchange

    problems = exchange.problems if isinstance(exchange, DirectExchange) else {}
    return "".join(f" {name}: {problem}" for name, problem in list(problems.items())[:3])


def _named(what: str, names: Sequence[str]) -> str:
    """Return the first five names after what they are, for messages of `server run`."""
    return f"{what} {', '.join(names[:5])}{' and more' if len(names) > 5 else ''}" if names else ""


def _places(options: Sequence[str]) -> dict[str, str]:
    """Read NAME=DOOR options of `server run`, and files of them; paths in a file are relative to it."""
    places: dict[str, str] = {}
    for text in options:
        name, equals, place = text.partition("=")
        found = {name: place} if equals and name and place else _file_of_doors(Path(text))
        for name, place in found.items():
            if name in places:
                raise DoorError(f"Silo '{name}' has two doors: give one.")
            places[name] = place
    return places


def _file_of_doors(path: Path) -> dict[str, str]:
    """Read a TOML file of silos' doors, which `server run` takes in place of NAME=DOOR."""
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
    """Write a file of the server's run, so that a reader never sees half a model."""
    from ringfence.evidence.report.page import write_whole

    with os_error_as(
        OutputError, f"{path} could not be written ({WHY}). The run is kept: repeat the command to write it."
    ):
        write_whole(path, content)
