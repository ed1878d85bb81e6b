"""Parts: files that are published whole, once, and only when they are durable.

Segments are written to a staged part. A part that is large or old enough is settled, which makes it
durable, and then published in one step. Only then do its segments count as durable. So a reader
never sees half a part, and what was acked survives a crash. A `PartStore` stages and publishes: a
directory or an object store (`storage.staging`).

The outputs `files` and `spark` write parts. Under exactly-once a settled part is committed before
it is published. After a crash another worker publishes what was committed, and writes none of it
again. So a part counts as durable once it is committed and can be seen. That it can be seen is made
durable by the next call, behind the acks: before another part is committed, because only the last
one that is committed may be unpublished.

One part may hold segments in columns beside those in dicts. That takes a class of its own, so that
a `PartsWriter` of a user, which may change segments in `write`, gets all of them there.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Protocol

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from onyx.errors import OnyxError, Unavailable
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.ids import GroupId
from onyx.plugins.parts.folders import PartNames
from onyx.plugins.protocol import Commit, PluginContext, Token
from onyx.plugins.rolling import ROLL_LIMITS, RollingWriter, RollLimits
from onyx.storage.staging.interface import PartStore, Staged


class PartBody(Protocol):
    """The contents of one part while it is written."""

    def add(self, segments: list[Segment]) -> None:
        """Encode segments.

        Raises:
            UserError: a value has no form in this format; nothing was taken.
            OutputFailed: what was taken before has no form in it.
        """
        ...

    def size_bytes(self) -> int:
        """Size until now, about."""
        ...

    def finish(self) -> None:
        """Write what is left to the file."""
        ...


class PartFormat(Protocol):
    """How segments become a file."""

    suffix: str
    """End of the names of parts, with its dot."""

    def begin(self, file: BinaryIO) -> PartBody:
        """The body of a new part, which writes to `file`."""
        ...


class Part(msgspec.Struct):
    """A unit of `rolling`."""

    staged: Staged
    body: PartBody
    opened_s: float
    segments: int = 0
    token: Token | None = None
    committed: bool = False

    @property
    def size_bytes(self) -> int:
        return self.body.size_bytes()

    def make_token(self) -> Token:
        return self.staged.token()


class PartsWriter(RollingWriter):
    """Writes segments as parts of one store, for one peer of one task."""

    def __init__(
        self,
        store: PartStore,
        form: PartFormat,
        context: PluginContext,
        limits: RollLimits = ROLL_LIMITS,
    ) -> None:
        size_bytes = min(limits.size_bytes, store.size_bytes_max)
        super().__init__(context, replace(limits, size_bytes=size_bytes))
        self._store = store
        self._form = form
        self._names = PartNames(context, form.suffix)
        self._part: Part | None = None
        self._finished: deque[Part] = deque()
        self._left = False
        """A part was left staged: in doubt, for the worker that finds its commit, or for the one
        that publishes."""
        self._keep: Commit | None = None
        """Gets the tokens of parts that others publish."""

    def begin(self, commit: Commit) -> None:
        """Write exactly once from now on: see `protocol.TransactionalOutput`.

        A part with a token may be committed although no answer came. It stays staged: dropping it
        would lose its segments if it is committed.
        """
        with self._guarded():
            self._store.sync()
            for part in self._finished:
                if part.token is not None and part.committed:
                    self._store.finish(part.token)
                    self._durable += part.segments
                elif part.token is not None:
                    self._left = True
                else:
                    part.staged.drop()
            if self._part is not None:
                self._part.staged.drop()
        if self._part is not None or not all(part.committed for part in self._finished):
            self._names = PartNames(self._context, self._form.suffix)
        self._finished.clear()
        self._part = None
        self._begin(commit)

    def finish(self, token: Token) -> None:
        """Publish a committed part: see `protocol.TransactionalOutput`."""
        with self._guarded():
            self._store.finish(token)
            self._store.sync()

    def stage(self, keep: Commit) -> None:
        """Leave publishing to others: see `protocol.StagingOutput`. A part ends by its size only,
        because nobody waits for it."""
        self._keep = keep
        self._limits = replace(self._limits, age_s=math.inf)

    def sweep(self) -> None:
        """Remove what others have left staged: see `protocol.StagingOutput`."""
        with self._guarded():
            self._store.sweep()

    def write(self, segments: list[Segment]) -> None:
        """Add segments to the open part.

        Raises:
            UserError: a value has no form in this format; nothing was taken.
            OutputFailed: the store, or the part, cannot be used.
            Unavailable: the store cannot be reached now; nothing was taken.
            Fenced: this incarnation was declared dead.
        """
        if segments:
            self._add(len(segments), lambda body: body.add(segments))

    def _add(self, count: int, add: Callable[[Any], None]) -> None:
        """Let `add` add so many segments to a body, and publish the part if it is due then."""
        with self._guarded():
            for waiting in self._finished:
                waiting.staged.settle()
            part = self._part or self._open()
            part.staged.make_room()
        with self._guarded(may_refuse=True):
            add(part.body)
        with self._guarded():
            part.segments += count
            if self._is_due(part):
                # These segments are taken, so it is the next call that raises.
                with contextlib.suppress(Unavailable):
                    self._publish()

    def tick(self) -> None:
        """Publish the open part if it is due, and parts that could not be published before."""
        with self._guarded():
            self._store.sync()
            self._tend_fence()
            if self._flushing or self._finished or self._is_due(self._part):
                self._publish()

    def seal(self) -> None:
        """Publish what is left; parts need nothing else at the end of a job."""
        self.flush()
        with self._guarded():
            self._store.sync()

    def close(self) -> None:
        """Drop what is not committed. A committed part counts as written: it is published here, or
        stays staged for the worker that finds its commit."""
        waiting = [part for part in self._finished if not self._is_published(part)]
        for part in [*waiting, *([self._part] if self._part else [])]:
            if part.token is None:
                part.staged.drop()
        self._part = None
        self._finished.clear()
        with contextlib.suppress(OnyxError, OSError):
            self._store.sync()
        if not self._left and all(part.token is None for part in waiting):
            self._store.close()

    def _fence_off(self, live: Sequence[GroupId]) -> None:
        self._store.fence(live)

    def _is_published(self, part: Part) -> bool:
        """Publish a part if it is committed."""
        if part.token is None or not part.committed:
            return False
        try:
            self._store.finish(part.token)
        except (OnyxError, OSError):
            return False
        return True

    def _open(self) -> Part:
        staged = self._store.create(self._names.next)
        self._names.used()
        now_s = self._context.clock.monotonic_s()
        self._part = Part(staged, self._form.begin(staged.file), now_s)
        return self._part

    def _publish(self) -> None:
        if not self._context.permitted():
            return
        self._tend_fence()
        if self._part is not None and self._part.segments:
            self._part.body.finish()
            self._finished.append(self._part)
            self._part = None
        while self._finished:
            part = self._finished[0]
            part.staged.settle()
            if not self._context.permitted():  # settling may have taken long
                return
            self._store.sync()
            self._commit_once(part)
            if self._keep is not None:
                self._keep(part.staged.token(), part.segments)
                self._left = True
            elif part.token is None:
                part.staged.publish()
            else:
                self._store.finish(part.token)
            self._durable += part.segments
            self._finished.popleft()
        self._flushing = False


class ColumnsBody(PartBody, Protocol):
    """A body that takes columns as well."""

    def add_columns(self, columns: Columns) -> None:
        """Encode segments in columns. Raises like `add`."""
        ...


class ColumnsFormat(Protocol):
    """How segments and columns become a file: a `PartFormat` of such bodies."""

    suffix: str
    """End of the names of parts, with its dot."""

    def begin(self, file: BinaryIO) -> ColumnsBody:
        """The body of a new part, which writes to `file`."""
        ...


class ColumnsPartsWriter(PartsWriter):
    """A `PartsWriter` that takes columns (`protocol.ColumnsOutput`)."""

    def __init__(
        self,
        store: PartStore,
        form: ColumnsFormat,
        context: PluginContext,
        limits: RollLimits = ROLL_LIMITS,
    ) -> None:
        super().__init__(store, form, context, limits)

    def write_columns(self, columns: pa.RecordBatch) -> None:
        """Writes as `write`. The rows of one call stay in one part, as the segments of one call
        do."""
        if columns.num_rows:
            self._add(columns.num_rows, lambda body: body.add_columns(Columns(columns)))
