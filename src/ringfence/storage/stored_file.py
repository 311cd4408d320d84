"""Base classes of stored files: their name and errors in messages, and closing them."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from ringfence.errors import RingfenceError

_Error = type[RingfenceError]


class Kind:
    """A kind of document: the word for it in messages, and an error for each decision that its user can make.

    Another process writes to it (`busy`); the disk or the permissions do not let us (`unwritable`); its content cannot
    be trusted (`damaged`, and `if_damaged` says what follows). Anything else raises `error`.
    """

    def __init__(
        self,
        name: str,
        error: _Error,
        *,
        busy: _Error | None = None,
        unwritable: _Error | None = None,
        damaged: _Error | None = None,
        if_damaged: str = "",
    ) -> None:
        """Name a kind of stored file, and the errors that messages about it raise."""
        self.name, self.error, self.if_damaged = name, error, if_damaged
        self.busy, self.unwritable, self.damaged = busy or error, unwritable or error, damaged or error


class Closing(ABC):
    """Something that a `with` block closes."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the stored file; closing twice is fine."""

    def __enter__(self) -> Self:
        """Begin a block at whose end the stored file is closed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the stored file."""
        self.close()

    @contextmanager
    def closed_on_error(self) -> Iterator[Self]:
        """Close the stored file if the block fails, and leave it open otherwise."""
        try:
            yield self
        except BaseException:
            self.close()
            raise


class OpenFile(Closing):
    """A file that is open by its descriptor, which the system closes however the process ends."""

    _file = -1

    def close(self) -> None:
        """Close the stored file, and with it its lock; closing twice is fine."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
