"""Crash a scenario, and go on."""

import hashlib
import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

from tests.crashes.disk import Disk, Tree, read_tree, write_tree
from tests.crashes.scenarios import Scenario
from tests.crashes.stops import Stop, stops

State = tuple[Tree, Tree]
"""What is `here` and what is `away`."""


class Crashes:
    """A scenario that begins again and again, and how it goes on after crashes."""

    def __init__(self, scenario: Scenario) -> None:
        """Prepare the scenario, and number its points."""
        self._scenario = scenario
        for folder in (scenario.here, scenario.away, scenario.here / "state"):
            folder.mkdir()
        scenario.wire.touch()
        scenario.prepare()
        self._first = self._state()
        scenario.proceed()  # forked processes have warm caches
        self._points = self._stopped_after(self._first)
        scenario.check_end(0)
        self.points = [stop for stop, _ in self._points]

    def kill(self) -> int:
        """Kill at every point, and go on; return how many kills there were.

        A sync changes no file, so a kill after it leaves what a kill before it does: only from one of them to go on.
        """
        point, synced = 0, False
        while (killed := self._killed(point)) is not None:
            stop, there = killed
            if not synced:
                self._goes_on(there, 1, f"at point {point}, {stop}")
            point, synced = point + 1, stop.does == "sync"
        return point

    def kill_twice(self, every: int) -> tuple[int, int]:
        """Kill at a point, and what goes on again at one of its points; of either, at every so many.

        Return how many pairs there are, and how many different sets of files they leave. From each set it goes on once,
        and what does so is one process for all that a first kill leads to.
        """
        pairs, tried, before = 0, set(), None
        after: list[tuple[Stop, State]] = []
        for point, (stop, there) in list(enumerate(self._points))[::every]:
            if there != before:
                before, after = there, self._stopped_after(there)
            left = []
            for number, (second, state) in list(enumerate(after))[::every]:
                pairs += 1
                if (files := hashlib.sha256(pickle.dumps(state)).digest()) not in tried:
                    tried.add(files)
                    left.append((state, f"at points {point}, {stop}, and then {number}, {second}"))
            _in_a_new_process(partial(self._all_go_on, left))
        return pairs, len(tried)

    def _all_go_on(self, left: list[tuple[State, str]]) -> None:
        for state, where in left:
            self._goes_on(state, 2, where, self._scenario.proceed)

    def fail_power(self, every: int) -> int:
        """Let the power fail at every point, in every so many of the ways that are told apart; return how many."""
        left = list(self._power_failures())[::every]
        for where, state in left:
            self._goes_on(state, 1, where)
        return len(left)

    def _killed(self, point: int) -> tuple[Stop, State] | None:
        """Kill at a point; return what is there then, or None if the scenario ends before."""
        self._return_to(self._first)
        with closing(stops(self._scenario.proceed, self._scenario.here)) as running:
            for number, stop in enumerate(running):
                if number == point:
                    there = self._state()
                    running.close()
                    assert self._state() == there, "a process wrote when it was killed"
                    return stop, there
        return None

    def _stopped_after(self, state: State) -> list[tuple[Stop, State]]:
        """Go on from these files; return what is there at each point, which is what a kill leaves there."""
        self._return_to(state)
        return [(stop, self._state()) for stop in stops(self._scenario.proceed, self._scenario.here)]

    def _power_failures(self) -> Iterator[tuple[str, State]]:
        """Go through the scenario once, and yield what a power failure may leave at each point."""
        self._return_to(self._first)
        disk = Disk(self._scenario.here)
        for point, stop in enumerate(stops(self._scenario.proceed, self._scenario.here)):
            disk.follow(stop)
            away = read_tree(self._scenario.away)
            for lost, tree in disk.power_failures().items():
                yield f"at point {point}, {stop}, losing {lost}", (tree, away)
        disk.follow(None)

    def _goes_on(self, state: State, crashes: int, where: str, proceed: Callable[[], None] | None = None) -> None:
        """Check what a crash has left, and that it comes from there to a good end: by default, in a new process."""
        try:
            self._return_to(state)
            self._scenario.check(crashes)
            self._return_to(state)  # what was read may have been repaired
            (proceed or partial(_in_a_new_process, self._scenario.proceed))()
            self._scenario.check(crashes)
            self._scenario.check_end(crashes)
        except BaseException as problem:
            problem.add_note(f"crashed {where}")
            raise

    def _state(self) -> State:
        return read_tree(self._scenario.here), read_tree(self._scenario.away)

    def _return_to(self, state: State) -> None:
        write_tree(self._scenario.here, state[0])
        write_tree(self._scenario.away, state[1])


def _in_a_new_process(work: Callable[[], None]) -> None:
    """Work in a forked process, which must come to a good end."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0, "the next process failed"
