"""A relay that is lost is started again, and only who has not answered is asked again."""

import threading
from collections.abc import Callable, Sequence

import pytest

from ringfence.errors import DeploymentError
from ringfence.transport.relay import Errand, RelayedExchange, run_relay

SITES = ("north", "south")


class Engine(RelayedExchange):
    """An engine whose relay runs in a thread, and does with errands what it is given."""

    def __init__(self, run: Callable[[Errand], None], *, slack: float = 5.0) -> None:
        self.reported: list[str] = []
        self.run, self.stop = run, False
        super().__init__(slack=slack, tell=self.reported.append)

    def start_relay(self, silos: Sequence[str]) -> None:
        threading.Thread(target=run_relay, args=(self.path, silos, self.run), daemon=True).start()
        assert self.accept()

    def may_stop(self, missing: set[str], gone: float) -> bool:
        return self.stop


def test_answers_come_back_and_silent_sites_are_left_out() -> None:
    answers: dict[str, bytes] = {}
    with Engine(lambda errand: errand.answer("north", errand.request + b"!")) as engine:
        for request in (b"first", b"second"):
            engine(request, SITES, answers.__setitem__, 1.0)
            assert answers == {"north": request + b"!"}
    assert engine.reported == ["The engine runs the job at north, south."]


def test_a_relay_that_dies_is_started_again_for_those_who_are_missing() -> None:
    asked: list[list[str]] = []
    arrived: list[str] = []

    def run(errand: Errand) -> None:
        asked.append(errand.sites)
        errand.answer(errand.sites[0], b"answer")
        if len(asked) == 1:
            raise ConnectionError("the engine died")

    with Engine(run) as engine:
        engine(b"request", SITES, lambda site, _: arrived.append(site), 5.0)
    assert asked == [["north", "south"], ["south"]]
    assert arrived == ["north", "south"]
    assert engine.reported[1] == "The engine lost the job: submitting it again."


def test_an_engine_that_loses_every_job_is_given_up_with_a_sentence() -> None:
    def run(errand: Errand) -> None:
        raise ConnectionError

    with Engine(run) as engine, pytest.raises(DeploymentError, match=r"repeatedly.*answered rounds are not lost"):
        engine(b"request", SITES, lambda site, answer: None, 5.0)


def test_a_relay_that_goes_silent_counts_as_lost_and_an_exchange_may_end_early() -> None:
    over = threading.Event()
    with Engine(lambda errand: over.wait(20), slack=0.1) as engine:  # type: ignore[arg-type]
        engine.stop = True
        engine(b"request", SITES, lambda site, answer: None, 5.0)
        assert len(engine.reported) == 1, "stopped, not lost"
        engine.stop = False
        with pytest.raises(DeploymentError):
            engine(b"request", SITES, lambda site, answer: None, 0.0)
    over.set()
