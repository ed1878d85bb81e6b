"""Threads in the hands of the world: each runs only while it has its turn.

An input that keeps a journal has threads of its own, which wait for each other, for the store and
for time. Here they are real threads, so that their code is that of the product. But one of them
runs at a time, and it hands its turn back where it would wait.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tests.sim.windows.violation import Violation, raise_hidden

from onyx.base.seams import Clock
from onyx.plugins.journalled import partition, partitions
from onyx.plugins.requests import request_queue

TURNS_OF_JOIN = 40
"""Turns that a thread gets from whoever waits for its end."""
IMPATIENCE = 0.15
"""How often that ends before the thread does, in a time of faults."""


class Ended(BaseException):
    """The process of the thread is dead."""


class Threads:
    """All threads of all simulated processes."""

    def __init__(self, clock: Clock, choice: random.Random) -> None:
        self.clock = clock
        self.choice = choice
        self.owner: Any = None
        """The process that is stepped now: what begins belongs to it."""
        self.current: SimulatedThread | None = None
        self.alive: list[SimulatedThread] = []
        self.chaos = True

    @contextmanager
    def patched(self) -> Iterator[None]:
        """The module `threading`, as those see it that have threads."""
        try:
            with (
                mock.patch.object(partition, "threading", self),
                mock.patch.object(partitions, "threading", self),
                mock.patch.object(request_queue, "threading", self),
            ):
                yield
        finally:
            for each in list(self.alive):
                each.end()

    def turn(self, share: float) -> None:
        """Each thread goes on, with this probability."""
        for each in list(self.alive):
            if self.choice.random() < share:
                for _ in range(self.choice.choice((1, 1, 3, 10))):
                    if each.may_go_on():
                        each.go_on()

    def end(self, owner: Any, ghosts: float) -> None:
        """A process is dead. What its threads had begun at the store may still be done."""
        for each in list(self.alive):
            if each.owner is owner:
                if each.at_store and self.choice.random() < ghosts:
                    each.go_on()
                each.end()

    def pause(self) -> None:
        """Before each request to the store: others may have a turn."""
        if self.current is not None:
            self.current.pause(_at_once, at_store=True)

    # --- `threading` ----------------------------------------------------------------------------

    def Thread(
        self, target: Callable[[], None], name: str = "", daemon: bool = True
    ) -> SimulatedThread:
        return SimulatedThread(self, target)

    def Event(self) -> Event:
        return Event(self)

    def Condition(self) -> Condition:
        return Condition(self)

    def Lock(self) -> Unneeded:
        return Unneeded()


class SimulatedThread:
    """As much of `threading.Thread` as is used."""

    def __init__(self, threads: Threads, target: Callable[[], None]) -> None:
        self.owner = threads.owner
        self.at_store = False
        self._threads = threads
        self._target = target
        self._until: Callable[[], bool] = _at_once
        self._ended = False
        self._killed = False
        self._mine = threading.Semaphore(0)
        self._others = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._threads.alive.append(self)
        self._thread.start()

    def is_alive(self) -> bool:
        return not self._ended

    def join(self, timeout: float) -> None:
        """Let it go on to its end, or not so far: the store may be slow."""
        threads = self._threads
        if threads.chaos and threads.choice.random() < IMPATIENCE:
            return
        for _ in range(TURNS_OF_JOIN):
            if self._ended or not self.may_go_on():
                return
            self.go_on()

    def may_go_on(self) -> bool:
        """Whether what it waits for is there."""
        return not self._ended and self._until()

    def go_on(self) -> None:
        """To the next moment at which it waits, or the end."""
        before, self._threads.current = self._threads.current, self
        self._mine.release()
        self._others.acquire()
        self._threads.current = before
        if self._ended:
            self._threads.alive.remove(self)
            self._thread.join()
        if not self._killed:
            raise_hidden()

    def end(self) -> None:
        """It does nothing more that anybody sees."""
        self._killed = True
        while not self._ended:
            self.go_on()

    def pause(self, until: Callable[[], bool], at_store: bool = False) -> None:
        """Called by the thread itself."""
        if self._killed:
            raise Ended
        self._until, self.at_store = until, at_store
        self._others.release()
        self._mine.acquire()
        self.at_store = False
        if self._killed:
            raise Ended

    def _run(self) -> None:
        self._mine.acquire()
        try:
            if not self._killed:
                self._target()
        except (Ended, Violation):
            pass  # `go_on` raises the second one again
        finally:
            self._ended = True
            self._others.release()


class Event:
    """As much of `threading.Event` as is used."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float) -> bool:
        waiting = self._threads.current
        if waiting is not None and not self._set:
            clock = self._threads.clock
            ends_s = clock.monotonic_s() + timeout
            waiting.pause(lambda: self._set or clock.monotonic_s() >= ends_s)
        return self._set


class Unneeded:
    """A lock: nobody is interrupted where he holds one."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class Condition(Unneeded):
    """As much of `threading.Condition` as is used."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._told = 0

    def notify_all(self) -> None:
        self._told += 1

    def wait(self, timeout: float) -> bool:
        waiting, before = self._threads.current, self._told
        if waiting is not None:
            clock = self._threads.clock
            ends_s = clock.monotonic_s() + timeout
            waiting.pause(lambda: self._told > before or clock.monotonic_s() >= ends_s)
        return self._told > before


def _at_once() -> bool:
    return True
