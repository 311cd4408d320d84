"""What can go wrong, one class per decision a caller can make.

Every message says what happened, why, and what to do. No message contains a record's value.
"""

__all__ = [
    "AccountingError",
    "ApprovalError",
    "CertificateError",
    "DatasetError",
    "DeploymentError",
    "DoorError",
    "EstimatorError",
    "LedgerBusyError",
    "LedgerDamagedError",
    "LedgerError",
    "LedgerWriteError",
    "MessageError",
    "OutputError",
    "PlanError",
    "RecordsError",
    "RegistryError",
    "RingfenceError",
    "SchemaError",
    "SiloError",
    "SweepError",
    "TrainingError",
    "TranscriptError",
]


class RingfenceError(Exception):
    """Base class of all errors that Ringfence raises deliberately."""


class PlanError(RingfenceError):
    """A plan or one of its parameters is not valid: change the plan."""


class AccountingError(RingfenceError):
    """No proof covers the privacy question as asked: change its numbers."""


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
