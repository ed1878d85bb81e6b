"""The outputs of a job on Spark, as its driver publishes them.

What can be staged was staged by the query, and is published after the commit, as often as needed.
What cannot (standard output, a table) is in spools, and the driver writes it before the commit:
after a crash in between it is written again, so such an output holds each segment at least once.

A spool is a file with the segments that wait for the plugin of an output: batches one behind the
other, each with its size in front.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from onyx.codec.segments import decode, encode
from onyx.errors import (
    Blocked,
    Fenced,
    InvariantViolated,
    SegmentError,
    Unavailable,
    contained,
    describe,
)
from onyx.flow.segment import Segment
from onyx.ids import GroupId
from onyx.plugins.protocol import OneResultOutput, Output, StagingOutput
from onyx.spark.driver.request import OutputResult

DURABLE_POLL_S = 0.02


class SealFailed(Unavailable):
    """An output could not be sealed. What was staged is published; the same call seals again."""

    def __init__(self, task: str, error: Exception) -> None:
        super().__init__(f"sealing output {task} failed: {describe(error)}")
        self.error = error


class Outputs:
    """The outputs of one driver. Methods block, and are called by one thread at a time."""

    def __init__(
        self,
        make: Mapping[str, Callable[[str], Output]],
        wanted: Callable[[], bool],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`make`: for each output task what makes its plugin, for the `PluginContext.writer` that
        it is given. `wanted`: false once the driver is to stop."""
        self._make = make
        self._wanted = wanted
        self._pause = pause
        self._written: set[str] = set()
        """Spools that are written, and may not be committed."""

    def fence(self, live: Sequence[GroupId]) -> None:
        """Fence off all groups but these: what others have staged is never published."""
        for task in self._make:
            with self._plugin(task) as plugin:
                plugin.fence(live)

    def write_spools(self, results: Mapping[str, OutputResult]) -> None:
        """Write what could not be staged, and wait until it is durable.

        Raises:
            Fenced: the driver is to stop.
            Unavailable: an output cannot be reached now; call it again.
        """
        for task, result in results.items():
            waiting = [spool for spool in result.spools if spool not in self._written]
            if waiting:
                with self._plugin(task) as plugin:
                    self._write(plugin, waiting)
                self._written.update(waiting)

    def remove_spools(self, results: Mapping[str, OutputResult]) -> None:
        """Remove those that are written and committed: a job without end would fill the disk."""
        for result in results.values():
            for spool in result.spools:
                with suppress(OSError):  # it goes with the query at the latest
                    Path(spool).unlink()
            self._written.difference_update(result.spools)

    def publish(self, attempt: str, results: Mapping[str, OutputResult], over: bool = True) -> None:
        """Publish what was staged and is committed; what was published before stays as it is. Then
        seal each output, if nothing follows: a stage may read what several of them have written.

        Raises:
            SealFailed: an output cannot be sealed, as when a stage fails.
            Unavailable: an output cannot be reached now, or has no room; call it again.
            Fenced: the driver is to stop.
        """
        staged = {task: each for task, each in results.items() if not each.spools}
        for task, result in staged.items():
            with self._plugin(task, attempt) as plugin:
                _finish(task, plugin, result)
        for task in staged if over else ():
            with self._plugin(task, attempt) as plugin:
                _seal(task, plugin)
                if isinstance(plugin, StagingOutput):
                    plugin.sweep()

    def sweep(self, attempt: str) -> None:
        """Remove what a query has staged that has ended before it had staged everything."""
        for task in self._make:
            with self._plugin(task, attempt) as plugin:
                if isinstance(plugin, StagingOutput):
                    plugin.sweep()

    def _write(self, plugin: Output, spools: Sequence[str]) -> None:
        written = plugin.durable()
        for spool in spools:
            for segments in read_spool(Path(spool)):
                self._require_wanted()
                plugin.write(segments)
                written += len(segments)
        plugin.flush()
        while plugin.durable() < written:
            self._require_wanted()
            plugin.tick()
            self._pause(DURABLE_POLL_S)
        plugin.seal()

    def _require_wanted(self) -> None:
        if not self._wanted():
            raise Fenced("the job was stopped while its result was written")

    @contextmanager
    def _plugin(self, task: str, attempt: str = "") -> Iterator[Output]:
        plugin = self._make[task](f"{attempt}-" if attempt else "")
        try:
            yield plugin
        finally:
            plugin.close()


def _seal(task: str, plugin: Output) -> None:
    try:
        plugin.seal()
    except (Blocked, Fenced):
        raise
    except BaseException as raised:
        error = contained(raised)
        raise SealFailed(task, error) from error


def _finish(task: str, plugin: Output, result: OutputResult) -> None:
    """Publish the parts of an output."""
    if isinstance(plugin, StagingOutput):
        for token in result.tokens:
            plugin.finish(token)
    elif result.tokens:
        raise InvariantViolated(f"task {task}: its plugin stages nothing, but there are tokens")
    if isinstance(plugin, OneResultOutput):
        plugin.upgrade(lambda: None)


SIZE_BYTES = 8


class SpoolWriter:
    """A spool that is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("xb")

    def write(self, segments: Sequence[Segment]) -> None:
        """Add a batch."""
        payload = encode(segments)
        self._file.write(len(payload).to_bytes(SIZE_BYTES, "big"))
        self._file.write(payload)

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()


def read_spool(path: Path) -> Iterator[list[Segment]]:
    """The batches of a spool, in order.

    Raises:
        SegmentError: the file is damaged.
    """
    with path.open("rb") as file:
        while size := file.read(SIZE_BYTES):
            payload = file.read(int.from_bytes(size, "big"))
            if len(size) < SIZE_BYTES or len(payload) < int.from_bytes(size, "big"):
                raise SegmentError(f"{path} ends in the middle of a batch")
            yield decode(payload)
