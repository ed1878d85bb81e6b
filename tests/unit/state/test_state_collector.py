"""A state log is collected beside the work of its task, once at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest

from onyx.errors import StateError
from onyx.state.log import LogCollector, StateLog


class Log:
    def __init__(self) -> None:
        self.collected = 0

    def collect(self) -> None:
        self.collected += 1
        if self.collected == 2:
            raise StateError("a chunk is damaged")


class Later:
    """Work that has been given away, and runs when a test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Future[Any]]] = []

    def __call__(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((work, future))
        return future

    def run(self) -> None:
        ((work, future),) = self.waiting
        self.waiting.clear()
        try:
            future.set_result(work())
        except StateError as error:
            future.set_exception(error)


def test_whoever_begins_does_not_wait_and_a_second_collection_waits_for_the_first() -> None:
    log, later = Log(), Later()
    collector = LogCollector(cast(StateLog, log), later)
    collector.begin()
    collector.begin()
    assert (log.collected, len(later.waiting)) == (0, 1)
    later.run()
    assert log.collected == 1
    collector.begin()
    assert len(later.waiting) == 1


def test_what_a_collection_has_raised_is_raised_by_the_next() -> None:
    log, later = Log(), Later()
    collector = LogCollector(cast(StateLog, log), later)
    for _ in range(2):
        collector.begin()
        later.run()
    with pytest.raises(StateError, match="a chunk is damaged"):
        collector.begin()
