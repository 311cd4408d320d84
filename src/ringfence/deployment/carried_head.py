"""The latest head of a silo's ledger that a courier carried, in the state folder of the courier's own user.

It is a help and no more: whatever is lost, damaged or cannot be written here is passed over, and nothing else is lost
with it. A courier checks no signature. It can forge no head, and one that is not the silo's own proves nothing to it.
"""

import hashlib
import json
import os
from contextlib import suppress

from ringfence.storage.private_files import replace_private
from ringfence.storage.state_folder import state_folder

_BEGIN, _END = b'"head":{', b"}"
_LONGEST = 1024


class CarriedHead:
    """The latest head that came out of one door."""

    def __init__(self, door: str) -> None:
        self._name = hashlib.sha256(os.fsencode(door)).hexdigest()

    def read(self) -> str:
        """Return the head as it came, or nothing."""
        with suppress(OSError):
            with (state_folder() / "couriers" / self._name).open("rb") as file:
                content = file.read(_LONGEST + 1)
            if _place(content) is not None:
                return content.decode("ascii")
        return ""

    def keep(self, answer: bytes) -> None:
        """Keep the answer's head, if it has one that is later than what is kept, or of another ledger."""
        head = _head_of(answer)
        new, old = _place(head), _place(self.read().encode())
        if new is None or (old is not None and old[0] == new[0] and old[1] >= new[1]):
            return
        with suppress(OSError):
            folder = state_folder() / "couriers"
            folder.mkdir(mode=0o700, exist_ok=True)
            replace_private(folder / self._name, head, synced=False)  # every round has another


def _head_of(answer: bytes) -> bytes:
    """Cut the head out of an answer, without reading the rest: in no text of a message can these bytes stand."""
    begin = answer.find(_BEGIN)
    end = answer.find(_END, begin)
    return b"" if begin < 0 or end < 0 else answer[begin + len(_BEGIN) - 1 : end + 1]


def _place(head: bytes) -> tuple[str, int] | None:
    """Return the ledger and the number of a head that a request can carry; None if it is none."""
    if len(head) > _LONGEST or not head.isascii():
        return None
    try:
        content = json.loads(head)
        ledger, number = content["ledger"], content["number"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    printable = head.decode("ascii").isprintable()
    return (ledger, number) if printable and isinstance(ledger, str) and isinstance(number, int) else None
