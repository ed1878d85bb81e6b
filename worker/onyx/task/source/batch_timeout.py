"""Waiting for a batch to fill (`batchTimeout`).

A task goes on with what there is, unless its entry says how long it may wait for more: whole
batches cost less each, and wait longer. Nothing that waits here has been read yet, as far as
positions, watermarks and accounts are concerned: whoever takes over reads it again.
"""

from __future__ import annotations

from onyx.base.seams import Clock
from onyx.flow.mixed import Read, of_runs, runs_of
from onyx.plugins.protocol import Around, Cursor
from onyx.plugins.segment_runs import SegmentRuns
from onyx.program.reading.segments_reader import SegmentsReader


class FilledReader(Around):
    """A reader that gives whole batches, or what has come when the first of it has waited long
    enough (`batchTimeout`)."""

    def __init__(self, reader: SegmentsReader, clock: Clock, timeout_s: float) -> None:
        self._reader = self.beneath = reader
        self._held = SegmentRuns()
        self._filling = Filling(clock, timeout_s)
        self._hurried = False

    def change_timeout(self, timeout_s: float) -> None:
        """Wait for as long from now on; one that hurries waits for nothing any more."""
        if not self._hurried:
            self._filling.timeout_s = timeout_s

    def read(self, segments_max: int) -> Read:
        """A whole batch of so many, or what has waited long enough; else nothing."""
        held = self._held
        if not self._filling.timeout_s and not len(held):
            return self._reader.read(segments_max)
        if len(held) < segments_max:
            for run in runs_of(self._reader.read(segments_max - len(held))):
                held.append(run)
        if not self._reader.exhausted() and not self._filling.over(len(held), segments_max):
            return []
        found = held.between(0, segments_max)
        held.drop(min(segments_max, len(held)))
        return of_runs(found) if found else []

    def exhausted(self) -> bool:
        """True when everything was read and nothing will ever follow."""
        return not len(self._held) and self._reader.exhausted()

    def cursor(self, position: int) -> Cursor:
        """The nearest known cursor at or before `position`."""
        return self._reader.cursor(position)

    def close(self) -> None:
        """Release the partition; nothing is read afterwards."""
        self._reader.close()

    def hurry(self) -> None:
        """Give what there is at once from now on."""
        self._hurried = True
        self._filling.timeout_s = 0.0


class Filling:
    """When a batch that is not whole has waited long enough."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._clock = clock
        self._since_s: float | None = None

    def over(self, waiting: int, wanted: int) -> bool:
        """Whether to go on with so many segments that wait, of so many that make a batch."""
        if not waiting or waiting >= wanted or not self.timeout_s:
            self._since_s = None
            return True
        now_s = self._clock.monotonic_s()
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < self.timeout_s:
            return False
        self._since_s = None
        return True
