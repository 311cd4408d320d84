"""Exceptions, one class per decision a caller can make, and escaping of text that somebody else wrote.

    >>> from ringfence.errors import PlanError, RingfenceError, visible
    >>> issubclass(PlanError, RingfenceError)
    True
    >>> visible("north\\x1b[2J")
    'north\\\\u001b[2J'

A message says what happened, why, and what to do. It never contains a record's value. Names, categories, notes and file
names from outside may hold characters that move, hide or repaint the text around them (escape sequences, bidirectional
controls, line ends): `visible` escapes them before a person reads them.
"""

import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec


class RingfenceError(Exception):
    """Base class of all errors that Ringfence raises deliberately."""


class PlanError(RingfenceError):
    """A plan or one of its parameters is not valid: change the plan."""


class AccountingError(RingfenceError):
    """No proof covers the privacy query as asked: change its numbers."""


class SchemaError(RingfenceError):
    """The public schema is incomplete or contradicts itself: edit the schema file."""


class RecordsError(RingfenceError):
    """A data file does not fit the schema: correct the named row and column."""


class MessageError(RingfenceError):
    """Bytes from outside are not a Ringfence message: do not process them."""


class ApprovalError(RingfenceError):
    """The silo cannot approve this plan: ask for another plan, or grant more budget."""


class LedgerError(RingfenceError):
    """Base class of the ledger's errors."""


class LedgerBusyError(LedgerError):
    """Another process is writing to the ledger: wait, or end that process."""


class LedgerDamagedError(LedgerError):
    """The ledger's content cannot be trusted: restore it; nothing is released meanwhile."""


class LedgerWriteError(LedgerError):
    """The ledger could not be written (disk full, no permission): make room; nothing was released."""


class RegistryError(LedgerError):
    """The data set and the ledger do not belong together: use the ledger named in the message, or do what it says."""


class TrainingError(RingfenceError):
    """Training could not produce a model: no silo answered, or the request contradicts itself."""


class TranscriptError(RingfenceError):
    """A run's transcript cannot be continued: it is in use, damaged or of another plan; name another folder."""


class EstimatorError(RingfenceError, ValueError):
    """An estimator cannot use one of its arguments: correct the one that is named.

    It is a ValueError too, since that is what scikit-learn's own tools expect of an estimator.
    """


class SweepError(RingfenceError):
    """A sweep cannot run, or its file belongs to another sweep. The file is left unchanged."""


class DatasetError(RingfenceError):
    """A public data set is missing or not the one expected: provide the file, or correct the folder."""


class OutputError(RingfenceError):
    """A result could not be written where it was asked for: name another file."""


class DeploymentError(RingfenceError):
    """An engine, a startup kit or a site's policy is set up wrongly: correct what is named; nothing was released."""


class SiloError(RingfenceError):
    """A silo's folder is missing, incomplete or in use: correct what the message names, then start again."""


class DoorError(RingfenceError):
    """A silo's agent did not answer its courier: start the agent, or correct the door's address or token."""


class CertificateError(RingfenceError):
    """A certificate, or a dossier's signature, does not prove what it claims: do not rely on it."""


class ShufflerError(RingfenceError):
    """A shuffler's folder cannot be used, or the shuffler does not serve what it is asked for."""


_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode's categories of controls, formats, surrogates, private and unassigned characters, ends of lines."""

# Letters and marks by category, but not seen: fillers, joiners, variation selectors (Unicode's default ignorables).
_IGNORED = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_PLAIN = re.compile(r"[ -~]*")


WHY = "\0"
"""Stands, in a message of `os_error_as`, for the operating system's reason."""


@contextmanager
def os_error_as(error: type[RingfenceError], message: str) -> Iterator[None]:
    """Raise `error` in place of an OSError, with the system's reason in place of WHY in the message."""
    try:
        yield
    except OSError as problem:
        raise error(message.replace(WHY, str(problem.strerror))) from None


def visible(text: str) -> str:
    """Return a text for errors and other output in one line, with an escape for every character that cannot be seen.

    Text of visible characters and spaces stays as it is, in any script.
    """
    if _PLAIN.fullmatch(text):
        return text
    return "".join(_visible_character(character) for character in text)


def visible_lines(text: str) -> str:
    """Return a text of ours for errors and other output, with escapes as in `visible`; its line feeds stay."""
    return "\n".join(visible(line) for line in text.split("\n"))


def _visible_character(character: str) -> str:
    """Return a character of an error's text, or of other output, as it is, or as an escape if it cannot be seen."""
    if unicodedata.category(character) not in _HIDDEN and not _IGNORED.match(character):
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def require_extra(extra: str, purpose: str, *packages: str, error: type[RingfenceError] = DeploymentError) -> None:
    """Raise an error that names the extra to install, unless all these packages are installed."""
    for package in packages:
        if find_spec(package) is None:
            raise error(f"{purpose} needs '{package}', which is not installed: pip install \"ringfence[{extra}]\".")
