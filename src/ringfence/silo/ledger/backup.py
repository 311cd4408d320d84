"""Back up a silo's ledger, and restore a backup without forgetting anything.

Between two requests, a copy of the ledger's file is a complete backup; `back_up` makes one at any moment, and verifies
it. `restore` accepts only a copy that has every entry that the ledger is known to have had.
"""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

from ringfence.errors import LedgerDamagedError, LedgerError, LedgerWriteError, OutputError, SiloError
from ringfence.silo.folder import SiloFolder
from ringfence.silo.ledger.history import Account
from ringfence.silo.ledger.ledger import Ledger, watermark
from ringfence.storage.files import sync

_BESIDE = ("-journal", "-wal", "-shm")
"""Suffixes of SQLite's auxiliary files, which it would apply to any file of that name."""


def back_up(folder: SiloFolder, out: Path) -> Account:
    """Back up the ledger to a new file, even while an agent is serving; verify the copy and return its account."""
    with folder.ledger() as ledger:
        try:
            ledger.copy_to(out)
        except FileExistsError:
            raise OutputError(f"{out} already exists, and a backup overwrites nothing: name another file.") from None
        except (OSError, LedgerWriteError):
            raise OutputError(f"{out} cannot be written: name another place, or make room.") from None
    try:
        return _read(out)
    except BaseException:
        out.unlink()
        raise


def restore(folder: SiloFolder, backup: Path) -> tuple[Account, Path | None]:
    """Replace the silo's ledger by a backup; return its account, and the path under which the replaced one is kept.

    Refused, and nothing is changed, while an agent serves the folder; if the backup is damaged or another ledger's;
    and if it lacks an entry that the ledger is known to have had, by the file that is in place, as far as that can be
    read, or by the watermark.
    """
    staged = folder.ledger_path.with_name(f"{folder.ledger_path.name}.restoring")
    with folder.alone():
        try:
            _take(backup, staged)
            try:
                account = _read(staged)
            except LedgerError as problem:
                raise LedgerDamagedError(
                    f"{backup} cannot be restored; nothing was changed. "
                    f"{str(problem).replace(str(staged), str(backup))}"
                ) from None
            _require_newest(folder, backup, staged, account)
            replaced = _set_aside(folder.ledger_path)
            staged.rename(folder.ledger_path)
            sync(folder.path)
        except OSError as problem:
            raise SiloError(
                f"{backup} cannot be restored: {problem.filename}: {problem.strerror}. Fix that, then run the same "
                "command again."
            ) from None
        finally:
            _remove(staged)
        with folder.ledger() as ledger:
            return ledger.account(), replaced


def _read(path: Path) -> Account:
    """Return the account of a ledger's backup, or of the ledger to be replaced."""
    with Ledger.open(path, marked=False) as ledger:
        return ledger.account()


def _take(backup: Path, staged: Path) -> None:
    """Copy the backup and SQLite's journal or log beside it, as they are."""
    _remove(staged)
    os.close(os.open(staged, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    shutil.copyfile(backup, staged)
    for end in ("-journal", "-wal"):
        beside = backup.with_name(backup.name + end)
        if beside.exists():
            shutil.copyfile(beside, staged.with_name(staged.name + end))
    sync(staged)


def _require_newest(folder: SiloFolder, backup: Path, staged: Path, account: Account) -> None:
    """Raise LedgerError unless the backup is this silo's ledger and lacks no entry that is known."""
    if account.silo != folder.name:
        raise LedgerError(
            f"{backup} is a ledger of silo '{account.silo}', not of '{folder.name}'; nothing was changed."
        )
    known = []
    try:
        present = _read(folder.ledger_path)
    except LedgerError:  # lost or damaged, which is why it is restored
        pass
    else:
        if present.identity != account.identity:
            raise LedgerError(
                f"{backup} is not a copy of the ledger in {folder.path}: their first entries differ. Nothing was "
                "changed; find a backup of this ledger."
            )
        known.append((present.number, present.head))
    with watermark(account.identity, account.number, account.head) as mark:
        known.append(mark.read())
    with Ledger.open(staged, marked=False) as ledger:
        for number, hash in known:
            if not ledger.holds(number, hash):
                raise LedgerDamagedError(
                    f"{backup} ends with entry {account.number}, but the ledger is known to have had entry {number} "
                    f"with the hash {hash[:12]}, which is not in it: restoring it would forget what was released "
                    "since. Nothing was changed. Restore a later backup; if there is none, start a new ledger and say "
                    "why (`ringfence silo init ... --new-beginning REASON`)."
                )


def _set_aside(path: Path) -> Path | None:
    """Rename a ledger that a backup replaces, with SQLite's files beside it."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    aside = path.with_name(f"{path.name}.replaced-{moment}")
    for end in ("", *_BESIDE):
        present = path.with_name(path.name + end)
        if present.exists():
            present.rename(aside.with_name(aside.name + end))
    return aside if aside.exists() else None


def _remove(path: Path) -> None:
    """Remove the staged copy of a backup, with SQLite's files beside it."""
    for end in ("", *_BESIDE):
        path.with_name(path.name + end).unlink(missing_ok=True)
