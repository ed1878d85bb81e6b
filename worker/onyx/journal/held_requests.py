"""Requests that are held back for a batch of a write, and the commit of the batch.

    <job>/journal.held/<task>/<digest of the write>/<batch>/<writer>/<number>
    <job>/journal.held/<task>/<digest of the write>/<batch>/committed
    <job>/journal.held/<task>/<digest of the write>/<batch>/taken

Any worker may write and read them: there is no owner, and nothing to fence. What decides is that
`committed` is created once. From then on the batch is what that file says, whoever commits it
again. Its requests go into the journal under ids that follow from their names, so whoever does
that again does no harm. When all are there, `taken` says so, and they go from here. So a request of
a committed batch that is not taken is here, or it is lost, and is missed.

The state of a job that was upgraded is looked through too: what is held there counts, and what was
committed there is committed.

What is held has a bound. It lies in a store that all workers see, and each may hold: so the sum is
what a listing says, with what this process has added since; it is listed again often enough that
all workers together go beyond the bound by a part of it only.

Who has begun a write may never commit it. A file has no age in a store, so a process remembers
since when it has seen the requests of a writer unchanged. After a day they go. A commit that comes
at the same moment misses them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from onyx.base.structs import RESTORE
from onyx.codec.sealed import FileFormat, opened, seal
from onyx.errors import StateError, UserError
from onyx.requests.request import BatchOfWrite, Form, Payload, WriterOfBatch
from onyx.storage.interface import BlobStore

HELD = "journal.held"
"""A folder of a job, beside its tasks, whose names have no dot."""
FORMAT = FileFormat(b"ONYXJR", 1, "held request")
COMMIT_FORMAT = FileFormat(b"ONYXJC", 1, "commit of a write")
KEPT_BATCHES = 100
"""Batches of a write that are known to be committed; older ones are forgotten."""
COMMITTED, _TAKEN = "committed", "taken"
_NAME = re.compile(r"(\d{20})/(?:(.+)/(\d{10})|committed|taken)\Z")
_WRITER = re.compile(r"([^/]+/\d{20})/[^/]+\Z")
"""The folder of a writer, with that of its batch below that of the input."""
HELD_REQUEST_BYTES = 512
"""What a request counts beside its bytes: a name, and a file or an object."""
LOOK_INTERVAL_S = 10.0
AGAIN_S = 1.0
"""Between two listings where there is no room."""
SHARE = 16
"""After the n-th part of the bound was added here the store is listed again."""
GIVEN_UP_S = 86_400.0
"""How long the requests of a writer are held that do not change."""


class BatchDecision(msgspec.Struct, array_like=True, frozen=True):
    """What a batch is."""

    writers: tuple[WriterOfBatch, ...]
    wall_ms: int
    """When that was decided."""


class HeldName(NamedTuple):
    """A request that is held."""

    writer: str
    number: int


class NotHeld(UserError):
    """A batch was to be committed of which something is not here."""


_encoder = msgspec.msgpack.Encoder()
_decisions = msgspec.msgpack.Decoder(BatchDecision)
_forms = msgspec.msgpack.Decoder(Form)


class HeldBatch:
    """A batch of a write in a store. Every method blocks, and raises like those of the store."""

    def __init__(
        self, store: BlobStore, jobs: Sequence[str], task: str, batch: BatchOfWrite
    ) -> None:
        """`jobs` are the job and those that it upgraded, the newest first."""
        self._store = store
        self._batch = batch
        self._writes = [f"{job}/{HELD}/{task}/{batch.digest}/" for job in jobs]
        self._folders = [f"{write}{batch.batch:020d}/" for write in self._writes]

    def hold(self, name: HeldName, payload: Payload) -> bool:
        """Make a request durable; False: another one is there."""
        data = seal(FORMAT, _encoder.encode(payload.form), [payload.data])
        return self._store.create(_file(self._folders[0], name), data)

    def read(self, name: HeldName) -> Payload | None:
        """A request of a committed batch; None: all of it is in the journal. Raises StateError: it
        is damaged, or gone."""
        for folder in self._folders:
            data = self._store.read(_file(folder, name))
            if data is not None:
                return _payload(_file(folder, name), data)
        if self._is_taken():
            return None
        raise StateError(
            f"file {_file(self._folders[0], name)} is gone, which is request {name.number} of "
            f"{name.writer} in {self._words}: it is committed, and not in the journal; {RESTORE}"
        )

    def commit(self, writers: Sequence[WriterOfBatch], wall_ms: int) -> BatchDecision:
        """What the batch is from now on: these writers, unless it was committed before.

        Raises:
            NotHeld: a request of them is not here, or the batch is one of long ago.
            StateError: a file is damaged.
        """
        found = self._committed()
        if found is None:
            missing = self._missing(writers)
            # Whoever has committed the batch meanwhile removes what others hold of it.
            found = self._committed() if missing else None
            if missing and found is None:
                raise NotHeld(missing)
            found = found or BatchDecision(tuple(writers), wall_ms)
        data = seal(COMMIT_FORMAT, _encoder.encode(found), ())
        name = f"{self._folders[0]}{COMMITTED}"
        if self._store.create(name, data):
            return found
        there = self._store.read(name)
        if there is None:
            raise NotHeld(f"{self._words} was committed long ago")
        return _decision(name, there)

    def left(self, decision: BatchDecision) -> list[list[HeldName]]:
        """The requests of a committed batch, in order, by writer; none when all are taken."""
        if self._is_taken():
            return []
        found = (
            [HeldName(name, each) for each in range(count)] for name, count in decision.writers
        )
        return [names for names in found if names]

    def sweep(self) -> None:
        """The batch is in the journal: what is held of it goes, by others too, and what is old."""
        self._store.create(f"{self._folders[0]}{_TAKEN}", b"")
        for name in self._held():
            for folder in self._folders:
                self._store.delete(_file(folder, name))
        oldest = self._batch.batch - KEPT_BATCHES
        for write in self._writes:
            for stored in self._store.list(write):
                found = _NAME.match(stored.name.removeprefix(write))
                if found and int(found[1]) <= oldest:
                    self._store.delete(stored.name)

    def _committed(self) -> BatchDecision | None:
        for folder in self._folders:
            name = f"{folder}{COMMITTED}"
            data = self._store.read(name)
            if data is not None:
                return _decision(name, data)
        return None

    def _is_taken(self) -> bool:
        return any(self._store.read(f"{folder}{_TAKEN}") is not None for folder in self._folders)

    def _held(self) -> set[HeldName]:
        found = set()
        for write, folder in zip(self._writes, self._folders, strict=True):
            for name, _ in self._store.list(folder):
                match = _NAME.match(name.removeprefix(write))
                if match and match[2]:
                    found.add(HeldName(match[2], int(match[3])))
        return found

    def _missing(self, writers: Sequence[WriterOfBatch]) -> str:
        """Why the batch cannot be committed; empty if it can."""
        newest = -1
        for write in self._writes:
            names = [name.removeprefix(write) for name, _ in self._store.list(write)]
            found = [match for match in map(_NAME.match, names) if match and not match[2]]
            newest = max([newest, *(int(match[1]) for match in found)])
        if newest - self._batch.batch >= KEPT_BATCHES:
            return f"{self._words} is committed too late: batch {newest} of it has been already"
        here = self._held()
        for name, count in writers:
            for number in range(count):
                if HeldName(name, number) not in here:
                    return (
                        f"request {number} of {name} is not held for {self._words}: write it again"
                    )
        return ""

    @property
    def _words(self) -> str:
        return f"batch {self._batch.batch} of write {self._batch.write!r}"


class HeldRoom:
    """The room of one input. Methods block, and raise like those of the store."""

    def __init__(
        self, store: BlobStore, jobs: Sequence[str], task: str, clock_s: Callable[[], float]
    ) -> None:
        """`jobs` are the job and those that it upgraded, as in `HeldBatch`."""
        self._store = store
        self._folders = [f"{job}/{HELD}/{task}/" for job in jobs]
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._total = 0
        self._added = 0
        self._looked_s: float | None = None
        self._seen: dict[str, tuple[int, float]] = {}
        """By the folder of a writer, the size of what it holds, and since when it is that."""

    def take(self, size_bytes: int, bytes_max: int) -> str:
        """Count a request that is to be held; or why there is no room for it."""
        size = size_bytes + HELD_REQUEST_BYTES
        with self._lock:
            now_s = self._clock_s()
            age_s = LOOK_INTERVAL_S if self._looked_s is None else now_s - self._looked_s
            is_full = self._total + size > bytes_max
            if (
                age_s >= LOOK_INTERVAL_S
                or (is_full and age_s >= AGAIN_S)
                or self._added + size > bytes_max // SHARE
            ):
                self._look(now_s)
            if self._total + size > bytes_max:
                return (
                    f"writes hold {self._total:,} bytes that are not committed, of {bytes_max:,} "
                    "that they may (journalBytesMax, for each partition); commit them, or in "
                    "smaller batches"
                )
            self._total += size
            self._added += size
            return ""

    def _look(self, now_s: float) -> None:
        sizes: dict[str, int] = {}
        for folder in self._folders:
            for name, size in self._store.list(folder):
                writer = name.rpartition("/")[0]
                sizes[writer] = sizes.get(writer, 0) + size + HELD_REQUEST_BYTES
        before = self._seen
        self._seen = {
            writer: before[writer] if before.get(writer, (-1,))[0] == size else (size, now_s)
            for writer, size in sizes.items()
        }
        for writer, (_, since_s) in self._seen.items():
            if now_s - since_s >= GIVEN_UP_S:
                self._give_up(writer)
        self._total, self._added, self._looked_s = sum(sizes.values()), 0, now_s

    def _give_up(self, writer: str) -> None:
        """Remove what a writer holds, unless its batch is committed, in whichever job that was."""
        found = _WRITER.search(writer)
        if found is None:
            return  # what says that a batch is committed or taken, which goes with later ones
        if any(self._store.read(f"{each}{found[1]}/{COMMITTED}") for each in self._folders):
            return
        for name, _ in self._store.list(f"{writer}/"):
            self._store.delete(name)


def _file(folder: str, name: HeldName) -> str:
    return f"{folder}{name.writer}/{name.number:010d}"


def _payload(name: str, data: bytes) -> Payload:
    form, body = opened(FORMAT, _forms, data, f"file {name} of a batch")
    return Payload(form, bytes(body))


def _decision(name: str, data: bytes) -> BatchDecision:
    return opened(COMMIT_FORMAT, _decisions, data, f"file {name} of a batch")[0]
