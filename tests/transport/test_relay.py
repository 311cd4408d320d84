"""A relay that is lost is started again, and only who has not answered is asked again."""

import threading
from collections.abc import Callable

import pytest

from ringfence.errors import DeploymentError
from ringfence.transport.relay import Errand, RelayLink, relay

SITES = ("north", "south")


def engine(link: RelayLink, run: Callable[[Errand], None]) -> Callable[[], None]:
    """Return what starts a relay as an engine would, elsewhere, and waits for its call."""

    def start() -> None:
        threading.Thread(target=relay, args=(link.path, SITES, run), daemon=True).start()
        assert link.accept()

    return start


def test_answers_come_back_and_silent_sites_are_left_out() -> None:
    told: list[str] = []
    answers: dict[str, bytes] = {}
    with RelayLink(slack=5.0, tell=told.append) as link:
        for request in (b"first", b"second"):
            missing = set(SITES)
            start = engine(link, lambda errand: errand.answer("north", errand.request + b"!"))
            link.exchange(request, missing, answers.__setitem__, 1.0, start)
            assert answers == {"north": request + b"!"}
            assert missing == {"south"}
    assert told == ["The engine runs the job at north, south."]


def test_a_relay_that_dies_is_started_again_for_those_who_are_missing() -> None:
    told: list[str] = []
    asked: list[list[str]] = []
    arrived: list[str] = []

    def run(errand: Errand) -> None:
        asked.append(errand.sites)
        errand.answer(errand.sites[0], b"answer")
        if len(asked) == 1:
            raise ConnectionError("the engine died")

    with RelayLink(slack=5.0, tell=told.append) as link:
        link.exchange(b"request", set(SITES), lambda site, _: arrived.append(site), 5.0, engine(link, run))
    assert asked == [["north", "south"], ["south"]]
    assert arrived == ["north", "south"]
    assert told[1] == "The engine lost the job: submitting it again."


def test_an_engine_that_loses_every_job_is_given_up_with_a_sentence() -> None:
    def run(errand: Errand) -> None:
        raise ConnectionError

    with (
        RelayLink(slack=5.0, tell=lambda sentence: None) as link,
        pytest.raises(DeploymentError, match=r"repeatedly.*answered rounds are not lost"),
    ):
        link.exchange(b"request", set(SITES), lambda site, answer: None, 5.0, engine(link, run))


def test_a_relay_that_goes_silent_counts_as_lost_and_an_exchange_may_end_early() -> None:
    over = threading.Event()
    told: list[str] = []

    def hang(errand: Errand) -> None:
        over.wait(20)

    with RelayLink(slack=0.1, tell=told.append) as link:
        start = engine(link, hang)
        link.exchange(b"request", set(SITES), lambda site, answer: None, 5.0, start, lambda gone: True)
        assert len(told) == 1, "stopped, not lost"
        with pytest.raises(DeploymentError):
            link.exchange(b"request", set(SITES), lambda site, answer: None, 0.0, start)
    over.set()
