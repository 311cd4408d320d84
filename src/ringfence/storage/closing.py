"""What is open until its `with` block ends."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self


class Closing(ABC):
    """Something that a `with` block closes."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held; closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def closed_on_error(self) -> Iterator[Self]:
        """Close it if the block fails, and leave it open otherwise."""
        try:
            yield self
        except BaseException:
            self.close()
            raise
