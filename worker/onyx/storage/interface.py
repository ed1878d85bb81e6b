"""What every location for files can do; and blobs in memory, its simplest twin, for state that
nobody takes over.

Creation is the only thing that two processes ever compete for. Everything else, fencing included,
is made of "create if absent" and "replace if unchanged", which a file system (link, rename under a
lock) and an object store (If-None-Match, If-Match) have. Appending to one file was rejected: object
stores cannot, and a zombie could go on writing to it.

Names are relative, their parts joined by `/` (`path_names.file_path`). What begins with a dot is
being written, and is never listed.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Protocol

import msgspec

from onyx.base.path_names import file_path
from onyx.storage.staging.interface import PartStore, Writer


class ListedFile(NamedTuple):
    """A name in a listing."""

    name: str
    size_bytes: int


class Modes(NamedTuple):
    """What folders and files that are made allow, and to whom."""

    folder: int
    file: int


PRIVATE = Modes(0o700, 0o600)
GROUP = Modes(0o770, 0o640)
"""For workers of different users of one group: each may add and remove, nobody changes."""


class Purpose(msgspec.Struct, frozen=True):
    """What a location is for: in its errors, and in what it does beside its names."""

    what: str = ""
    """How errors begin, before the path: `state cannot be kept in`."""
    hint: str = ""
    """What somebody may do if the location cannot be used at all."""
    modes: Modes | None = None
    """Rights, whatever the umask is; None leaves them to that."""
    prunes: bool = False
    """Whether a folder goes with its last file."""


class BlobStore(Protocol):
    """Named bytes that are created once and never changed, except for notes. Safe to use from any
    thread.

    Every method raises Unavailable when the store cannot be reached or is full (the same call may
    succeed later), UserError when somebody must mend something first (rights, bucket, path), or
    nothing can have the name.
    """

    def create(self, name: str, data: bytes) -> bool:
        """Write `data` under a name that nobody has written.

        Returns:
            True: `data` is there and durable, from this call or an earlier one that failed in
            doubt; False: other bytes are there.
        """

    def note(self, name: str, data: bytes) -> None:
        """Write a few bytes, always as many, in the place of those under a name, which one process
        alone does. Nothing is written where nothing is. Whoever reads meanwhile may find a part of
        either.

        In a folder the bytes outlive the process, but not a loss of power. An object store gets the
        newest ones within a second, because it asks money for each request: a process that ends
        before takes them with it.
        """

    def read(self, name: str) -> bytes | None:
        """All bytes, or None when there is nothing of this name."""

    def list(self, prefix: str) -> Sequence[ListedFile]:
        """All below a folder, in the order of their names. `prefix` ends with `/`, or is empty."""

    def copy(self, name: str, to: str) -> None:
        """Have the same bytes, durably, under another name too, which nobody writes otherwise;
        nothing happens when there is nothing of this name. No bytes pass through here."""

    def delete(self, name: str) -> None:
        """Remove it; nothing happens when it is not there."""

    def delete_all(self, names: Iterable[str]) -> None:
        """Remove each of them, in this order, as `delete` does."""

    def remove_tree(self, name: str) -> None:
        """Remove a folder with all that is in it, whoever has written that."""


class NewFile(ABC):
    """A file that nobody sees before it is published; leaving a `with` block publishes it, or drops
    it after an exception."""

    file: BinaryIO
    """To write to."""

    @abstractmethod
    def publish(self) -> None:
        """Have it seen whole under its name. Raises UserError, Unavailable."""

    @abstractmethod
    def drop(self) -> None:
        """Give it up, as far as that is possible now."""

    def __enter__(self) -> BinaryIO:
        return self.file

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            with contextlib.ExitStack() as stack:
                stack.callback(self.drop)
                self.publish()
                stack.pop_all()
        else:
            self.drop()


class Entry(NamedTuple):
    """What is directly in a folder."""

    name: str
    is_folder: bool
    size_bytes: int


class Location(BlobStore, Protocol):
    """A location for files."""

    poll_s: float
    """How often to look for what others have made."""

    @property
    def local(self) -> Path | None:
        """The folder, if other programs see the files there, as Spark does; None if only clients of
        a store do."""

    def __truediv__(self, name: str) -> Location:
        """A folder in it."""

    def make(self) -> None:
        """Have the folder, if folders have to be made."""

    def entries(self) -> Sequence[Entry] | None:
        """Everything in the folder, whoever has made it, in no order; None if there is no such
        folder."""

    def sync(self) -> None:
        """Make the names in the folder durable that others have just made."""

    def path_of(self, name: str) -> str:
        """The absolute path or URL of a file, for other processes."""

    def replace(self, name: str, data: bytes, before: bytes | None) -> bool:
        """Write `data` in the place of what was read, durably; None: of nothing.

        Returns:
            Whether it is there; False: something else is, from another writer.
        """

    def prune(self, name: str) -> None:
        """Remove the folders on the way to a name in which nothing is left."""

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""

    def source(self, name: str) -> Any:
        """What readers of Parquet open: a path, or a file. Raises UserError: it is gone."""

    def new_file(self, name: str, durable: bool = True) -> NewFile:
        """A file of a name that nobody else uses.

        Args:
            durable: whether it must survive a loss of power once it is published.
        """

    def staging(self, writer: Writer) -> PartStore:
        """The parts that one writer stages here. Nobody sees them after its death."""


class MemoryBlobStore:
    """A `BlobStore` that several peers of one process share."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def create(self, name: str, data: bytes) -> bool:
        """Write `data` under a name that nobody has written."""
        file_path(name)
        with self._lock:
            return self._blobs.setdefault(name, data) == data

    def note(self, name: str, data: bytes) -> None:
        """Write `data` in the place of what is there."""
        with self._lock:
            if name in self._blobs:
                self._blobs[name] = data

    def read(self, name: str) -> bytes | None:
        """All bytes, or None when there is nothing of this name."""
        with self._lock:
            return self._blobs.get(name)

    def list(self, prefix: str) -> list[ListedFile]:
        """All below a folder, in the order of their names."""
        with self._lock:
            names = sorted(name for name in self._blobs if name.startswith(prefix))
            return [ListedFile(name, len(self._blobs[name])) for name in names]

    def copy(self, name: str, to: str) -> None:
        """Have the same bytes under another name too."""
        data = self.read(name)
        if data is not None:
            self.create(to, data)

    def delete(self, name: str) -> None:
        """Remove it; nothing happens when it is not there."""
        with self._lock:
            self._blobs.pop(name, None)

    def delete_all(self, names: Iterable[str]) -> None:
        """Remove them one by one."""
        for each in names:
            self.delete(each)

    def remove_tree(self, name: str) -> None:
        """Remove a folder with all that is in it."""
        for each in self.list(f"{name}/"):
            self.delete(each.name)
