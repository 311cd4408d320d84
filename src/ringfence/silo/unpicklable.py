"""What stays in the silo's process."""

from typing import NoReturn

from ringfence.errors import RecordsError


class Unpicklable:
    """Something that stays in the silo's process: it is neither pickled nor copied."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise RecordsError(f"{type(self).__name__} cannot be pickled or copied: they stay in the silo's process.")
