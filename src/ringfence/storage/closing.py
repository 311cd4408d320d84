"""What is open until its `with` block ends."""

from abc import ABC, abstractmethod
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
