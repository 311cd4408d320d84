"""A silo's folder: where its settings, ledger, keys and door are, and who may read them.

    silo.toml      name, data file, schema file, the port if the door is one, and the ledger if it is elsewhere
    NAME.ledger    everything that was ever allowed and released
    signing.key    Ed25519 private key that signs the silo's certificates
    operator.token what the operator must enter at the page, made when that is first served
    plans/         plans that wait for the operator's decision
    agent.lock     held by the one agent that serves the folder
    decisions.log  what the agent decided, one line each, and older files of it (decisions.log.1, ...)
    door.sock      the agent's door, if it is not a port
    door.token     what a courier must show at a port
    courier.toml   all that a courier must know: the door, and where its token is

The folder is closed to other users. A courier of another user is let in by its group, to the last three only.
"""

import grp
import os
import shlex
import stat
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError

from ringfence import sources
from ringfence.errors import WHY, SiloError, os_error_as
from ringfence.protocol import Public, SiloName, explain, load_columns
from ringfence.protocol.schema.schema import TableColumns
from ringfence.silo.gate.limits import Limits
from ringfence.silo.ledger import custody
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.reading import Watch
from ringfence.silo.records.records import DataSet, load_data_set
from ringfence.silo.records.storage import PRECISIONS, Keeping
from ringfence.storage.files import (
    read_key,
    read_token,
    require_known_format,
    served_alone,
    write_private,
)
from ringfence.storage.toml_files import read_toml, toml_text


class SiloSettings(Public):
    """The content of silo.toml. Without a `port`, the door is a Unix socket in the folder.

    `round_seconds` and `round_memory`, in MB, are the most that a round may take on this machine (`silo.gate.limits`).

    `precision` says how records are kept, and `kept_in` where: in memory, or in files without a name in the folder, for
    a table that is larger than memory (`silo.records.storage`).

    `ledger_file` names a ledger outside the folder: that of data which had one before.
    """

    format: Literal[1] = 1
    name: SiloName
    data_file: str = Field(min_length=1)
    schema_file: str = Field(min_length=1)
    ledger_file: str | None = Field(default=None, min_length=1)
    port: int | None = Field(default=None, ge=0, le=65535)
    courier_group: str | None = Field(default=None, min_length=1)
    round_seconds: float | None = Field(default=None, gt=0)
    round_memory: float | None = Field(default=None, gt=0)
    precision: Literal["double", "single"] | None = None
    kept_in: Literal["memory", "files"] | None = None


@dataclass(frozen=True)
class SiloFolder:
    """A silo's folder that has been set up."""

    path: Path
    settings: SiloSettings

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read the settings of a silo's folder."""
        path = folder / "silo.toml"
        try:
            content = read_toml(path)
            newest = SiloSettings.newest_format
            require_known_format(f"silo's folder ({path})", content.get("format"), newest, SiloError)
            settings = SiloSettings.model_validate(content)
        except OSError as problem:
            raise SiloError(
                f"{folder} is not a silo's folder, or this user may not read it ({problem.strerror}): `ringfence silo "
                "init` makes one."
            ) from None
        except ValidationError as refused:
            raise SiloError(f"{path} is not valid: {explain(refused)}.") from None
        except ValueError as problem:
            raise SiloError(f"{path} is not valid TOML: {problem}.") from None
        return cls(folder.absolute(), settings)

    @property
    def name(self) -> str:
        """The name that plans give the silo of this folder."""
        return self.settings.name

    @property
    def ledger_path(self) -> Path:
        """The ledger's file, in the silo's folder or as its settings say."""
        elsewhere = self.settings.ledger_file
        return self.path / f"{self.name}.ledger" if elsewhere is None else Path(elsewhere)

    @property
    def key_path(self) -> Path:
        """The file of the private key in the silo's folder."""
        return self.path / "signing.key"

    @property
    def token_path(self) -> Path:
        """The file of the door's token in the silo's folder."""
        return self.path / "door.token"

    @property
    def socket_path(self) -> Path:
        """The agent's door in the silo's folder, where it is a socket."""
        return self.path / "door.sock"

    def columns(self) -> TableColumns:
        """Read the public schema that the silo's folder names."""
        data = Path(self.settings.data_file)
        return load_columns(Path(self.settings.schema_file), lambda: sources.header(data))

    def records(self, watch: Watch = lambda chunk: None) -> DataSet:
        """Read the records that the silo's folder names."""
        own, columns = self.settings, self.columns()
        in_files = own.kept_in == "files" and self.path.is_dir()  # in memory until the folder exists
        keeping = Keeping(PRECISIONS[own.precision or "double"], self.path if in_files else None)
        return load_data_set(Path(own.data_file), columns, keeping, watch)

    def data_files(self) -> list[Path]:
        """Return all files that the records of the silo's folder are read from."""
        return sources.files(Path(self.settings.data_file))

    def current_records(self, ledger: Ledger, watch: Watch = lambda chunk: None) -> DataSet:
        """Read the silo's records; RegistryError if they are not those of its ledger (`custody.were_moved`)."""
        version = ledger.account().version
        records = self.records(watch)
        records.were_moved = custody.were_moved(ledger, records.marks)
        records.version = version
        return records

    def ledger(self) -> Ledger:
        """Open and verify the ledger of the silo's folder, which must be this silo's."""
        return Ledger.open(self.ledger_path, owner=self.name)

    def token(self) -> str:
        """Return the secret that a courier must show at the silo's port."""
        return read_token(self.token_path, SiloError)

    def key(self) -> bytes:
        """Return the 32 bytes of the Ed25519 private key in the silo's folder."""
        return read_key(self.key_path, SiloError)

    def alone(self) -> AbstractContextManager[None]:
        """Lock the silo's folder for one agent; the lock ends with the process, however that ends."""
        return served_alone(self.path / "agent.lock", SiloError, patience=1.0)  # `is_served` may hold it for a moment

    def is_served(self) -> bool:
        """Tell whether an agent holds the folder."""
        try:
            with served_alone(self.path / "agent.lock", SiloError):
                return False
        except SiloError:
            return True

    def tell_couriers(self, port: int | None) -> None:
        """Write the door's address into courier.toml in the silo's folder."""
        door: dict[str, str | int] = {"format": 1, "socket": self.socket_path.name}
        if port is not None:
            door = {"format": 1, "port": port, "token_file": self.token_path.name}
        unfinished = self.path / "courier.toml.new"
        unfinished.unlink(missing_ok=True)
        write_private(unfinished, _toml(door))
        self.open_to_couriers(unfinished, 0o640)
        unfinished.replace(self.path / "courier.toml")

    def open_to_couriers(self, path: Path, mode: int) -> None:
        """Give the path to the couriers' group, with this mode; without a group, leave it closed."""
        group = self._courier_group
        if group is not None:
            os.chown(path, -1, group)
            path.chmod(mode)

    def require_closed(self, *paths: Path) -> None:
        """Raise SiloError if couriers of another user could read one of the files, by its mode and group."""
        group = self._courier_group
        for path in paths if group is not None else ():
            with os_error_as(SiloError, f"{path} cannot be checked: {WHY}."):
                status = path.stat()
            readable = stat.S_IRGRP if status.st_gid == group else stat.S_IROTH
            if status.st_mode & readable:
                raise SiloError(
                    f"{path} may be read by the group '{self.settings.courier_group}', which should carry messages "
                    f"and read nothing: run `chmod 600 {shlex.quote(str(path))}` first."
                )

    @property
    def limits(self) -> Limits:
        """The time and memory that a round may take, by the silo's settings."""
        given = {"seconds": self.settings.round_seconds, "megabytes": self.settings.round_memory}
        return Limits(**{name: limit for name, limit in given.items() if limit is not None})

    @property
    def _courier_group(self) -> int | None:
        """Return the number of the couriers' group in the silo's settings; SiloError if there is no such group."""
        group = self.settings.courier_group
        if group is None:
            return None
        try:
            return grp.getgrnam(group).gr_gid
        except KeyError:
            raise SiloError(
                f"There is no group '{group}' on this machine; make it, or leave --courier-group out."
            ) from None


def _toml(content: dict[str, str | int]) -> bytes:
    """Return the content of silo.toml or courier.toml, to be written into the silo's folder."""
    return toml_text(content).strip().encode()  # `write_private` ends the last line
