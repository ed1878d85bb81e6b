"""Chunks of a task's logs, read ahead by a few threads.

Reading waits for disks and networks and checks sums, all of which leaves the interpreter alone; so
threads help. What is read ahead is bounded in bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ClassVar

from onyx.base.structs import RESTORE
from onyx.errors import Fenced, StateError
from onyx.state.chunks import Chunk, ChunkFrame, ChunkReader, StateChunkKind, encode_chunk
from onyx.state.local.scratch import Keep
from onyx.state.names import LogKey, TaskFolder
from onyx.storage.fenced_log import FencedLogs, Listed, Missing
from onyx.storage.interface import BlobStore

THREADS = 8
AHEAD_CHUNKS_MAX = 64
AHEAD_BYTES_MAX = 67_108_864


class StateLogs(FencedLogs[LogKey, ChunkReader]):
    """The logs of one task; `keep` says how the records of shards are held until they are
    wanted."""

    WHAT: ClassVar[str] = "state"
    folder: TaskFolder

    def __init__(self, store: BlobStore, folder: TaskFolder, keep: Keep = bytes) -> None:
        super().__init__(store, folder)
        self._keep = keep

    def decode(self, key: LogKey, seq: int, data: bytes) -> ChunkReader:
        """A chunk, its shards still encoded."""
        return ChunkReader(self.folder, key, seq, data, self._keep)

    def fence_data(self, key: LogKey, seq: int) -> bytes:
        """A chunk of nothing."""
        return encode_chunk(self.folder, key, ChunkFrame(StateChunkKind.FENCE, seq), Chunk(), ())

    def fenced(self, key: LogKey) -> Fenced:
        """Peers of a newer version have the shards."""
        return Fenced(
            f"job {self.folder.job!r}, task {self.folder.task!r}: the state of allocation "
            f"version {key.version}, rank {key.rank}, belongs to a newer version now"
        )

    def lost(self, missing: Missing | str) -> StateError:
        """Something is gone, or else what is said."""
        what = missing if isinstance(missing, str) else f"{missing} is gone"
        return StateError(
            f"state of job {self.folder.job!r}, task {self.folder.task!r}: {what}; {RESTORE}"
        )


class ReadAhead(StateLogs):
    """Reads the logs of one task with threads; `progress` hears bytes done and to do."""

    def __init__(
        self,
        store: BlobStore,
        folder: TaskFolder,
        threads: ThreadPoolExecutor,
        progress: Callable[[int, int], None] = lambda done, total: None,
        keep: Keep = bytes,
    ) -> None:
        super().__init__(store, folder, keep)
        self._threads = threads
        self._progress = progress
        self._done = self._total = 0

    def expect(self, size_bytes: int) -> None:
        """So much will be read."""
        self._done, self._total = 0, size_bytes

    def opened(self, keys: Iterable[LogKey]) -> dict[LogKey, ChunkReader]:
        """The first chunks of logs. Raises like `read`."""
        keys = sorted(keys)
        return dict(zip(keys, self._threads.map(lambda key: self.read(key, 0), keys), strict=True))

    def chunks(self, key: LogKey, first: int, end: int, log: Listed) -> Iterator[ChunkReader]:
        """Chunks `first` to before `end`, in order. Raises like `read`."""
        ahead: deque[Future[ChunkReader]] = deque()
        sizes: deque[int] = deque()
        for seq in range(first, end):
            ahead.append(self._threads.submit(self.read, key, seq))
            sizes.append(log.sizes.get(seq, 0))
            while ahead and (len(ahead) > AHEAD_CHUNKS_MAX or sum(sizes) > AHEAD_BYTES_MAX):
                sizes.popleft()
                yield self._counted(ahead.popleft().result())
        for each in ahead:
            yield self._counted(each.result())

    def ends(self, logs: Mapping[LogKey, Listed], fences: bool) -> dict[LogKey, int]:
        """`fence` for several logs, or else `end`."""
        find = self.fence if fences else self.end
        return dict(zip(logs, self._threads.map(find, logs, logs.values()), strict=True))

    def unmarked(self, key: LogKey, log: Listed) -> Missing:
        """What is missing of a log whose first chunks are gone though no snapshot is marked: the
        mark of its first one, or its first chunk. Raises like `read`."""
        for seq in sorted(log.sizes)[1:]:
            frame = self.read(key, seq).frame
            if frame.kind is StateChunkKind.SNAPSHOT and frame.start == seq:
                return Missing(self.folder.mark(key, seq))
        return Missing(self.folder.chunk(key, 1))

    def _counted(self, chunk: ChunkReader) -> ChunkReader:
        self._done += chunk.size_bytes
        self._total = max(self._done, self._total)
        self._progress(self._done, self._total)
        return chunk
