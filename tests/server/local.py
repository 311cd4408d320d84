"""An exchange within the process, to silos that are functions of the request."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ringfence.protocol import RoundRequest

Silos = Callable[[RoundRequest], Mapping[str, bytes]]


@dataclass
class Local:
    """Hands over what the silos give; stops, as if by Ctrl-C, after a number of answers."""

    silos: Silos
    stop_after: int | None = None
    calls: list[tuple[int, tuple[str, ...], float]] = field(default_factory=list)
    handed_over: int = 0

    def __call__(
        self, request: bytes, silos: Sequence[str], arrived: Callable[[str, bytes], None], seconds: float
    ) -> None:
        asked = RoundRequest.from_bytes(request)
        self.calls.append((asked.round, tuple(silos), seconds))
        given = self.silos(asked)
        for name in silos:
            if name in given:
                if self.handed_over == self.stop_after:
                    raise KeyboardInterrupt
                arrived(name, given[name])
                self.handed_over += 1

    def rounds(self) -> list[int]:
        """The rounds asked, in the order of the calls."""
        return [round for round, _, _ in self.calls]
