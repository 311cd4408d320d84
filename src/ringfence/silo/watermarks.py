"""Where the watermarks of this user's ledgers are: in the state folder, apart from the ledgers themselves."""

from ringfence.errors import LedgerDamagedError, LedgerError, LedgerWriteError
from ringfence.storage.kind import Kind
from ringfence.storage.state_folder import state_folder
from ringfence.storage.watermark import Watermark

_MARK = Kind(
    "watermark",
    LedgerError,
    unwritable=LedgerWriteError,
    damaged=LedgerDamagedError,
    if_damaged="It says how far a ledger had come, so nothing is released. Compare the ledger's last entry with its "
    "newest certificate or with the server's transcript; if nothing is missing from it, delete the watermark.",
)


def watermark(ledger: str, number: int, hash: str) -> Watermark:
    """Open the watermark of the ledger that is known by that hash; made now, it says that it has come so far."""
    try:
        folder = state_folder()
    except OSError as problem:
        raise LedgerWriteError(
            f"The ledger's watermark cannot be stored: {problem.filename}: {problem.strerror}. Set XDG_STATE_HOME to "
            "a folder that this user may write to."
        ) from None
    return Watermark(folder / "heads" / ledger, _MARK, (number, hash))
