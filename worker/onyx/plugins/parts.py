"""Parts: files that become visible whole, once, and only when they are durable.

Segments are written to a part in the writer's staging directory. A part that is large or old enough
is finished: its bytes are forced to disk, it is renamed into the target directory in one step, and
that directory is forced to disk. Only then do its segments count as durable. So nobody ever sees
half a part, and what was acked is found after a crash.

Both the `files` and the `spark` output write this way.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from onyx.errors import Fenced, InvariantViolated, OnyxError, Unavailable
from onyx.flow.batch import Segment
from onyx.ids import GroupId
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext
from onyx.plugins.staging import Staging, sync_directory

_numbers = itertools.count()
"""Of parts within this process: with the incarnation, it makes their names unique."""


class PartBody(Protocol):
    """The contents of one part while it is written."""

    def add(self, segments: Sequence[Segment]) -> None:
        """Raises UserError when a value has no form in this format."""
        ...

    def size_bytes(self) -> int:
        """Written so far, about."""
        ...

    def finish(self) -> None:
        """Write what is left to the file."""
        ...


class PartFormat(Protocol):
    """How segments become a file."""

    suffix: str
    """End of the names of parts, with its dot."""

    def begin(self, file: BinaryIO) -> PartBody: ...


@dataclass(frozen=True, slots=True)
class RollLimits:
    """A part is finished when it reaches any of these."""

    size_bytes: int = 134_217_728
    segments: int = 1_000_000
    age_s: float = 5.0
    """Keep it well below the job's `pendingTimeout`: until then its segments are not acked."""


@dataclass(slots=True)
class _OpenPart:
    path: Path
    file: BinaryIO
    body: PartBody
    opened_s: float
    segments: int = 0


class PartsWriter:
    """Writes segments as parts of one directory, for one peer of one task."""

    def __init__(
        self,
        directory: Path,
        form: PartFormat,
        context: PluginContext,
        limits: RollLimits = RollLimits(),
    ) -> None:
        self._directory = directory
        self._form = form
        self._context = context
        self._limits = limits
        self._staging = Staging(directory, context)
        self._part: _OpenPart | None = None
        self._finished: deque[tuple[Path, int]] = deque()
        self._flushing = False
        self._live: Sequence[GroupId] | None = None
        self._durable = 0
        self._broken: Exception | None = None

    def write(self, segments: list[Segment]) -> None:
        """Add segments to the open part.

        Raises:
            UserError: a value has no form in this format, or the directory cannot be used.
            Unavailable: the disk is full or fails.
            Fenced: this incarnation's staging directory has been removed.
        """
        if not segments:
            return
        with self._guarded():
            part = self._part or self._open()
            part.body.add(segments)
            part.segments += len(segments)
            if self._is_full(part):
                self._publish()

    def durable(self) -> int:
        """Segments in parts that have been published, in the order of writing."""
        return self._durable

    def flush(self) -> None:
        """Publish the open part now; while that is not permitted, as soon as it is."""
        self._flushing = True
        self.tick()

    def tick(self) -> None:
        """Publish the open part if it is old enough, and what could not be published before."""
        with self._guarded():
            self._fence_if_due()
            due = self._flushing or (self._part is not None and self._age_s() >= self._limits.age_s)
            if due or self._finished:
                self._publish()

    def fence(self, live: Sequence[GroupId]) -> None:
        """Remove the unfinished parts of incarnations that are not `live`. One that may be dead
        itself does not judge others: it waits until it is permitted to act."""
        with self._guarded():
            self._live = live
            self._fence_if_due()

    def seal(self) -> None:
        """Publish what is left; parts need nothing else at the end of a job."""
        self.flush()

    def close(self) -> None:
        """Drop what is not published."""
        if self._part is not None:
            with contextlib.suppress(OSError):
                self._part.file.close()
            self._part = None
        self._finished.clear()
        self._staging.close()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """After a failure nobody knows what is in the part or on disk: this writer stays broken."""
        if self._broken is not None:
            raise self._broken
        try:
            yield
        except OSError as error:
            self._broken = self._explained(error)
            raise self._broken from error
        except Exception as error:
            self._broken = error
            raise

    def _is_full(self, part: _OpenPart) -> bool:
        limits = self._limits
        return (
            part.segments >= limits.segments
            or part.body.size_bytes() >= limits.size_bytes
            or self._age_s() >= limits.age_s
        )

    def _age_s(self) -> float:
        assert self._part is not None
        return self._context.clock.monotonic_s() - self._part.opened_s

    def _open(self) -> _OpenPart:
        path = self._staging.own() / self._name()
        file = open(path, "xb")  # noqa: SIM115 - closed when the part is finished or dropped
        now_s = self._context.clock.monotonic_s()
        self._part = _OpenPart(path, file, self._form.begin(file), now_s)
        return self._part

    def _name(self) -> str:
        context = self._context
        incarnation = hashlib.sha256(str(context.incarnation).encode()).hexdigest()[:12]
        number = f"{next(_numbers):06d}"
        return f"part-{context.task}-{context.slot}-{incarnation}-{number}{self._form.suffix}"

    def _publish(self) -> None:
        if not self._context.permitted():
            return
        self._fence_if_due()
        self._finish()
        while self._finished and self._context.permitted():
            self._rename(*self._finished[0])
            self._finished.popleft()
        self._flushing = bool(self._finished)

    def _finish(self) -> None:
        """Force the open part to disk. From here on it waits only for its rename."""
        part, self._part = self._part, None
        if part is None:
            return
        with part.file as file:
            part.body.finish()
            file.flush()
            os.fsync(file.fileno())
        self._finished.append((part.path, part.segments))

    def _rename(self, path: Path, segments: int) -> None:
        target = self._directory / path.name
        if target.exists():
            raise InvariantViolated(f"{target} exists, but names of parts are unique")
        path.rename(target)
        sync_directory(self._directory)
        self._durable += segments

    def _fence_if_due(self) -> None:
        if self._live is not None and self._context.permitted():
            self._staging.fence(self._live)
            self._live = None

    def _explained(self, error: OSError) -> OnyxError:
        what = f"{self._directory}: {error.strerror or error}"
        if error.errno == errno.ENOENT:
            return Fenced(
                f"task {self._context.task!r}: {what}: the staging directory of incarnation "
                f"{self._context.incarnation} was removed, because it was declared dead (or "
                "somebody removed the output directory)"
            )
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            return task_error(
                self._context, f"cannot write to {what}; give the worker a directory it may write"
            )
        return Unavailable(f"task {self._context.task!r}: cannot write to {what}")


def published_parts(directory: Path, suffix: str) -> list[Path]:
    """The visible parts of a directory, in a stable order."""
    return sorted(directory.glob(f"part-*{suffix}"))
