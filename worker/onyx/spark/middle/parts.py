"""Parts of several frames that are published together.

What an output has made durable is a prefix of what it was given, in that order. Segments of several
upstream tasks come in turn, so the parts that they are written to, one for each task, end together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.ids import GroupId
from onyx.plugins.parts.columns import ColumnsBody, ColumnsFormat
from onyx.plugins.protocol import Token
from onyx.storage.staging.interface import PartStore, StagedPart

_PARTS = "parts"


class FrameParts:
    """A store of parts (`staging.interface.PartStore`) whose tokens stand for several."""

    def __init__(self, store: PartStore) -> None:
        self._store = store
        self.size_bytes_max = store.size_bytes_max

    def create(self, name: str) -> StagedPart:
        """One of them."""
        return self._store.create(name)

    def finish(self, token: Token) -> None:
        """Publish all of a token."""
        for each in token[_PARTS]:
            self._store.finish(each)

    def fence(self, live: Sequence[GroupId]) -> None:
        """Make it impossible for incarnations that are not `live` to publish what they staged."""
        self._store.fence(live)

    def sweep(self) -> None:
        """Remove what writers have left staged whose names begin as this one's."""
        self._store.sweep()

    def explained(self) -> AbstractContextManager[None]:
        """Raises errors of the system as errors of this task."""
        return self._store.explained()

    def close(self) -> None:
        """Remove what is staged and not published, as far as that is possible now."""
        self._store.close()


class StagedFrames:
    """Parts that are published together (`staging.interface.Staged`), and what is written to them
    (`parts.columns.ColumnsBody`)."""

    def __init__(
        self, create: Callable[[str], StagedPart], form: ColumnsFormat, chosen: Callable[[], str]
    ) -> None:
        """
        Args:
            create: makes the part of a frame.
            chosen: the frame that is written to now.
        """
        self._create = create
        self._form = form
        self._chosen = chosen
        self._parts: dict[str, tuple[StagedPart, ColumnsBody]] = {}
        self._published: set[str] = set()

    def add(self, segments: list[Segment]) -> None:
        """Add segments of the chosen frame."""
        self._body().add(segments)

    def add_columns(self, columns: Columns) -> None:
        """Adds what `add` does, in columns."""
        self._body().add_columns(columns)

    def size_bytes(self) -> int:
        """The size of all frames."""
        return sum(body.size_bytes() for _, body in self._parts.values())

    def finish(self) -> None:
        """Write what is left of all frames."""
        for _, body in self._parts.values():
            body.finish()

    def make_room(self) -> None:
        """Hand over what was written, so that it does not fill memory."""
        for staged, _ in self._parts.values():
            staged.make_room()

    def settle(self) -> None:
        """Make the staged part durable."""
        for staged, _ in self._parts.values():
            staged.settle()

    def publish(self) -> None:
        """Publish them one by one. One that is published may be read and removed at once, so it is
        not looked for again."""
        for frame, (staged, _) in self._parts.items():
            if frame not in self._published:
                staged.publish()
                self._published.add(frame)

    def token(self) -> Token:
        """What any worker needs to publish a settled part (`PartStore.finish`)."""
        return {_PARTS: [dict(staged.token()) for staged, _ in self._parts.values()]}

    def drop(self) -> None:
        """Give the part up, as far as that is possible now."""
        for staged, _ in self._parts.values():
            staged.drop()

    def _body(self) -> ColumnsBody:
        frame = self._chosen()
        if frame not in self._parts:
            staged = self._create(frame)
            self._parts[frame] = staged, self._form.begin(staged.file)
        return self._parts[frame][1]
