"""Requests that are held back for a batch of a write, and the commit of the batch.

    <job>/journal.held/<task>/<digest of the write>/<batch>/<writer>/<number>
    <job>/journal.held/<task>/<digest of the write>/<batch>/committed
    <job>/journal.held/<task>/<digest of the write>/<batch>/taken

Any worker may write and read them: there is no owner, and nothing to fence. What decides is that
`committed` is created once. From then on the batch is what that file says, whoever commits it
again. Its requests go into the journal under ids that follow from their names, so whoever does
that again does no harm. When all are there, `taken` says so, and they go from here. So a request of
a committed batch that is not taken is here, or it is lost, and is missed.

Requests that nobody commits go (`held_room`). A commit that comes at the same moment misses them.

The state of a job that was upgraded is looked through too: what is held there counts, and what was
committed there is committed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from onyx.base.structs import RESTORE
from onyx.codec.sealed import Format, opened, seal
from onyx.errors import StateError, UserError
from onyx.requests.request import BatchOfWrite, Form, Payload, WriterOfBatch
from onyx.storage.interface import BlobStore

HELD = "journal.held"
"""A folder of a job, beside its tasks, whose names have no dot."""
FORMAT = Format(b"ONYXJR", 1, "held request")
COMMIT_FORMAT = Format(b"ONYXJC", 1, "commit of a write")
KEPT_BATCHES = 100
"""Batches of a write that are known to be committed; older ones are forgotten."""
COMMITTED, _TAKEN = "committed", "taken"
_NAME = re.compile(r"(\d{20})/(?:(.+)/(\d{10})|committed|taken)\Z")


class Decision(msgspec.Struct, array_like=True, frozen=True):
    """What a batch is."""

    writers: tuple[WriterOfBatch, ...]
    wall_ms: int
    """When that was decided."""


class Name(NamedTuple):
    """A request that is held."""

    writer: str
    number: int


class NotHeld(UserError):
    """A batch was to be committed of which something is not here."""


_encoder = msgspec.msgpack.Encoder()
_decisions = msgspec.msgpack.Decoder(Decision)
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

    def hold(self, name: Name, payload: Payload) -> bool:
        """Make a request durable; False: another one is there."""
        data = seal(FORMAT, _encoder.encode(payload.form), [payload.data])
        return self._store.create(_file(self._folders[0], name), data)

    def read(self, name: Name) -> Payload | None:
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

    def commit(self, writers: Sequence[WriterOfBatch], wall_ms: int) -> Decision:
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
            found = found or Decision(tuple(writers), wall_ms)
        data = seal(COMMIT_FORMAT, _encoder.encode(found), ())
        name = f"{self._folders[0]}{COMMITTED}"
        if self._store.create(name, data):
            return found
        there = self._store.read(name)
        if there is None:
            raise NotHeld(f"{self._words} was committed long ago")
        return _decision(name, there)

    def left(self, decision: Decision) -> list[list[Name]]:
        """The requests of a committed batch, in order, by writer; none when all are taken."""
        if self._is_taken():
            return []
        found = ([Name(name, each) for each in range(count)] for name, count in decision.writers)
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

    def _committed(self) -> Decision | None:
        for folder in self._folders:
            name = f"{folder}{COMMITTED}"
            data = self._store.read(name)
            if data is not None:
                return _decision(name, data)
        return None

    def _is_taken(self) -> bool:
        return any(self._store.read(f"{folder}{_TAKEN}") is not None for folder in self._folders)

    def _held(self) -> set[Name]:
        found = set()
        for write, folder in zip(self._writes, self._folders, strict=True):
            for name, _ in self._store.list(folder):
                match = _NAME.match(name.removeprefix(write))
                if match and match[2]:
                    found.add(Name(match[2], int(match[3])))
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
                if Name(name, number) not in here:
                    return (
                        f"request {number} of {name} is not held for {self._words}: write it again"
                    )
        return ""

    @property
    def _words(self) -> str:
        return f"batch {self._batch.batch} of write {self._batch.write!r}"


def _file(folder: str, name: Name) -> str:
    return f"{folder}{name.writer}/{name.number:010d}"


def _payload(name: str, data: bytes) -> Payload:
    form, body = opened(FORMAT, _forms, data, f"file {name} of a batch")
    return Payload(form, bytes(body))


def _decision(name: str, data: bytes) -> Decision:
    return opened(COMMIT_FORMAT, _decisions, data, f"file {name} of a batch")[0]
