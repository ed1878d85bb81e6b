"""What outlives processes: the store of chunks, documents, parts of outputs; with their faults.

Every request may be refused, or done and not answered. Everything ever created is noted here, so
that the checks know what was durable, whoever has deleted it since.
"""

from __future__ import annotations

import hashlib
import io
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.sim.windows.violation import fatal
from tests.support.takeover.paired import Paired

from onyx.errors import Fenced, Unavailable
from onyx.flow.batch import as_dicts
from onyx.ids import GroupId, Position
from onyx.log.interface import Document
from onyx.plugins.protocol import Token
from onyx.state.chunks import ChunkReader, StateChunkKind, decode_emitted
from onyx.state.names import LogKey, TaskFolder
from onyx.storage.fenced_log import NOTE
from onyx.storage.interface import ListedFile, MemoryBlobStore

_CHUNK = re.compile(r"/\d{8}\Z")


class Faults:
    """How requests fail: refused with nothing done, or done and not answered."""

    def __init__(self, choice: random.Random, rate: float) -> None:
        self._choice = choice
        self.rate = rate

    def before(self) -> None:
        if self.rate and self._choice.random() < self.rate:
            raise Unavailable("simulated: refused")

    def after(self) -> None:
        if self.rate and self._choice.random() < self.rate:
            raise Unavailable("simulated: done, and the answer was lost")


@dataclass(slots=True)
class Noted:
    """What the logs of one task have ever said and that counts."""

    ids: dict[int, set[int]] = field(default_factory=dict)
    """Of the segments applied, by root."""
    emitted: dict[tuple[int, int], Any] = field(default_factory=dict)
    """By shard and position."""
    opened: dict[LogKey, int] = field(default_factory=dict)
    fenced: dict[LogKey, int] = field(default_factory=dict)


class Storage:
    """A store of chunks that notes what is created.

    How far a log has come is written and read without faults: those are tried where two writers
    take turns (`tests/property`), and here they would be a third of all."""

    def __init__(
        self,
        faults: Faults,
        reported: Callable[[TaskFolder, LogKey, ChunkReader], None],
        between: Callable[[], None],
    ) -> None:
        """`reported` hears of every new chunk; `between` is called before each request."""
        self.chunks = Paired()
        self.faults = faults
        self.tasks: dict[str, Noted] = {}
        self._told = reported
        self._between = between

    def create(self, name: str, data: bytes) -> bool:
        if name.endswith(NOTE):
            return self.chunks.create(name, data)
        self._between()
        self.faults.before()
        new = self.chunks.read(name) is None
        created = self.chunks.create(name, data)
        if new and _CHUNK.search(name):
            self._note(name, data)
        self.faults.after()
        return created

    def note(self, name: str, data: bytes) -> None:
        self.chunks.note(name, data)

    def read(self, name: str) -> bytes | None:
        if name.endswith(NOTE):
            return self.chunks.read(name)
        self._between()
        self.faults.before()
        return self.chunks.read(name)

    def list(self, prefix: str) -> list[ListedFile]:
        self.faults.before()
        return self.chunks.list(prefix)

    def delete(self, name: str) -> None:
        if name.endswith(NOTE):
            self.chunks.delete(name)
            return
        self.faults.before()
        self.chunks.delete(name)
        self.faults.after()

    def delete_all(self, names: Iterable[str]) -> None:
        for each in names:
            self.delete(each)

    def copy(self) -> MemoryBlobStore:
        """As it is now, to be read without consequences."""
        copied = MemoryBlobStore()
        for stored in self.chunks.list(""):
            data = self.chunks.read(stored.name)
            assert data is not None
            copied.create(stored.name, data)
        return copied

    def of(self, task: str) -> Noted:
        return self.tasks.setdefault(task, Noted())

    @fatal
    def _note(self, name: str, data: bytes) -> None:
        job, task, log, seq = name.split("/")
        version, rank = map(int, log.split("-"))
        place, key = TaskFolder(job, task), LogKey(version, rank)
        chunk = ChunkReader(place, key, int(seq), data)
        noted = self.of(task)
        self._told(place, key, chunk)
        kind = chunk.frame.kind
        if kind is StateChunkKind.OPEN:
            noted.opened[key] = 0
        if kind is StateChunkKind.FENCE:
            noted.fenced.setdefault(key, chunk.frame.seq)
        if kind not in (StateChunkKind.CHANGE, StateChunkKind.SNAPSHOT):
            return
        for root, each in zip(*map(list, chunk.columns()), strict=True):
            noted.ids.setdefault(int(root), set()).add(int(each))
        for shard, stored in chunk.shards(set(range(128))):
            for run in decode_emitted(stored.emitted) if stored.emitted else ():
                for position, segment in enumerate(as_dicts(run.segments), run.first):
                    each = {"segment": segment, "child": run.child}
                    before = noted.emitted.setdefault((shard, position), each)
                    assert before == each, (
                        f"W2: position {position} of shard {shard} of {task} was {before}, "
                        f"and is emitted again as {each}"
                    )


class Documents:
    """Chunks and documents beside the log; writers of documents are fenced by their membership."""

    def __init__(self, faults: Faults, member: Callable[[GroupId], bool]) -> None:
        self._faults = faults
        self._member = member
        self._chunks: dict[str, bytes] = {}
        self.documents: dict[str, Document] = {}

    def put_chunk(self, data: bytes, if_room: bool = False) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self._chunks[digest] = data
        return digest

    def get_chunk(self, digest: str) -> bytes:
        self._faults.before()
        return self._chunks[digest]

    def get_document(self, path: str) -> Document | None:
        self._faults.before()
        return self.documents.get(path)

    def put(self, group: GroupId, path: str, data: bytes, version: int | None) -> int | None:
        self._faults.before()
        if not self._member(group):
            raise Fenced(f"group {group} was declared dead")
        present = self.documents.get(path)
        if version != (None if present is None else present.version):
            return None
        written = 0 if version is None else version + 1
        self.documents[path] = Document(bytes(data), written)
        self._faults.after()
        return written


class DocumentsOf:
    """As one group sees them."""

    def __init__(self, documents: Documents, group: GroupId) -> None:
        self._documents = documents
        self._group = group
        self.put_chunk = documents.put_chunk
        self.get_chunk = documents.get_chunk
        self.get_document = documents.get_document

    def read(self, after: Position, entries_max: int) -> tuple[()]:
        return ()

    def put_document(self, path: str, data: bytes, version: int | None) -> int | None:
        return self._documents.put(self._group, path, data, version)


class Place:
    """Parts of one output task: settled ones, and those that can be seen."""

    size_bytes_max = 1 << 30

    def __init__(self, faults: Faults, publishing: Faults) -> None:
        """`publishing`: what is committed may have to wait."""
        self._faults = faults
        self._publishing = publishing
        self.settled: dict[str, tuple[GroupId, bytes]] = {}
        self.visible: dict[str, list[Any]] = {}

    @fatal
    def finish(self, token: Token) -> None:
        self._faults.before()
        self._publishing.before()
        name = token["name"]
        if name in self.visible:
            return
        assert name in self.settled, f"W7: part {name} is committed, and gone"
        lines = self.settled.pop(name)[1].splitlines()
        self.visible[name] = [msgspec.json.decode(line) for line in lines]
        self._faults.after()

    def drop_dead(self, live: Sequence[GroupId]) -> None:
        self._faults.before()
        for name, (group, _) in list(self.settled.items()):
            if group not in live:
                del self.settled[name]

    def segments(self) -> Iterable[Any]:
        return (segment for part in self.visible.values() for segment in part)


class PlaceOf:
    """A `PartStore` for one writer."""

    size_bytes_max = Place.size_bytes_max

    def __init__(self, place: Place, faults: Faults, group: GroupId, number: int) -> None:
        self.place = place
        self._faults = faults
        self._group = group
        self._number = number
        self._made = 0

    def create(self, name: str) -> Staged:
        self._made += 1
        return Staged(self, f"{self._group}-{self._number}-{self._made}")

    def settle(self, name: str, data: bytes) -> None:
        self._faults.before()
        if name not in self.place.visible:
            self.place.settled[name] = (self._group, data)
        self._faults.after()

    def drop(self, name: str) -> None:
        self.place.settled.pop(name, None)

    def finish(self, token: Token) -> None:
        self.place.finish(token)

    def sync(self) -> None: ...

    def fence(self, live: Sequence[GroupId]) -> None:
        self.place.drop_dead(live)

    def explained(self, error: OSError) -> Exception:
        return error

    def close(self) -> None: ...


class Staged:
    """One part until it can be seen."""

    def __init__(self, writer: PlaceOf, name: str) -> None:
        self.file = io.BytesIO()
        self._writer = writer
        self._name = name

    def make_room(self) -> None: ...

    def settle(self) -> None:
        self._writer.settle(self._name, self.file.getvalue())

    def publish(self) -> None:
        raise AssertionError("exactly-once commits first")

    def token(self) -> Token:
        return {"name": self._name}

    def drop(self) -> None:
        self._writer.drop(self._name)
