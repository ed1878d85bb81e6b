"""The state log of one peer in one allocation version: one writer appends, until it is fenced.

Invariant: chunk N is created only if no chunk N exists, and only after chunk N - 1 exists. A peer
of a newer version ends the log by creating a FENCE chunk in the same way, at the first free number.
So the store decides which of the two was first: the chunk before the fence counts and is read by
every reader, and a writer that finds the fence has appended nothing.

When the store does not answer, a chunk may exist or not. Its bytes are kept and created again,
under the same number, before anything else: creating the same bytes twice is one chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from onyx.errors import Fenced, InvariantViolated
from onyx.settings import StateSettings
from onyx.state.chunk_codec import (
    Frame,
    Kind,
    Section,
    all_sections_of,
    encode_chunk,
    sections_of,
)
from onyx.state.chunks import Chunk, ShardChange
from onyx.state.collecting import collect
from onyx.state.gathering import Size
from onyx.state.names import LogKey, TaskFolder
from onyx.storage import ends
from onyx.storage.interface import BlobStore

PART_BYTES = 16_777_216
"""Size from which on a part of a snapshot is written."""
_SLICE_RECORDS = 10_000
"""A shard's records go into a snapshot in slices, so that parts do not get much larger."""


class StateLog:
    """An open log. One thread at a time; every method but `wants_snapshot` blocks on the store.

    Nothing may be appended before the job is ready in this allocation version: only then do the
    peers of every newer version find this log.
    """

    def __init__(
        self,
        store: BlobStore,
        folder: TaskFolder,
        key: LogKey,
        shards: Iterable[int],
        seq: int,
        size: Size,
        settings: StateSettings,
    ) -> None:
        """`seq`: number of the next chunk. `size`: of what a reader of this log has to read."""
        self._store = store
        self._folder = folder
        self._key = key
        self._shards = frozenset(shards)
        self._seq = seq
        self._size = size
        self._settings = settings
        self._fenced = False
        self._doubtful: tuple[Chunk, Frame, bytes, int] | None = None
        """The chunk that may exist already under the next number, and how many values it has."""
        self._whole: int | None = None
        """Where the last complete snapshot begins."""

    def append(self, chunk: Chunk) -> None:
        """Make a chunk durable.

        Raises:
            Fenced: a newer version owns the shards; nothing of `chunk` counts.
            Unavailable: it is in doubt whether the chunk is durable. Append the same object again:
                it is written once.
            SegmentError: a value has no encoding.
            UserError: the store refuses (rights, path).
        """
        if self._doubtful is None or self._doubtful[0] is not chunk:
            # What is in doubt comes first: it may be there under the next number, and then nothing
            # but its own bytes can be created under it.
            self._settle()
            self._prepare(chunk, Frame(Kind.CHANGE, self._seq), all_sections_of(chunk.shards))
        self._settle()

    @property
    def wants_snapshot(self) -> bool:
        """Whether the log takes longer to read and restore than a snapshot would."""
        settings = self._settings
        allowed = max(settings.snapshot_bytes_min, settings.snapshot_factor * self._size.snapshot)
        return self._size.since > allowed

    def snapshot(self, chunk: Chunk) -> None:
        """Write the whole state: every shard of this log, all ids that are known, the watermark.
        What is read afterwards begins here. Raises like `append`; to be called again then."""
        if chunk.shards.keys() != self._shards:
            raise InvariantViolated(
                f"a snapshot of {self._folder} has shards {sorted(chunk.shards)}, but the log has "
                f"{sorted(self._shards)}"
            )
        self._settle()
        start, before = self._seq, self._size
        # As much is behind the last whole snapshot until this one is complete: one that fails is
        # still wanted.
        self._size = Size(0, before.since)
        content = chunk
        for part, last in _parts(chunk):
            self._prepare(content, Frame(Kind.SNAPSHOT, self._seq, start=start, last=last), part)
            self._settle()
            content = Chunk()
        # Not before its last part is durable: `collect` deletes all that is before a whole
        # snapshot.
        self._whole = start
        self._size.since = 0

    def collect(self) -> None:
        """Delete what no reader needs: own chunks before the last snapshot, and older logs
        all of whose shards have a snapshot in this version. Call it after `snapshot`, from any
        thread; a failure is logged, and the next call tries again."""
        if self._whole is not None:
            collect(self._store, self._folder, self._key, self._whole)

    def _prepare(self, chunk: Chunk, frame: Frame, sections: list[Section]) -> None:
        data = encode_chunk(self._folder, self._key, frame, chunk, sections)
        self._doubtful = chunk, frame, data, sum(section.values for section in sections)

    def _settle(self) -> None:
        """Create the chunk that is in doubt, if there is one."""
        if self._fenced:
            raise self._no_owner()
        if self._doubtful is None:
            return
        _, frame, data, values = self._doubtful
        if not self._store.create(self._folder.chunk(self._key, self._seq), data):
            # Other bytes under this number are a fence: nobody else appends to this log.
            self._fenced = True
            raise self._no_owner()
        ends.reach(self._store, self._folder.end(self._key), self._seq)
        self._doubtful = None
        self._seq += 1
        self._size.add(frame.kind, len(data), values)

    def _no_owner(self) -> Fenced:
        return Fenced(
            f"job {self._folder.job!r}, task {self._folder.task!r}: the state of allocation "
            f"version {self._key.version}, rank {self._key.rank}, belongs to a newer version now"
        )


def _parts(chunk: Chunk) -> Iterator[tuple[list[Section], bool]]:
    """The shards of a snapshot in parts of some size, and whether it is the last one."""
    part: list[Section] = []
    size = 0
    for number, change in chunk.shards.items():
        for section in sections_of((number, piece) for piece in _slices(change)):
            part.append(section)
            size += section.size_bytes
            if size >= PART_BYTES:
                yield part, False
                part, size = [], 0
    yield part, True


def _slices(change: ShardChange) -> Iterator[ShardChange]:
    """The change, its records in slices."""
    yield replace(change, records=change.records[:_SLICE_RECORDS])
    for first in range(_SLICE_RECORDS, len(change.records), _SLICE_RECORDS):
        records = change.records[first : first + _SLICE_RECORDS]
        yield ShardChange(records, settled=change.settled, closed=change.closed)
