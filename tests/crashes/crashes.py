"""Crash a life, and go on."""

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing

from tests.crashes.disk import Disk, Tree, read_tree, write_tree
from tests.crashes.lives import Life
from tests.crashes.stops import Stop, stops

State = tuple[Tree, Tree]
"""What is `here` and what is `away`."""


class Crashes:
    """A life that begins again and again, and how it goes on after crashes."""

    def __init__(self, life: Life) -> None:
        """Prepare the life."""
        self._life = life
        for folder in (life.here, life.away, life.here / "state"):
            folder.mkdir()
        life.wire.touch()
        life.prepare()
        self._first = self._state()
        life.live()  # forked processes have warm caches

    def numbered(self) -> list[Stop]:
        """Return all points of the life."""
        self._return_to(self._first)
        points = list(stops(self._life.live, self._life.here))
        self._life.check_end(0)
        return points

    def kill(self, pairs: int) -> tuple[int, int]:
        """Kill the life at every point, and every so many pairs of it; return how many kills and pairs there were."""
        point, paired, found = 0, 0, 0
        while (killed := self._killed(point)) is not None:
            stop, there = killed
            self._goes_on(there, 1, f"at point {point}, {stop}")
            if pairs:
                for number, (second, state) in enumerate(self._second_points(there)):
                    found += 1
                    if found % pairs == 0:
                        self._goes_on(state, 2, f"at points {point}, {stop}, and then {number}, {second}")
                        paired += 1
            point += 1
        return point, paired

    def cut(self, every: int) -> int:
        """Lose power at every point, in every so many of the ways that are told apart; return how many were tried."""
        cuts = list(self._cuts())[::every] if every else []
        for where, state in cuts:
            self._goes_on(state, 1, where)
        return len(cuts)

    def _killed(self, point: int) -> tuple[Stop, State] | None:
        """Kill the life at a point; return what is there then, or None if it ends before."""
        self._return_to(self._first)
        with closing(stops(self._life.live, self._life.here)) as living:
            for number, stop in enumerate(living):
                if number == point:
                    there = self._state()
                    living.close()
                    assert self._state() == there, "a process wrote when it was killed"
                    return stop, there
        return None

    def _second_points(self, state: State) -> list[tuple[Stop, State]]:
        """Go on after a kill, and return what is there at each point: what a second kill would leave."""
        self._return_to(state)
        return [(stop, self._state()) for stop in stops(self._life.live, self._life.here)]

    def _cuts(self) -> Iterator[tuple[str, State]]:
        """Live once, and yield what a loss of power may leave at each point."""
        self._return_to(self._first)
        disk = Disk(self._life.here)
        for point, stop in enumerate(stops(self._life.live, self._life.here)):
            disk.follow(stop)
            away = read_tree(self._life.away)
            for lost, tree in disk.cuts().items():
                yield f"at point {point}, {stop}, losing {lost}", (tree, away)
        disk.follow(None)

    def _goes_on(self, state: State, crashes: int, where: str) -> None:
        """Check what a crash has left, and that a new process comes from there to a good end."""
        try:
            self._return_to(state)
            self._life.check(crashes)
            self._return_to(state)  # what was read may have been repaired
            process = os.fork()
            if process == 0:
                _live(self._life.live)
            assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0, "the next process failed"
            self._life.check(crashes)
            self._life.check_end(crashes)
        except BaseException as problem:
            problem.add_note(f"crashed {where}")
            raise

    def _state(self) -> State:
        return read_tree(self._life.here), read_tree(self._life.away)

    def _return_to(self, state: State) -> None:
        write_tree(self._life.here, state[0])
        write_tree(self._life.away, state[1])


def _live(live: Callable[[], None]) -> None:
    """Live, in a forked process."""
    status = 1
    try:
        live()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
