"""Keeps Spark children warm: who asks again soon finds a JVM that has started.

A child is for one master, its settings, and the environment of this process. Requests for the same
child take turns. One child at most is kept idle, the one used last, for `IDLE_MAX_S`: a JVM holds a
gigabyte. A child is kept only after a run that ended well or was cancelled in time; what another
one has left behind, nobody knows.

Children are started by a thread that lives as long as this process, because the kernel ends them
with the thread that started them.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Condition, Timer

from onyx.errors import Fenced
from onyx.spark.child.environment import inherited
from onyx.spark.child.process import Child
from onyx.spark.child.request import StageRequest

IDLE_MAX_S = 120.0
"""How long a child without work is kept."""
POLL_INTERVAL_S = 0.5
"""How soon who waits or cancels is noticed."""
Key = tuple[str, frozenset[tuple[str, str]], frozenset[tuple[str, str]]]


class Loan:
    """A child for one run."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.keep = False
        """Whether the child may serve another run."""


class Keeper:
    """The keeper of one process. Safe to use from several threads."""

    def __init__(self, idle_max_s: float = IDLE_MAX_S) -> None:
        self._idle_max_s = idle_max_s
        self._changed = Condition()
        self._busy: dict[Key, Child | None] = {}
        self._idle: tuple[Key, Child, Timer] | None = None
        self._starter = ThreadPoolExecutor(1, "onyx-spark-children")

    @contextlib.contextmanager
    def lent(self, request: StageRequest, wanted: Callable[[], bool]) -> Iterator[Loan]:
        """A child for one run, which ends afterwards unless `Loan.keep` is set.

        Raises:
            Fenced: `wanted` became false while another run had the child.
            SettingsError, Blocked: see `Child`.
        """
        taken = inherited()
        key = (request.master, frozenset(request.spark_conf.items()), frozenset(taken.items()))
        child = self._reserved(key, wanted)
        keep = False
        try:
            if child is None:
                child = self._starter.submit(Child, request.master, taken).result()
                self._busy[key] = child
            loan = Loan(child)
            try:
                yield loan
            finally:
                keep = loan.keep
        finally:
            self._give_back(key, child, keep)

    def end(self) -> None:
        """End all children, those that run as well."""
        with self._changed:
            children = [child for child in self._busy.values() if child is not None]
            if self._idle is not None:
                children.append(self._idle[1])
                self._idle[2].cancel()
                self._idle = None
        for child in children:
            child.end()

    def _reserved(self, key: Key, wanted: Callable[[], bool]) -> Child | None:
        """The idle child of a key, or None for a new one, when nobody else has one."""
        with self._changed:
            while key in self._busy:
                if not wanted():
                    raise Fenced("the task stopped before its Spark stage ran")
                self._changed.wait(POLL_INTERVAL_S)
            self._busy[key] = None
            idle, self._idle = self._idle, None
        if idle is None:
            return None
        kept, child, timer = idle
        timer.cancel()
        if kept == key and child.alive:
            self._busy[key] = child
            return child
        child.end()
        return None

    def _give_back(self, key: Key, child: Child | None, keep: bool) -> None:
        replaced = child
        with self._changed:
            del self._busy[key]
            if keep and child is not None:
                replaced = self._idle[1] if self._idle else None
                if self._idle:
                    self._idle[2].cancel()
                timer = Timer(self._idle_max_s, self._expire, (child,))
                timer.daemon = True
                self._idle = (key, child, timer)
                timer.start()
            self._changed.notify_all()
        if replaced is not None:
            replaced.end()

    def _expire(self, child: Child) -> None:
        with self._changed:
            if self._idle is None or self._idle[1] is not child:
                return
            self._idle = None
        child.end()


KEEPER = Keeper()
"""The keeper of this process."""
atexit.register(KEEPER.end)
