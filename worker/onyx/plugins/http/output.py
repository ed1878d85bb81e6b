"""Output `http`: requests to an endpoint, at least once or exactly once.

The first call decides: only a job under exactly-once calls `begin`, or `finish` before it. An
endpoint has no fence. At least once, what a dead writer has on its way may still arrive. Exactly
once, that is only what is committed, which whoever takes over sends again byte for byte, under the
same keys: a server that takes a key once has each segment once.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.ids import GroupId
from onyx.plugins.http.committing import CommittingWriter
from onyx.plugins.http.dispatch import Dispatch
from onyx.plugins.http.options import HttpOptions
from onyx.plugins.http.streaming import StreamingWriter
from onyx.plugins.protocol import Commit, PluginContext, RefusedSegments, Token


class HttpOutput:
    """Delegates to the writer of the job's guarantee."""

    cooperative = False
    """A commit waits for a disk, and a flush for answers."""

    def __init__(self, context: PluginContext, options: HttpOptions) -> None:
        self._dispatch = Dispatch(context, options)
        self._writer: StreamingWriter | CommittingWriter = StreamingWriter(self._dispatch)

    def begin(self, commit: Commit) -> None:
        """Commit requests before they are sent, from now on."""
        self._committing().begin(commit)

    def finish(self, token: Token) -> None:
        """Send what was committed."""
        self._committing().finish(token)

    def write(self, segments: list[Segment]) -> None:
        """Hand the segments to the writer."""
        self._take(segments)

    def write_columns(self, columns: pa.RecordBatch) -> None:
        """Hand the rows to the writer."""
        self._take(Columns(columns))

    def durable(self) -> int:
        """Segments whose requests were answered with 2xx, whose dead letters are durable, or whose
        refusal was reported, up to the first that is not."""
        return self._writer.durable()

    def take_refused(self) -> list[RefusedSegments]:
        """What the server has refused since the last call: see `engine_outputs.RefusingOutput`."""
        return self._dispatch.take_refused()

    def flush(self) -> None:
        """Flush the writer."""
        self._writer.flush()

    def tick(self) -> None:
        """Let the writer go on."""
        self._writer.tick()

    def fence(self, live: Sequence[GroupId]) -> None:
        """Fence off those who write dead letters. An endpoint has no fence."""
        if self._dispatch.letters is not None:
            self._dispatch.letters.fence(live)

    def seal(self) -> None:
        """Flush; an endpoint needs nothing else at the end of a job."""
        self.flush()

    def close(self) -> None:
        """Drop what is not settled: it is replayed, or sent by whoever reads its commit."""
        self._dispatch.close()

    def _take(self, segments: Segments) -> None:
        if len(segments):
            self._writer.take(segments)

    def _committing(self) -> CommittingWriter:
        if not isinstance(self._writer, CommittingWriter):
            self._writer = CommittingWriter(self._dispatch)
        return self._writer
