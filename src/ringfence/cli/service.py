"""`ringfence silo service` and its like: write units with which systemd runs our processes for years."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_type_hints

from ringfence.cli import server, shuffler, silo
from ringfence.cli.options import option
from ringfence.cli.output import Output
from ringfence.planning.options import REQUIRED, offered

if TYPE_CHECKING:
    from ringfence.deployment.systemd import SystemdService

Out = Annotated[Path, option("Write the units to this folder.")]
_UNITS = Path("/etc/systemd/system")


def of_silo(
    folder: silo.Folder,
    kit: Path | None = offered(None, "The silo's startup kit. Also writes a unit for its courier."),
    page: int | None = offered(None, "Also write a unit for the operator's page, on this port.", metavar="PORT"),
    out: Out = _UNITS,
) -> Output:
    """Write hardened systemd units for the silo's agent and courier.

    Each service runs as the owner of its folder.

    Examples:
      ringfence silo service north-silo --kit north-kit --page 8780
    """
    from ringfence.deployment.systemd import Network, SystemdService, require_different_users

    own = silo.opened(folder)
    data = [Path(own.settings.data_file), Path(own.settings.schema_file)]
    behind_socket = own.settings.port is None
    agent = SystemdService(
        f"ringfence-agent-{own.name}",
        f"agent of silo {own.name}",
        ["silo", "serve", own.path],
        own.path,
        Network.NONE if behind_socket else Network.THIS_MACHINE,
        reads=data,
        group=own.settings.courier_group,
    )
    services = [agent]
    if kit is not None:
        kit = kit.absolute()
        courier = SystemdService(
            f"ringfence-courier-{own.name}",
            f"courier of silo {own.name}",
            ["silo", "courier", own.path, kit],
            kit,
            Network.ALL,
            reads=[own.path],
        )
        require_different_users(agent, courier)
        services.append(courier)
    if page is not None:
        services.append(
            SystemdService(
                f"ringfence-page-{own.name}",
                f"page of silo {own.name}'s operator",
                ["silo", "page", own.path, "--port", str(page)],
                own.path,
                Network.THIS_MACHINE,
                reads=data,
            )
        )
    return _write(services, out)


def of_shuffler(folder: shuffler.Folder, options: shuffler.ServeOptions, out: Out = _UNITS) -> Output:
    """Write a hardened systemd unit for the shuffler.

    The service runs as the owner of the shuffler's folder.

    Examples:
      ringfence shuffler service shuffler --port 8790
    """
    from ringfence.deployment.systemd import Network, SystemdService

    tls = {"--certificate": options.certificate, "--private-key": options.private_key}
    given = {option: path.absolute() for option, path in tls.items() if path is not None}
    folder = folder.absolute()
    command: list[str | Path] = ["shuffler", "serve", folder, "--host", options.host, "--port", str(options.port)]
    shown: list[str | Path] = [word for option, path in given.items() for word in (option, path)]
    one = SystemdService(
        "ringfence-shuffler",
        "shuffler",
        [*command, *shown],
        folder,
        Network.ALL if given else Network.THIS_MACHINE,
        reads=list(given.values()),
    )
    return _write([one], out)


def of_server(
    kit: Path = offered(REQUIRED, "The engine server's startup kit.", argument=True),
    run: list[str] | None = offered(
        None,
        "Arguments of `ringfence server run`, to write a unit for that run as well.",
        argument=True,
        metavar="-- RUN...",
    ),
    out: Out = _UNITS,
) -> Output:
    """Write hardened systemd units for the engine's server and a run.

    The services run as the owner of the kit.

    Examples:
      ringfence server service server-kit
      ringfence server service server-kit -- plan.json --folder run --engine nvflare --kit admin
    """
    from ringfence.deployment.systemd import Network, SystemdService

    kit = kit.absolute()
    engine = SystemdService(
        "ringfence-engine", "engine's server", ["server", "start", kit], kit, Network.ALL, together="ringfence-server"
    )
    return _write([engine, *([_conducted(run)] if run else [])], out)


def _conducted(run: Sequence[str]) -> "SystemdService":
    """Return the systemd service of a run; its options are read as `server run` will, so a mistake is found now."""
    from typer.main import get_command

    from ringfence.deployment.systemd import Network, SystemdService

    command = get_command(server.app).commands["run"]  # type: ignore[attr-defined]
    with command.make_context("run", list(run)) as context:
        given = context.params
    files = [given[name] for name, kind in get_type_hints(server.RunOptions).items() if kind in (Path, Path | None)]
    paths = {str(file): Path(file).absolute() for file in files if file is not None}
    folder = paths[str(given["folder"])]
    return SystemdService(
        f"ringfence-run-{folder.name}",
        f"run in {folder}",
        ["server", "run", *(str(paths.get(word, word)) for word in run)],
        folder,
        Network.ALL,
        reads=[path for path in paths.values() if path != folder],
        together="ringfence-server",
    )


def _write(services: "Sequence[SystemdService]", out: Path) -> Output:
    """Write systemd units, and return the commands that install them."""
    from ringfence.deployment.systemd import systemctl_commands, write_units

    files = write_units(services, out.absolute())
    steps = systemctl_commands(services, out.absolute())
    written = zip(files, services, strict=True)
    described = [f"{file}: ringfence {' '.join(map(str, one.command))}, as user '{one.user}'." for file, one in written]
    states = {one.user: one.state() for one in services}
    hints = [f"Run other commands of '{user}' with its state: XDG_STATE_HOME={state}" for user, state in states.items()]
    return Output(
        {"units": [str(file) for file in files], "next": steps},
        "\n".join([*described, "Next, as root:", *(f"  {step}" for step in steps), *hints]),
    )
