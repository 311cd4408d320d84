"""The name of a kind of stored document, and the errors that say why it cannot be used."""

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
        self.name, self.error, self.if_damaged = name, error, if_damaged
        self.busy, self.unwritable, self.damaged = busy or error, unwritable or error, damaged or error
