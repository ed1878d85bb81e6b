"""Chunks of a task's logs, read ahead by a few threads.

Reading waits for disks and networks and checks sums, all of which leaves the interpreter alone; so
threads help. What is read ahead is bounded in bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from onyx.state.chunk_codec import ChunkReader, Frame, Kind, encode_chunk
from onyx.state.chunks import Chunk
from onyx.state.local.spool import Keep
from onyx.state.names import Listed, LogKey, TaskFolder, by_log
from onyx.storage.ends import reached
from onyx.storage.interface import BlobStore

THREADS = 8
AHEAD_CHUNKS_MAX = 64
AHEAD_BYTES_MAX = 67_108_864


class ChunkMissing(Exception):
    """A chunk, or a file beside a log, does not exist, or not any more: list the logs again."""


class Reader:
    """Reads the chunks of one task; `progress` hears bytes done and to do, and `keep` says how the
    records of shards are held until they are wanted."""

    def __init__(
        self,
        store: BlobStore,
        folder: TaskFolder,
        progress: Callable[[int, int], None],
        threads: ThreadPoolExecutor,
        keep: Keep = bytes,
    ) -> None:
        self._store = store
        self._folder = folder
        self._progress = progress
        self._threads = threads
        self._keep = keep
        self._done = 0
        self._total = 0

    def expect(self, size_bytes: int) -> None:
        """So much more will be read."""
        self._total += size_bytes

    def one(self, key: LogKey, seq: int) -> ChunkReader:
        """
        Raises:
            ChunkMissing: it is not there.
            StateError: it is not what it should be.
        """
        name = self._folder.chunk(key, seq)
        data = self._store.read(name)
        if data is None:
            raise ChunkMissing(name)
        return ChunkReader(self._folder, key, seq, data, self._keep)

    def opened(self, keys: Iterable[LogKey]) -> dict[LogKey, ChunkReader]:
        """The first chunks of logs. Raises like `one`."""
        keys = sorted(keys)
        return dict(zip(keys, self._threads.map(lambda key: self.one(key, 0), keys), strict=True))

    def begun(self, logs: Mapping[LogKey, Listed]) -> dict[LogKey, ChunkReader]:
        """The first chunks of those logs that have one: of a log that says how far it has come the
        first chunk may be about to be written. Raises like `one`."""
        opened = self.opened(key for key, log in logs.items() if log.opened)
        for key, log in logs.items():
            if not log.ends:
                raise ChunkMissing(self._folder.end(key))
            if not log.opened and reached(self._store, self._folder.end(key)):
                raise ChunkMissing(self._folder.chunk(key, 0))
        return opened

    def chunks(self, key: LogKey, first: int, end: int, log: Listed) -> Iterator[ChunkReader]:
        """Chunks `first` to before `end`, in order. Raises like `one`."""
        ahead: deque[Future[ChunkReader]] = deque()
        sizes: deque[int] = deque()
        for seq in range(first, end):
            ahead.append(self._threads.submit(self.one, key, seq))
            sizes.append(log.sizes.get(seq, 0))
            while ahead and (len(ahead) > AHEAD_CHUNKS_MAX or sum(sizes) > AHEAD_BYTES_MAX):
                sizes.popleft()
                yield self._counted(ahead.popleft().result())
        for each in ahead:
            yield self._counted(each.result())

    def fences(self, logs: Mapping[LogKey, Listed]) -> dict[LogKey, int]:
        """`fence` for several logs."""
        found = self._threads.map(lambda key: self.fence(key, logs[key]), logs)
        return dict(zip(logs, found, strict=True))

    def fence(self, key: LogKey, log: Listed) -> int:
        """End a log, if nobody has; the number of the chunk that ends it. Raises like `one`.

        The number of a deleted chunk is free again, and a fence there ends nothing: the writer has
        a snapshot behind it, and goes on. So a fence that was not listed counts only as the last
        chunk of its log."""
        seq = self._end(key, log)
        if seq == log.last:
            return seq
        while not self._fenced(key, seq):
            seq += 1
        if self._last(key) > seq:
            raise ChunkMissing(self._folder.chunk(key, seq))
        return seq

    def ends(self, logs: Mapping[LogKey, Listed]) -> dict[LogKey, int]:
        """The number after the last chunk of each log as it is listed, without ending any. Raises
        like `one`."""
        found = self._threads.map(lambda key: self._end(key, logs[key]), logs)
        return dict(zip(logs, found, strict=True))

    def check_end(self, key: LogKey, log: Listed) -> None:
        """That a log is listed up to its end. Raises like `one`."""
        seq = reached(self._store, self._folder.end(key))
        if seq is None:
            raise ChunkMissing(self._folder.end(key))
        if seq > log.last:
            raise ChunkMissing(self._folder.chunk(key, log.last + 1))

    def unmarked(self, key: LogKey, log: Listed) -> str:
        """What is missing of a log whose first chunks are gone though no snapshot is marked: the
        mark of its first one, or its first chunk. Raises like `one`."""
        for seq in sorted(log.sizes)[1:]:
            frame = self.one(key, seq).frame
            if frame.kind is Kind.SNAPSHOT and frame.start == seq:
                return self._folder.mark(key, seq)
        return self._folder.chunk(key, 1)

    def _end(self, key: LogKey, log: Listed) -> int:
        """The number of its fence, or else after its last chunk. A fence says itself where a log
        ends: before it nothing can be missing without a gap."""
        if log.last > 0 and self._is_fence(key, log.last):
            return log.last
        self.check_end(key, log)
        return log.last + 1

    def _fenced(self, key: LogKey, seq: int) -> bool:
        fence = encode_chunk(self._folder, key, Frame(Kind.FENCE, seq), Chunk(), ())
        return self._store.create(self._folder.chunk(key, seq), fence) or self._is_fence(key, seq)

    def _is_fence(self, key: LogKey, seq: int) -> bool:
        return self.one(key, seq).frame.kind is Kind.FENCE

    def _last(self, key: LogKey) -> int:
        found = by_log(self._folder, self._store.list(self._folder.log(key)))
        return found[key].last if key in found else -1

    def _counted(self, chunk: ChunkReader) -> ChunkReader:
        self._done += chunk.size_bytes
        self._total = max(self._done, self._total)
        self._progress(self._done, self._total)
        return chunk
