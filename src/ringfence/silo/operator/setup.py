"""Setting up a silo's folder: settings, ledger, keys and door, on its operator's decision."""

import secrets
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from ringfence.errors import WHY, RecordsError, SiloError, os_error_as
from ringfence.protocol import explain
from ringfence.protocol.plan.checks import name_problem
from ringfence.protocol.schema.schema import load_roles
from ringfence.silo.folder import SiloFolder, SiloSettings
from ringfence.silo.ledger import custody
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator.usual_budgets import require_usual
from ringfence.silo.records.records import DataSet
from ringfence.silo.records.repeated_persons import PersonAdvice
from ringfence.storage.files import make_folder, read_key, write_private, write_token, write_whole
from ringfence.storage.toml_files import toml_text


def make_settings(**given: str | int | None) -> SiloSettings:
    """Return valid settings for a silo's folder, or raise SiloError that explains what is wrong."""
    try:
        settings = SiloSettings.model_validate(given)
    except ValidationError as refused:
        raise SiloError(f"A silo cannot be set up like this: {explain(refused)}.") from None
    if problem := name_problem(settings.name):
        raise SiloError(f"A silo cannot be set up like this: its name {problem}.")
    return settings


def create_folder(
    folder: Path,
    settings: SiloSettings,
    budget: Budget,
    *,
    note: str = "",
    unusual_budget: bool = False,
    new_beginning: str = "",
    advise: Callable[[str], object] = lambda _: None,
) -> SiloFolder:
    """Set up a silo's folder. The data must be readable with the schema; nothing that exists is overwritten.

    An offset, exposure or weight that the silo's own schema names must lie within its bounds: only the operator
    sees this error, and no plan's author has chosen the column.

    Unless `unusual_budget`, the budget must protect somebody (`require_usual`). Data that already has a ledger is
    refused, unless the settings name that ledger, or `new_beginning` says why there should be another. `advise` is
    called with what the operator alone should know about the persons in it.
    """
    settings = settings.model_copy(
        update={
            "data_file": str(Path(settings.data_file).absolute()),
            "schema_file": str(Path(settings.schema_file).absolute()),
            "ledger_file": settings.ledger_file and str(Path(settings.ledger_file).resolve()),
        }
    )
    made = SiloFolder(folder.absolute(), settings)
    made.require_closed()  # a group that does not exist is found before anything is written
    persons = PersonAdvice(made.columns())
    records = made.records(persons.add)
    for problem in records.clamped_parts(load_roles(Path(settings.schema_file)), None):
        raise RecordsError(problem)
    for sentence in persons.sentences():
        advise(sentence)
    if not unusual_budget:
        require_usual(budget.limits, len(records))
    made.require_closed(*made.data_files())
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SiloError(f"{folder} already exists and is not an empty folder: name a new folder for the silo.")
    with os_error_as(SiloError, f"The folder {folder} cannot be set up: {WHY}."):
        make_folder(folder, 0o700)
        folder.chmod(0o700)
        made.open_to_couriers(folder, 0o710)
        _begin_ledger(made, records, budget, note, new_beginning)
        write_whole(made.key_path, _first_key(made).hex().encode() + b"\n")
        write_token(made.token_path)
        made.open_to_couriers(made.token_path, 0o640)
        made.tell_couriers(settings.port)
        # Last: a folder without it was not finished, and is refused.
        write_private(folder / "silo.toml", toml_text(settings.model_dump(exclude_none=True)).strip().encode())
    return made


def _begin_ledger(made: SiloFolder, records: DataSet, budget: Budget, note: str, new_beginning: str) -> None:
    """Create the ledger of a new silo folder, or join the ledger file that its settings name."""
    if made.settings.ledger_file is None:
        custody.create_ledger(
            made.ledger_path,
            records.marks,
            silo=made.name,
            budget=budget,
            note=note,
            reason=new_beginning,
            settled=True,
        ).close()
        return
    with custody.join_ledger(made.ledger_path, records.marks, silo=made.name) as ledger:
        if ledger.account().budget != budget:
            ledger.grant(budget, note=note)


def _first_key(made: SiloFolder) -> bytes:
    """Return a new key, or that of the folder whose ledger this one joins: a head signed by one binds the other."""
    beside = made.ledger_path.with_name(made.key_path.name)
    if made.settings.ledger_file is not None and beside.exists():
        return read_key(beside, SiloError)
    return secrets.token_bytes(32)  # any 32 bytes are an Ed25519 private key (RFC 8032, 5.1.5)
