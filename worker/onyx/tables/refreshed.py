"""A table that is read again when it is time. Until it is there, and if it cannot be read, the one
of before stays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Any, Generic, Protocol, Self, TypeVar

from onyx.base.seams import Clock
from onyx.errors import describe

logger = logging.getLogger(__name__)

Run = Callable[[Callable[[], Any]], Future[Any]]
"""Runs what may take long."""


class Replaceable(Protocol):
    """What may take the place of what was read before."""

    name: str

    @property
    def size(self) -> str:
        """How large it is, for people."""
        ...

    def require_like(self, before: Self) -> None:
        """Raises UserError: who looks up the one of before cannot look up this one."""
        ...


T = TypeVar("T", bound=Replaceable)


class Refreshed(Generic[T]):
    """One table. Any thread may call."""

    def __init__(
        self, load: Callable[[], T], run: Run, clock: Clock, refresh_s: float | None
    ) -> None:
        """`refresh_s`: time after which it is loaded again; None: never."""
        self._load, self._run, self._clock = load, run, clock
        self._refresh_s = refresh_s
        self._lock = Lock()
        self._table: T | None = None
        self._loading: Future[Any] | None = None
        self._due_s = 0.0

    @property
    def is_there(self) -> bool:
        """Whether it has been loaded."""
        return self._table is not None

    def now(self) -> T:
        """The table as it is now. Only after `loaded` was true."""
        assert self._table is not None, "a task waits until its tables are there"
        return self._table

    def loaded(self) -> bool:
        """Whether it is there; the first call begins to load it.

        Raises:
            Unavailable: it cannot be read now: ask again.
            UserError: it never can.
        """
        with self._lock:
            if self._table is None and self._loading is None:
                self._loading = self._run(self._load)
            if self._table is None and self._loading is not None and self._loading.done():
                done, self._loading = self._loading, None
                self._take(done.result())
            return self._table is not None

    def tend(self) -> None:
        """Load it again if it is time, and take what was loaded. A failure is logged, and the old
        table stays."""
        if self._refresh_s is None or self._table is None:
            return
        with self._lock:
            if self._loading is None and self._clock.monotonic_s() >= self._due_s:
                self._loading = self._run(self._load)
            if self._loading is not None and self._loading.done():
                done, self._loading = self._loading, None
                try:
                    done.result().require_like(self._table)
                    self._take(done.result())
                except Exception as error:
                    self._due_s = self._clock.monotonic_s() + self._refresh_s
                    name = self._table.name
                    logger.warning("table %s stays as it is: %s", name, describe(error))

    def _take(self, table: T) -> None:
        self._table = table
        self._due_s = self._clock.monotonic_s() + (self._refresh_s or 0.0)
        logger.info("table %s has %s", table.name, table.size)
