"""Logs of chunks in a store: one writer appends to each, until whoever takes over ends it.

    <folder>/<log>/<number>           a chunk; number 0 says what the log is, and stays
    <folder>/<log>/<number><mark>     a mark: it stands for chunks before it, which may be gone
    <folder>/<log>.end                a note: the number of the last chunk

Invariant: chunk N of a log is created only if no chunk N exists, and only after chunk N - 1 exists.
Whoever takes over ends a log by creating a *fence* in the same way, at the first free number. So
the store decides which of the two was first: the chunk before the fence counts and is read by every
reader, and a writer that finds the fence has appended nothing. A fence stays for as long as the
job: a writer that wakes up years later must still find it.

When the store does not answer, a chunk may exist or not. Its bytes are kept and created again,
under the same number, before anything else: creating the same bytes twice is one chunk.

The number of a deleted chunk is free again, and a fence there ends nothing: its writer is further
on. So **a fence ends its log if a listing from after its creation has nothing else of the log at
its number or behind it, and the note is below its number.** Proof: suppose that its number had
been used. Then that chunk was gone. A writer deletes only what a mark at its number or behind
stands for, and an older mark only after a newer one is there; others delete only what is before a
fence. So at each moment something was there, at the number or behind it. An object store lists in
the order of names, and what is there moves to higher ones, so the listing has it. A folder lists in
any order, and may miss what moves; but its note is never behind. If the number was never used, its
writer comes to the fence next.

A chunk that is missing between others leaves a gap. The last one leaves none: whoever reads the log
would take the chunk before for its end, and go on without what was promised. So the writer notes
the number of each chunk that is durable, before anybody hears of it. The note is there before the
first chunk is, so a log without it has lost it. The note of an object store may be behind
(`BlobStore.note`), and none is ever ahead.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, Generic, Protocol, TypeVar

import msgspec
from msgspec import field

from onyx.base.structs import RESTORE, UNREADABLE
from onyx.errors import Fenced, StateError, Unavailable
from onyx.storage.interface import BlobStore

NOTE = ".end"
"""Behind the name of a log."""
TRIES_MAX = 8
"""How often logs are listed again, because somebody has collected what was listed."""
SAME_MAX = 3
"""After so many listings that are the same nobody has: one of a folder may miss what moves."""
_NOTE_DIGITS = 12


class Missing(Exception):
    """A file does not exist, or not any more: list the logs again."""


class AnyChunk(Protocol):
    """A chunk as it was read."""

    @property
    def is_fence(self) -> bool:
        """Whether it ends its log."""


K = TypeVar("K")
"""What a log is called by. Keys have the order of their names."""
C = TypeVar("C", bound=AnyChunk)
T = TypeVar("T")


class Listed(msgspec.Struct):
    """What a listing says of one log."""

    sizes: dict[int, int] = field(default_factory=dict)
    """Bytes of each chunk by its number, in order."""
    marks: list[int] = field(default_factory=list)
    """Their numbers, in order."""
    noted: bool = False
    """Whether it is said how far the log has come."""

    @property
    def opened(self) -> bool:
        """Whether its first chunk is there."""
        return 0 in self.sizes

    @property
    def first(self) -> int:
        """The number of the first chunk behind the one that opened it; 1 without any."""
        return min((seq for seq in self.sizes if seq), default=1)

    @property
    def last(self) -> int:
        """The number of the last chunk, which may be collected; -1 without any."""
        return max((*self.sizes, *self.marks), default=-1)

    def ends_with(self, seq: int) -> bool:
        """Whether a chunk is there, and nothing else at its number or behind it."""
        return seq in self.sizes and seq == self.last and self.marks[-1:] != [seq]


class LogFolder(msgspec.Struct, Generic[K], frozen=True):
    """Where logs are, and how their files are called. Numbers are padded, so that the order of
    names is that of numbers."""

    KEY: ClassVar[str]
    """The form of the name of a log."""
    DIGITS: ClassVar[int]
    """How many the number of a chunk has."""
    MARK: ClassVar[str]
    """Behind the name of the chunk."""

    @property
    def prefix(self) -> str:
        """Begins the names of all files."""
        raise NotImplementedError

    def name_of(self, key: K) -> str:
        """The name of a log."""
        raise NotImplementedError

    def key_of(self, name: str) -> K:
        """The log of a name that has the form."""
        raise NotImplementedError

    def log(self, key: K) -> str:
        """Begins the names of all chunks and marks of a log."""
        return f"{self.prefix}{self.name_of(key)}/"

    def end(self, key: K) -> str:
        """The name of the note how far a log has come."""
        return f"{self.prefix}{self.name_of(key)}{NOTE}"

    def chunk(self, key: K, seq: int) -> str:
        """The name of a chunk by its number in a log."""
        return f"{self.log(key)}{seq:0{self.DIGITS}d}"

    def mark(self, key: K, seq: int) -> str:
        """The name of the mark beside a chunk."""
        return f"{self.chunk(key, seq)}{self.MARK}"


class FencedLogs(ABC, Generic[K, C]):
    """The logs of a folder. Every method blocks, and raises like those of the store. Safe from any
    thread."""

    WHAT: ClassVar[str]
    """What they are of, for errors."""

    def __init__(self, store: BlobStore, folder: LogFolder[K]) -> None:
        self.store = store
        self.folder = folder
        mark = re.escape(folder.MARK)
        self._form = re.compile(rf"({folder.KEY})(?:{NOTE}|/(\d{{{folder.DIGITS}}})({mark})?)\Z")

    @abstractmethod
    def decode(self, key: K, seq: int, data: bytes) -> C:
        """A chunk. Raises StateError: these are not its bytes."""

    @abstractmethod
    def fence_data(self, key: K, seq: int) -> bytes:
        """The bytes of a fence, always the same."""

    @abstractmethod
    def fenced(self, key: K) -> Fenced:
        """The error of a writer whose log is ended."""

    @abstractmethod
    def lost(self, missing: Missing) -> StateError:
        """The error of who needs what is gone for good."""

    def unlisted(self, key: K, seq: int, reached: int) -> Missing:
        """What is missing of a log that was written up to a number, and is listed before one."""
        return Missing(self.folder.chunk(key, seq))

    def list(self, below: str = "") -> dict[K, Listed]:
        """The logs of the folder, or what is below one of its folders; names of any other form are
        left out."""
        logs: dict[K, Listed] = {}
        for name, size_bytes in self.store.list(below or self.folder.prefix):
            found = self._form.match(name.removeprefix(self.folder.prefix))
            if found is None:
                continue
            log = logs.setdefault(self.folder.key_of(found[1]), Listed())
            if not found[2]:
                log.noted = True
            elif found[3]:
                log.marks.append(int(found[2]))
            else:
                log.sizes[int(found[2])] = size_bytes
        return logs

    def steadily(self, look: Callable[[dict[K, Listed]], T], owner: bool = True) -> T:
        """List the logs and look at what is in them, until what was listed is there: somebody may
        collect meanwhile.

        Args:
            owner: whether the caller writes in the folder. A folder of a network may list for
                others what it held a minute ago, so they only wait.

        Raises:
            StateError: something is gone though nothing has changed.
            Unavailable: somebody collects all the time.
        """
        before: dict[K, Listed] | None = None
        gone, same = Missing(), 0
        for _ in range(TRIES_MAX):
            logs = self.list()
            same = same + 1 if logs == before else 1
            try:
                return look(logs)
            except Missing as missing:
                gone = missing
                if owner and same == SAME_MAX:
                    raise self.lost(missing) from missing
            before = logs
        raise Unavailable(f"the {self.WHAT} in {self.folder.prefix} keeps changing: {gone} is gone")

    def begin(self, key: K, opened: bytes) -> bool:
        """Write the first chunk of a log; False: another one is there."""
        self.store.create(self.folder.end(key), note_data(0))
        return self.store.create(self.folder.chunk(key, 0), opened)

    def find(self, key: K, seq: int) -> C | None:
        """A chunk; None: it is not there. Raises StateError: it is damaged."""
        data = self.store.read(self.folder.chunk(key, seq))
        return None if data is None else self.decode(key, seq, data)

    def read(self, key: K, seq: int) -> C:
        """A chunk. Raises Missing: it is not there; StateError: it is damaged."""
        found = self.find(key, seq)
        if found is None:
            raise Missing(self.folder.chunk(key, seq))
        return found

    def reached(self, key: K) -> int:
        """The number of a chunk that was durable, and all before it were. Raises Missing: nothing
        was noted; StateError: the note holds something else."""
        name = self.folder.end(key)
        data = self.store.read(name)
        if data is None:
            raise Missing(name)
        try:
            return int(data)
        except UNREADABLE as error:
            raise StateError(f"{name} holds no number of a chunk ({error}); {RESTORE}") from error

    def check_begun(self, key: K, log: Listed) -> None:
        """A log has its note, and its first chunk unless that is about to be written. Raises
        Missing."""
        if not log.noted:
            raise Missing(self.folder.end(key))
        if not log.opened and self.reached(key):
            raise Missing(self.folder.chunk(key, 0))

    def end(self, key: K, log: Listed, replaced: bool = False) -> int:
        """The number of the fence of a log as it is listed, or else after its last chunk. A fence
        says itself where a log ends: before it nothing can be missing without a gap.

        Args:
            replaced: whether a newer log stands for all of this one.

        Raises:
            Missing: the log is not listed up to its end.
        """
        last = log.last
        if last > 0 and log.ends_with(last) and self.read(key, last).is_fence:
            return last
        return self.listed_up_to(key, log, replaced) + 1

    def listed_up_to(self, key: K, log: Listed, replaced: bool = False) -> int:
        """The number of the last chunk of a log that has no fence. Arguments and errors are those
        of `end`."""
        last, reached = log.last, self.reached(key)
        if reached > last and not replaced:
            raise self.unlisted(key, last + 1, reached)
        return max(last, reached)

    def fence(self, key: K, log: Listed, replaced: bool = False) -> int:
        """End a log, if nobody has; the number of the chunk that ends it. Raises like `end`."""
        seq = self.end(key, log, replaced)
        if seq in log.sizes:
            return seq
        # Its writer may be ahead of the listing: each chunk that is there counts, and comes before.
        while not (
            self.store.create(self.folder.chunk(key, seq), self.fence_data(key, seq))
            or self.read(key, seq).is_fence
        ):
            seq += 1
        # The number may have been used and collected: then this fence ends nothing (proof above).
        after = self.list(self.folder.log(key)).get(key, Listed())
        if not after.ends_with(seq) or self.reached(key) >= seq:
            raise Missing(self.folder.chunk(key, seq))
        return seq

    def before(self, key: K, log: Listed, seq: int) -> Iterable[str]:
        """Names of what is before a number, but for the first chunk, which says what the log is."""
        yield from (self.folder.mark(key, each) for each in log.marks if each < seq)
        yield from (self.folder.chunk(key, each) for each in log.sizes if 0 < each < seq)


class LogWriter(Generic[K]):
    """The writer of a log that has begun. One thread at a time; every method blocks."""

    def __init__(self, logs: FencedLogs[K, C], key: K, last: int) -> None:
        self.last = last
        """The number of the last chunk that is durable."""
        self._logs = logs
        self._key = key
        self._note = logs.folder.end(key)
        self._fenced = False
        self.doubtful: object | None = None
        """What may exist already under the next number."""
        self._data = b""

    def append(self, item: object, encode: Callable[[int], bytes]) -> int:
        """Make a chunk durable. Returns its bytes.

        Args:
            item: what the chunk is of, to know it again.
            encode: its bytes, by its number.

        Raises:
            Fenced: the log is ended; nothing of `item` counts.
            Unavailable: it is in doubt whether it is durable. Append the same object again: it is
                written once.
            UserError: the store refuses (rights, path).
        """
        if self.doubtful is not item:
            # What is in doubt comes first: it may be there under the next number, and then nothing
            # but its own bytes can be created under it.
            self.settle()
            self._data = encode(self.last + 1)
            self.doubtful = item
        size_bytes = len(self._data)
        self.settle()
        return size_bytes

    def settle(self) -> None:
        """Make durable what is in doubt, if something is. Raises like `append`."""
        if self._fenced:
            raise self._logs.fenced(self._key)
        if self.doubtful is None:
            return
        logs, seq = self._logs, self.last + 1
        if not logs.store.create(logs.folder.chunk(self._key, seq), self._data):
            # Other bytes under this number are a fence, or of the same owner, who has begun anew:
            # nobody else appends to this log.
            self._fenced, self.doubtful, self._data = True, None, b""
            raise logs.fenced(self._key)
        # Noted before anybody hears of it: a log that has lost its last chunk is found out.
        logs.store.note(self._note, note_data(seq))
        self.doubtful, self._data, self.last = None, b"", seq


def note_data(seq: int) -> bytes:
    """What a note says: the number of a log's last chunk."""
    return b"%0*d" % (_NOTE_DIGITS, seq)
