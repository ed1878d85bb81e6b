"""Doors: a client's own way to the world, that can be shut in its face.

A process that is killed has no effect from one moment on, whatever it was about to do. A test
cannot kill a thread, but it can shut the door that all effects of the client go through: requests
to the API server (by a URL of its own) and appends to the log. Every passage is a *step*; a
`Failpoint` shuts the door at the n-th step, before it has an effect or after.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.operator.fake_api.paths import Target


class Shut(Exception):
    """The door is shut: nobody hears an answer."""


@dataclass(frozen=True)
class Failpoint:
    """Shut at the n-th step (from 1), after it had its effect or before."""

    step: int
    after_effect: bool = False


NEVER = Failpoint(0)


class Door:
    """One door. Steps may be taken on any thread."""

    _numbers = itertools.count(1)

    def __init__(
        self, failpoint: Failpoint | None = None, allows: Callable[[Target], bool] | None = None
    ) -> None:
        """`allows`: the requests that this client may make; others are refused and kept."""
        self.denied: list[Target] = []
        self._allows = allows or (lambda _: True)
        self.name = f"door-{next(self._numbers)}"
        self.steps: list[str] = []
        """What has passed, in order."""
        self._failpoint = failpoint or NEVER
        self._lock = threading.Lock()
        self._is_shut = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_shut(self) -> bool:
        return self._is_shut

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Take a step: what is done within has an effect. Raises Shut.

        A step after whose effect the door is to be shut does not hold up others beside it.
        """
        with self._lock:
            if self._is_shut:
                raise Shut
            self.steps.append(name)
            is_last = len(self.steps) == self._failpoint.step
            is_refused = is_last and not self._failpoint.after_effect
            self._is_shut = is_refused
        if is_refused:
            self._tell()
            raise Shut
        try:
            yield
        finally:
            if is_last:
                self.shut()
            if self._is_shut:
                raise Shut

    def allows(self, target: Target) -> bool:
        """May this client make such a request?"""
        if self._allows(target):
            return True
        self.denied.append(target)
        return False

    def shut(self) -> None:
        """Let nothing pass any more."""
        with self._lock:
            if self._is_shut:
                return
            self._is_shut = True
        self._tell()

    def on_shut(self, listener: Callable[[], None]) -> None:
        """Call this when the door is shut, on the thread that shuts it; now, if it is."""
        with self._lock:
            if not self._is_shut:
                self._listeners.append(listener)
                return
        listener()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()
