"""Inputs with a journal, opened as a worker opens them, over a store in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context
from tests.support.patience import WAIT_S

from onyx.base.seams import SystemClock
from onyx.errors import Unavailable
from onyx.flow.batch import as_dicts
from onyx.flow.columns.record_batch import Columns
from onyx.ledger.outcomes import FailedSegment, Outcomes
from onyx.ledger.returns import OUTCOMES
from onyx.plugins.protocol import Cursor, OwningInput
from onyx.plugins.registry import build_input
from onyx.storage.interface import MemoryBlobStore


class Owner:
    """A process that owns all partitions of an input."""

    def __init__(
        self,
        plugin: str,
        options: dict[str, Any],
        store: MemoryBlobStore | None = None,
        version: int = 1,
        cursors: dict[str, Cursor] | None = None,
        job: str = "job-1",
        **context: Any,
    ) -> None:
        self.store = store or MemoryBlobStore()
        made = plugin_context(
            options, clock=SystemClock(), incarnation=f"g{version}", job=job, **context
        )
        self.columns = made.batch_format == "arrow"
        self.input: Any = build_input(plugin, replace(made, durable_store=lambda: self.store))
        if isinstance(self.input, OwningInput):
            self.input.allocate(version)  # type: ignore[arg-type]
        at = cursors or {}
        self.readers: dict[str, Any] = {
            name: self.input.open(name, at.get(name, Cursor(0))) for name in self.input.partitions()
        }

    def read(self, count: int) -> list[dict[str, Any]]:
        """The next so many segments of all partitions."""
        found: list[dict[str, Any]] = []
        self.until(lambda: self._read_some(found, count) or len(found) >= count)
        return found

    def _read_some(self, found: list[dict[str, Any]], count: int) -> bool:
        for reader in self.readers.values():
            if self.columns:
                given = reader.read_columns(count - len(found))
                is_list = isinstance(given, list)
                found += given if is_list else as_dicts(Columns.of(given))
            else:
                found += reader.read(count - len(found))
        return False

    def until(self, condition: Callable[[], bool]) -> None:
        """Read and wait, because acks and claims go on by themselves."""
        ends_s = time.monotonic() + WAIT_S
        while True:
            try:
                if condition():
                    return
            except Unavailable:
                """It is tried again."""
            assert time.monotonic() < ends_s, self.obstacles
            time.sleep(0.01)

    @property
    def obstacles(self) -> list[str]:
        return [reader.obstacle() for reader in self.readers.values()]

    def cursors(self, position: int | None = None) -> dict[str, Cursor]:
        """From where the next owner reads: everything that was read is complete."""
        return {
            name: reader.cursor(reader._position if position is None else position)
            for name, reader in self.readers.items()
        }

    def process(self, *positions: int, failed: str = "") -> None:
        """The trees of these positions of the first partition are complete; `failed`: a segment of
        each has failed for good, because of this."""
        reader = next(iter(self.readers.values()))
        for each in positions if failed else ():
            failures = (FailedSegment("work", failed),)
            reader.returned(each, {OUTCOMES: Outcomes(failed=1, failures=failures).part()})
        reader.acked(np.array(positions, dtype=np.uint64))

    def process_until(self, condition: Callable[[], bool]) -> None:
        """Be done with what comes meanwhile: a connection may be lost, and acks with it."""

        def processed() -> bool:
            for reader in self.readers.values():
                first = reader._position
                reader.read(1_000)
                reader.acked(np.arange(first, reader._position, dtype=np.uint64))
            return condition()

        self.until(processed)

    def give_back(self, *positions: int) -> None:
        """Functions ask for a retry of these positions of the first partition."""
        next(iter(self.readers.values())).given_up(np.array(positions, dtype=np.uint64))

    def close(self) -> None:
        for reader in self.readers.values():
            reader.close()
        self.input.close()
