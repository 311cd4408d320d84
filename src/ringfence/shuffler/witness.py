"""A witness outside a shuffler's folder: how far the folder has come, so that an older copy of it is noticed.

A shuffler promises one batch per round. An older copy of its database has forgotten batches that the server holds, and
would mix a second one, perhaps with a silo more: the difference would show what that silo sent. So the process that
serves a folder keeps, in its user's state folder, how many decisions (a round's batch, a plan's end) the database has
made. A batch leaves after the witness knows of it, and nothing leaves a database that has made fewer than its witness
knows, or whose witness is gone.

What this does not see: state folder and database put back together, as with a picture of a whole machine; and a copy
from before the folder had a witness, served where no witness is.
"""

from ringfence.errors import WHY, ShufflerError, os_error_as
from ringfence.shuffler.sealing import public_key
from ringfence.shuffler.store import Store
from ringfence.storage.files import make_folder, replace_private, state_folder


class Witness:
    """The witness of a shuffler's folder, for the user who serves it."""

    def __init__(self, store: Store) -> None:
        """Name the witness's file, outside the shuffler's folder, by the shuffler's public key."""
        self._store, self._folder = store, store.folder
        self._file = state_folder() / "shufflers" / public_key(store.key)
        self._way_out = f"end all its plans for good with `ringfence shuffler restore {store.folder}`"

    def check(self) -> None:
        """Raise ShufflerError if the shuffler's database is older than its witness or has lost it; in a transaction."""
        seen, decisions = self.seen(), self._store.decisions()
        if seen is None and self._store.was_witnessed():
            raise ShufflerError(
                f"{self._folder} was served before, but {self._file}, which records how far it came, is missing: this "
                "may be an older copy, or another user or machine. Serve it where it was served before; or, to "
                f"continue here, {self._way_out}."
            )
        if seen is not None and decisions < seen:
            raise ShufflerError(
                f"{self._folder} is an older copy: it has made {decisions} decisions, but {self._file} knows of "
                f"{seen}. It would mix second batches of the same rounds. Restore the newest copy; or, if that is "
                f"lost, {self._way_out}."
            )

    def note(self, decisions: int) -> None:
        """Let the witness know how many decisions the shuffler's database has made, durably."""
        seen = self.seen()
        if seen is not None and seen >= decisions:
            return
        with os_error_as(
            ShufflerError,
            f"{self._file} cannot be written ({WHY}), and without it an older copy of the folder "
            "would not be noticed: nothing is released. Make room, or let this user write there.",
        ):
            make_folder(self._file.parent, 0o700)
            replace_private(self._file, str(decisions).encode())

    def seen(self) -> int | None:
        """Return how many decisions the witness knows of; None if it has never seen the shuffler's folder."""
        try:
            text = self._file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError):
            text = ""
        if not text.isdecimal():
            raise ShufflerError(
                f"{self._file} does not say how far {self._folder} came. Restore it; or delete it and {self._way_out}."
            )
        return int(text)
