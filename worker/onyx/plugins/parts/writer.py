"""Parts: files that become visible whole, once, and only when they are durable.

Segments are written to a part that nobody sees. A part that is large or old enough is finished: its
bytes are made durable (`settle`), and then it is made visible in one step (`publish`). Only then do
its segments count as durable. So nobody ever sees half a part, and what was acked is found after a
crash. Where parts are, and how that step is done there, is a `PartsPlace`: a directory
(`directory_parts`) or an object store (`object_parts`).

Both the `files` and the `spark` output write this way. To write exactly once, a settled part is
committed before it is made visible (`begin`); then whoever comes after a crash makes it visible,
and nothing of it is written again.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from onyx.errors import OnyxError, Unavailable
from onyx.flow.batch import Segment
from onyx.ids import GroupId
from onyx.plugins.deferred_fence import DeferredFence
from onyx.plugins.protocol import Commit, PluginContext, Token
from onyx.plugins.roll_limits import ROLL_LIMITS, RollLimits

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


class StagedPart(Protocol):
    """One part until it is visible."""

    file: BinaryIO
    """To write to; writing never fails because a server does not answer."""

    def make_room(self) -> None:
        """Hand over what was written, so that it does not fill memory.

        Raises:
            Unavailable: not now; nothing is lost, and the call may be repeated.
        """
        ...

    def settle(self) -> None:
        """Make everything durable, still invisible. Raises like `make_room`, and is repeatable."""
        ...

    def publish(self) -> None:
        """Make the part visible and that durable. Raises like `make_room`, and is repeatable."""
        ...

    def token(self) -> Token:
        """Once settled: what anybody needs to make it visible (`PartsPlace.finish`)."""
        ...

    def drop(self) -> None:
        """Give it up, as far as that is possible now."""
        ...


class PartsPlace(Protocol):
    """Where the parts of one task are made and published, by one writer.

    Any method may raise Fenced when this incarnation was declared dead, UserError when the place
    cannot be used, Unavailable when it cannot be used now.
    """

    size_bytes_max: int
    """Of a part."""

    def create(self, name: str) -> StagedPart: ...

    def finish(self, token: Token) -> None:
        """Make a part visible that this writer or another one has settled. What is visible already,
        or was and has been taken away since, stays as it is."""
        ...

    def fence(self, live: Sequence[GroupId]) -> None:
        """Make sure that nothing of other incarnations becomes visible any more; idempotent, also
        when several peers do it at once. Only for those who are alive themselves."""
        ...

    def told(self) -> AbstractContextManager[None]:
        """Errors of the system within it are raised as those of this task."""
        ...

    def close(self) -> None:
        """Leave no trace of what was not published, as far as that is possible now."""
        ...


@dataclass(slots=True)
class _Part:
    staged: StagedPart
    body: PartBody
    opened_s: float
    segments: int = 0
    token: Token | None = None
    """Under which it is committed."""
    committed: bool = False
    """False with a token: perhaps."""


class PartsWriter:
    """Writes segments as parts of one place, for one peer of one task."""

    def __init__(
        self,
        place: PartsPlace,
        form: PartFormat,
        context: PluginContext,
        limits: RollLimits = ROLL_LIMITS,
    ) -> None:
        self._place = place
        self._form = form
        self._context = context
        self._limits = limits
        self._part: _Part | None = None
        self._finished: deque[_Part] = deque()
        self._flushing = False
        self._fence = DeferredFence(context, place.fence)
        self._durable = 0
        self._broken: Exception | None = None
        self._commit: Commit | None = None
        self._left = False
        """Something was left for others to make visible, if they find that it was committed."""

    def begin(self, commit: Commit) -> None:
        """Write exactly once from now on: see `protocol.TransactionalOutput`."""
        with self._guarded():
            for part in self._finished:
                if part.token is not None and part.committed:
                    self._place.finish(part.token)
                    self._durable += part.segments
                elif part.token is not None:
                    self._left = True
                else:
                    part.staged.drop()
            if self._part is not None:
                self._part.staged.drop()
        self._finished.clear()
        self._part = None
        self._flushing = False
        self._fence.drop()
        self._commit = commit

    def finish(self, token: Token) -> None:
        """Make visible what was committed: see `protocol.TransactionalOutput`."""
        with self._guarded():
            self._place.finish(token)

    def write(self, segments: list[Segment]) -> None:
        """Add segments to the open part.

        Raises:
            UserError: a value has no form in this format, or the place cannot be used.
            Unavailable: the place cannot be reached now; nothing was taken.
            Fenced: this incarnation was declared dead.
        """
        if not segments:
            return
        with self._guarded():
            for waiting in self._finished:
                waiting.staged.settle()
            part = self._part or self._open()
            part.staged.make_room()
            part.body.add(segments)
            part.segments += len(segments)
            if self._is_full(part):
                with contextlib.suppress(Unavailable):  # told by the next call, which takes nothing
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
            self._fence.tend()
            due = self._flushing or (self._part is not None and self._age_s() >= self._limits.age_s)
            if due or self._finished:
                self._publish()

    def fence(self, live: Sequence[GroupId]) -> None:
        """Remove the unfinished parts of incarnations that are not `live`. One that may be dead
        itself does not judge others: it waits until it is permitted to act."""
        with self._guarded():
            self._fence.ask(live)

    def seal(self) -> None:
        """Publish what is left; parts need nothing else at the end of a job."""
        self.flush()

    def close(self) -> None:
        """Drop what is not published. What has been committed counts as written: it is published,
        or left for those who read that."""
        waiting = [part for part in self._finished if not self._is_published(part)]
        for part in [*waiting, *([self._part] if self._part else [])]:
            if part.token is None:
                part.staged.drop()
        self._part = None
        self._finished.clear()
        if not self._left and all(part.token is None for part in waiting):
            self._place.close()

    def _is_published(self, part: _Part) -> bool:
        """Publish a part if it has been committed."""
        if part.token is None or not part.committed:
            return False
        try:
            self._place.finish(part.token)
        except (OnyxError, OSError):
            return False
        return True

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """After a failure nobody knows what is in the part or on disk: this writer stays broken.
        Not so when the place cannot be used now, which loses nothing."""
        if self._broken is not None:
            raise self._broken
        try:
            yield
        except Unavailable:
            raise
        except Exception as error:
            self._broken = error
            raise

    def _is_full(self, part: _Part) -> bool:
        limits = self._limits
        return (
            part.segments >= limits.segments
            or part.body.size_bytes() >= min(limits.size_bytes, self._place.size_bytes_max)
            or self._age_s() >= limits.age_s
        )

    def _age_s(self) -> float:
        assert self._part is not None
        return self._context.clock.monotonic_s() - self._part.opened_s

    def _open(self) -> _Part:
        staged = self._place.create(part_name(self._context, self._form.suffix))
        now_s = self._context.clock.monotonic_s()
        self._part = _Part(staged, self._form.begin(staged.file), now_s)
        return self._part

    def _publish(self) -> None:
        if not self._context.permitted():
            return
        self._fence.tend()
        if self._part is not None:
            self._part.body.finish()
            self._finished.append(self._part)
            self._part = None
        while self._finished:
            part = self._finished[0]
            part.staged.settle()
            if not self._context.permitted():
                return
            self._make_visible(part)
            self._durable += part.segments
            self._finished.popleft()
        self._flushing = False

    def _make_visible(self, part: _Part) -> None:
        if self._commit is None:
            part.staged.publish()
            return
        if part.token is None:
            part.token = part.staged.token()
        if not part.committed:
            self._commit(part.token, part.segments)
            part.committed = True
        self._place.finish(part.token)


def part_name(context: PluginContext, suffix: str) -> str:
    """A name that no other part ever has."""
    incarnation = hashlib.sha256(str(context.incarnation).encode()).hexdigest()[:12]
    number = f"{next(_numbers):06d}"
    return f"part-{context.task}-{context.slot}-{incarnation}-{number}{suffix}"
