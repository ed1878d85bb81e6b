"""A location in an object store that speaks S3: objects whose keys begin alike.

A request is repeated when its answer is lost, and then finds what it has written itself. So bytes
are compared, and versions are those of the store.

Small objects that are replaced often are written behind (`Trailing`), the newest bytes of each once
a second, because each request takes its time and costs money. What is not written yet is lost with
the process; a failure is logged, and the next note tries again. What is written behind must not
come back when it was removed meanwhile, so an object that is not there stays so.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, cast

from onyx.base.path_names import file_path, is_file_name
from onyx.errors import OnyxError, Unavailable, UserError
from onyx.storage.interface import Entry, ListedFile, NewFile, Purpose
from onyx.storage.objects.bucket import Bucket, ObjectBytes, only_if
from onyx.storage.objects.connection import ConditionFailed, ObjectMissing
from onyx.storage.objects.reader import opened_object
from onyx.storage.objects.urls import ObjectUrl
from onyx.storage.objects.writer import ObjectWriter
from onyx.storage.staging.interface import Writer
from onyx.storage.staging.s3 import ObjectParts

POLL_S = 1.0


_logger = logging.getLogger(__name__)
INTERVAL_S = 1.0


class Prefix:
    """A `Location` below a URL."""

    poll_s = POLL_S
    local = None

    def __init__(self, url: ObjectUrl, purpose: Purpose | None = None) -> None:
        """Nothing is requested yet."""
        self.url = url
        self._purpose = purpose or Purpose()

    def __str__(self) -> str:
        return str(self.url)

    def __truediv__(self, name: str) -> Prefix:
        return Prefix(self.url / "/".join(file_path(name)), self._purpose)

    def path_of(self, name: str) -> str:
        """The URL of an object."""
        return str(self.url / "/".join(file_path(name)))

    def create(self, name: str, data: bytes) -> bool:
        """An object that is not there yet may still come, and the error says so."""
        return self._put(name, data, None)

    def note(self, name: str, data: bytes) -> None:
        """Write `data` soon, the newest alone."""
        TRAILING.put(self.url / "/".join(file_path(name)), data)

    def replace(self, name: str, data: bytes, before: bytes | None) -> bool:
        """Write `data` in the place of what was read."""
        found = self._get(name) if before is not None else None
        if before is not None and (found is None or found.data != before):
            return False
        return self._put(name, data, found)

    def read(self, name: str) -> bytes | None:
        """All bytes, or None when there is nothing of this name."""
        found = self._get(name)
        return None if found is None else found.data

    def exists(self, name: str) -> bool:
        """Whether there is an object of this name."""
        with self.explained():
            return self.bucket.look(self._key(name)) is not None

    def source(self, name: str) -> BinaryIO:
        """A small object in memory; a large one, to be read by ranges."""
        url = self.url / "/".join(file_path(name))
        with self.explained():
            return opened_object(url)

    def list(self, prefix: str) -> Sequence[ListedFile]:
        """All below a folder, in the order of their names."""
        start = len(f"{self.url.key}/") if self.url.key else 0
        with self.explained():
            found = list(self.bucket.list(self._folder(prefix)))
        stored = (ListedFile(each.key[start:], each.size_bytes) for each in found)
        return [each for each in stored if all(map(is_file_name, each.name.split("/")))]

    def prune(self, name: str) -> None:
        """A folder is gone with its last object."""

    def make(self) -> None:
        """Nothing has to be made."""

    def sync(self) -> None:
        """What can be listed is durable."""

    def entries(self) -> Sequence[Entry] | None:
        """Everything in the folder, in no order."""
        prefix = self._folder("")
        with self.explained():
            found = [(each.key.removeprefix(prefix), each.size_bytes)
                     for each in self.bucket.list(prefix)]  # fmt: skip
        folders = dict.fromkeys(name.partition("/")[0] for name, _ in found if "/" in name)
        files = [Entry(name, False, size_bytes) for name, size_bytes in found if "/" not in name]
        return [*(Entry(name, True, 0) for name in folders), *files] or None

    def copy(self, name: str, to: str) -> None:
        """The store copies it."""
        with self.explained(), contextlib.suppress(ObjectMissing):
            self.bucket.copy(self._key(name), self._key(to))

    def delete(self, name: str) -> None:
        """Remove it; nothing happens when it is not there."""
        with self.explained():
            self.bucket.delete(self._key(name))

    def delete_all(self, names: Iterable[str]) -> None:
        """Remove them one by one."""
        for each in names:
            self.delete(each)

    def remove_tree(self, name: str) -> None:
        """Remove all objects of a folder."""
        with self.explained():
            for found in self.bucket.list(f"{self._key(name)}/"):
                self.bucket.delete(found.key)

    def new_file(self, name: str, durable: bool = True) -> NewFile:
        """An object of a name that nobody else uses."""
        return _NewObject(self, self._key(name))

    def staging(self, writer: Writer) -> ObjectParts:
        """The parts that one writer stages here."""
        return ObjectParts(self.url, writer)

    @property
    def bucket(self) -> Bucket:
        """The bucket that it is in."""
        with self.explained():
            return Bucket(self.url.bucket)

    def _key(self, name: str) -> str:
        return (self.url / "/".join(file_path(name))).key

    def _folder(self, name: str) -> str:
        """How the keys in a folder begin."""
        key = self._key(name.removesuffix("/")) if name else self.url.key
        return f"{key}/" if key else ""

    def _get(self, name: str) -> ObjectBytes | None:
        with self.explained():
            return self.bucket.get(self._key(name))

    def _put(self, name: str, data: bytes, before: ObjectBytes | None) -> bool:
        """Whether an object has these bytes after it was put on a condition."""
        with self.explained():
            try:
                self.bucket.put(self._key(name), data, only_if(before))
            except (ConditionFailed, ObjectMissing):
                return self.read(name) == data
            except Unavailable:
                found = self.read(name)
                if found is None or (before is not None and found == before.data):
                    raise
                return found == data
        return True

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Raises errors of the store as errors of this location."""
        try:
            yield
        except (ConditionFailed, ObjectMissing):
            raise
        except UserError as error:
            what, hint = self._purpose.what, self._purpose.hint
            raise UserError(f"{what} {error}".lstrip() + (f"; {hint}" if hint else "")) from error


class _NewObject(NewFile):
    """An upload, until it is completed."""

    def __init__(self, location: Prefix, key: str) -> None:
        self._explained = location.explained
        self._writer = ObjectWriter(location.bucket, key, lambda upload: None)
        self.file = cast(BinaryIO, self._writer)

    def publish(self) -> None:
        """Complete it."""
        with self._explained():
            self._writer.settle()
            self._writer.complete()
        self._writer.close()

    def drop(self) -> None:
        """Abort it."""
        with contextlib.suppress(OnyxError):
            self._writer.abort()


class Trailing:
    """Safe from any thread."""

    def __init__(self, begin: Callable[[Callable[[], None]], None]) -> None:
        """`begin` runs work beside whoever calls, from then on; called when something is to be
        written first."""
        self._begin = begin
        self._begun = False
        self._newest: dict[ObjectUrl, bytes] = {}
        self._lock = threading.Lock()
        self._some = threading.Event()

    def put(self, url: ObjectUrl, data: bytes) -> None:
        """Write `data` in the place of an object soon, unless something newer comes before."""
        with self._lock:
            self._newest[url] = data
            if not self._begun:
                self._begun = True
                self._begin(self._run)
        self._some.set()

    def write(self) -> None:
        """Write what is newest now."""
        with self._lock:
            newest, self._newest = self._newest, {}
        for url, data in newest.items():
            try:
                _replace(Bucket(url.bucket), url.key, data)
            except OnyxError as error:
                _logger.warning("%s is not written for now: %s", url, error)

    def _run(self) -> None:
        while self._some.wait():
            self._some.clear()
            self.write()
            time.sleep(INTERVAL_S)


def _replace(bucket: Bucket, key: str, data: bytes) -> None:
    found = bucket.get(key)
    if found is None:
        return
    try:
        bucket.put(key, data, only_if(found))
    except (ConditionFailed, ObjectMissing):
        _logger.debug("%s was removed meanwhile", key)


def _on_a_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="onyx-object-notes", daemon=True).start()


TRAILING = Trailing(_on_a_thread)
"""That of this process."""
