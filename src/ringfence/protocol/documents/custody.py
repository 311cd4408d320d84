"""A ledger's entries about its data: why the ledger began, and when the data changed.

They are part of certificates: no fingerprint, path or record is in them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field

from ringfence.protocol.plan.guarantee import Guarantee, against_words
from ringfence.protocol.public import Digest, Public


def _is_one_line(text: str) -> str:
    """Refuse a reason or a name, in a statement on a ledger's custody, that is not one printable line."""
    if not text.isprintable() or text != text.strip():
        raise ValueError("write one line of plain text, without leading or trailing spaces")
    return text


Line: TypeAlias = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_is_one_line)]
"""What a person wrote, for others to read: one line."""


Remark: TypeAlias = Annotated[str, Field(min_length=1, max_length=10_000), AfterValidator(_is_one_line)]
"""Such a line together with the facts, as a statement shows them."""


class FormerLedger(Public):
    """Another ledger of the same data: its first entry's hash; and its last number, hash and costs, if readable."""

    ledger: Digest
    number: int | None = None
    head: Digest | None = None
    spent: tuple[Guarantee, ...] = Field(default=(), strict=False)

    def words(self) -> str:
        """Describe the cost of the releases of a former ledger."""
        name = f"ledger {self.ledger[:12]}"
        if not self.spent:
            return f"{name}, which could no longer be read, so that the cost of its releases is unknown"
        costs = "; ".join(f"epsilon {cost.epsilon:.4g} {against_words(cost.against)}" for cost in self.spent)
        return f"{name}, whose releases used {costs}, at delta {self.spent[0].delta:.2g} ({self.number} entries)"


class NewBeginning(Public):
    """Why there is a second ledger for data that has one: what the former ones spent is not counted in it."""

    reason: Line
    by: Line
    former: tuple[FormerLedger, ...] = Field(min_length=1, strict=False)

    def words(self) -> str:
        """State that a ledger is a new beginning, by whom, why, and which former ledgers it does not count."""
        former = " and by ".join(ledger.words() for ledger in self.former)
        return (
            f"This ledger is a new beginning, made by {self.by} for the reason “{self.reason}”. It does not count "
            f"what was released before from the same records, by {former}."
        )


class Registration(Public):
    """An operator's statement that the ledger is that of the data, where no registry knew it, or its newest copy."""

    by: Line
    beginning: NewBeginning | None = Field(default=None, strict=False)
    watermark: Literal["lost"] | None = None

    def words(self) -> str:
        """State who registered a ledger as that of its data, or as its newest copy, or its new beginning."""
        begun = "" if self.beginning is None else self.beginning.words()
        if self.watermark is not None:
            newest = f"{self.by} stated that this is the newest copy of the ledger: its watermark was lost."
            return f"{begun} {newest}".strip()
        return begun or f"{self.by} stated that this is the ledger of its data: no registry knew it."


class DataChange(Public):
    """The data set changed, and the ledger continues with its new version.

    `before` and `after` count records, or persons if `unit` says so; they are left out where these are unknown.
    """

    before: int | None = Field(default=None, ge=0)
    after: int | None = Field(default=None, ge=0)
    unit: Literal["person"] | None = None
    reason: Line
    by: Line

    def words(self) -> str:
        """State who declared a change of the data behind a ledger, and why."""
        unit = f"{self.unit or 'record'}s"
        numbers = "" if None in (self.before, self.after) else f", from {self.before} {unit} to {self.after},"
        return (
            f"{self.by} stated that the data changed{numbers} for the reason “{self.reason}”; everything released "
            f"before still counts, for all {unit}."
        )


def remarks(kind: str, body: Mapping[str, Any]) -> list[str]:
    """Return an entry's remark about the ledger's beginning or its data, as a list of at most one sentence."""
    match kind:
        case "opened" if "new_beginning" in body:
            return [NewBeginning.model_validate(body["new_beginning"]).words()]
        case "registered":
            return [Registration.model_validate(body).words()]
        case "data":
            return [DataChange.model_validate(body).words()]
    return []
