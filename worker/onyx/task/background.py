"""Work off a task's thread, which never blocks: started once, and polled."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """Work off the task's thread: each piece is started once, by its name, and polled."""

    def __init__(
        self, run: Callable[[Callable[[], Any]], Future[Any]], wake: Callable[[], None]
    ) -> None:
        self._run = run
        self._wake = wake
        self._futures: dict[str, Future[Any]] = {}

    def poll(self, name: str, work: Callable[[], T]) -> T | None:
        """The result of the work, which is started if it has not been; None while it runs.

        Raises:
            Exception: what the work has raised.
        """
        future = self._futures.get(name)
        if future is None:
            future = self._futures[name] = self._run(work)
            future.add_done_callback(lambda _: self._wake())
        if not future.done():
            return None
        del self._futures[name]
        result: T = future.result()
        return result

    def forget(self) -> None:
        """Nobody waits for what runs now: it is of an old version, or is started again."""
        self._futures.clear()
