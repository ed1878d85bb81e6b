"""Options of the plugins that are one module each.

They are apart from their plugins because those import Arrow, and options are also checked where
Arrow is not installed (`model.plugins`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from onyx.errors import Problem
from onyx.plugins.options import Options
from onyx.plugins.starting import Form, StartFrom, wrong_start

_NO_END = "the segments are those of the manifest: they have no times, and nobody adds any"
_NO_TIMES: Mapping[Form, str] = {
    "end": _NO_END,
    "recordsAgo": _NO_END,
    "time": _NO_END,
    "timeAgo": _NO_END,
}


class BlackholeOptions(Options, frozen=True):
    """There are none."""


class ChannelOptions(Options, frozen=True):
    """Which channel."""

    channel: str
    """Name that the test gave to `open_channel`."""


class FunctionOptions(Options, frozen=True):
    """What to call."""

    fn: str
    """`package.module:name` of the function to call; what it returns is ignored."""
    batch: bool = False
    """Call it once a batch with the list of segments, instead of once a segment; with
    `batchFormat: arrow` with the batch as a pyarrow.RecordBatch."""


class GeneratorOptions(Options, frozen=True):
    """Which segments, how many and how fast."""

    segments: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How many in all; without it, the job runs until it is killed."""
    rate_per_second: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Segments a second in all; without it, as fast as they are processed."""
    fn: str | None = None
    """`package.module:name` of a function from the number (int, from 0) to the segment, which
    must always be the same for the same number. Without it, segments are `{"n": number}`. With
    `batchFormat: arrow` it gets a record batch with the numbers in `n` and gives a row for each."""
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Numbers are dealt to so many partitions in turn; each is read by one peer."""
    start_from: StartFrom = "beginning"
    """Where a new job begins: `beginning`, `{position: 500}` of each partition, or
    `{positions: {"0": 500}}`."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from wrong_start(self.start_from, _NO_TIMES)


class SequenceOptions(Options, frozen=True):
    """What to read."""

    segments: list[dict[str, Any]]
    """What to read, in order."""
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Segments are dealt to so many partitions in turn; each is read by one peer."""
    start_from: StartFrom = "beginning"
    """Where a new job begins: `beginning`, `{position: 500}` of each partition, or
    `{positions: {"0": 500}}`."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from wrong_start(self.start_from, _NO_TIMES)


class StdoutOptions(Options, frozen=True):
    """How a segment becomes a line."""

    nan: Literal["error", "null", "text"] = "error"
    """What to write for NaN and infinities, which JSON lacks; `text` is `"NaN"`, `"Infinity"`."""
