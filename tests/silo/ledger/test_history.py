"""An account follows a ledger's entries one by one, and takes none that this version would not write."""

from typing import Any

import pytest

from ringfence.errors import LedgerError
from ringfence.silo.ledger.history import FORMATS, GENESIS, Account
from ringfence.storage.chain import Entry


def entry(kind: str, body: Any, number: int = 1) -> Entry:
    return Entry(kind, body, number=number, time="", hash=f"{number:064}")


OPENED = {"silo": "clinic"}


def test_an_entry_in_a_later_format_is_refused_whatever_it_says() -> None:
    for kind, newest in FORMATS.items():
        with pytest.raises(LedgerError, match="newer version"):
            Account().apply(entry(kind, {**OPENED, "format": newest + 1}))


@pytest.mark.parametrize(
    ("kind", "body", "problem"),
    [
        ("opened", [], TypeError),
        ("opened", {}, KeyError),
        ("opened", {"silo": 7}, TypeError),
        ("opened", {"silo": "clinic", "registered": "yes"}, TypeError),
        ("opened", {"silo": "clinic", "format": "1"}, TypeError),
        ("refused", {"reason": None}, TypeError),
        ("refused", {}, KeyError),
        ("ended", {"plan": "unknown", "why": "finished"}, KeyError),
        ("released", {"plan": "unknown", "round": 0}, KeyError),
        ("courier", {"same_user": "no"}, TypeError),
        ("used", {"use": "sold"}, KeyError),
        ("charged", {"round": "0", "argument": "", "plan": ""}, TypeError),
        ("charged", {"round": 0, "argument": b"", "plan": ""}, TypeError),
        ("unheard-of", {}, KeyError),
    ],
)
def test_an_entry_that_this_version_would_not_write_is_no_part_of_an_account(
    kind: str, body: object, problem: type[Exception]
) -> None:
    account = Account()
    with pytest.raises(problem):
        account.apply(entry(kind, body))
    assert (account.number, account.head, account.refusals) == (0, GENESIS, 0)


def test_an_account_counts_versions_and_refusals_and_remembers_the_courier_and_the_registry() -> None:
    account = Account()
    account.apply(entry("opened", OPENED))
    assert (account.silo, account.identity, account.registered) == ("clinic", f"{1:064}", False)
    account.apply(entry("refused", {"reason": "budget"}, 2))
    account.apply(entry("refused", {"reason": "budget"}, 3))
    account.apply(entry("registered", {"by": "ada"}, 4))
    account.apply(entry("courier", {"same_user": True}, 5))
    account.apply(entry("courier", {"same_user": False}, 6))
    assert (account.refusals, account.registered, account.same_user) == (2, True, True)
    assert (account.number, account.head, account.identity) == (6, f"{6:064}", f"{1:064}")
    assert account.version == 1
    with pytest.raises(KeyError):
        account.budget  # noqa: B018 (the property refuses)
