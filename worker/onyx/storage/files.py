"""The files that an input reads: files of this machine, or objects of a store.

Both name a file by the text of a partition and open it as a seekable binary file, so formats and
compression need not distinguish them. Patterns have the rules of `glob` in both: `*`, `?` and
`[...]` stay within one part of the path, `**` stands for any number of them, and none matches a
leading dot.

Positions are stable only if the file is. So a file of this machine has a fingerprint: its size and
a digest of that many bytes from its start. The fingerprint is stored with the frontier, and every
later reader compares it. While the file is open, a new modification time triggers the comparison.

A file that grows keeps its fingerprint, because the bytes that it covers are unchanged. The
digest of a large file covers samples only, since all of it would have to be read twice; so a
large file with a new modification time and the same size is refused. The fingerprint has no
times: copies of a file on several machines differ in them.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import BinaryIO, Protocol, cast

from onyx.errors import Unavailable, UserError
from onyx.storage.objects.bucket import Bucket, ListedObject
from onyx.storage.objects.reader import Allowance, ObjectFile
from onyx.storage.objects.urls import ObjectUrl, is_url, parse_url

_DIRECTORY = "is a directory; write {}/* for its files"


_ANY = "**"
"""Any number of folders, as a part of a pattern."""
_MAGIC = re.compile(r"[*?[]")
WHOLE_BYTES = 1_048_576
"""A file up to this size is in the digest with all of its bytes."""
SAMPLES = 64
SAMPLE_BYTES = 16_384


class FileSystem(Protocol):
    """Files by their paths."""

    def matching(self, pattern: str) -> list[str]:
        """The files that a pattern names, in no order.

        Raises:
            UserError: there are none, or it is a directory. The message begins with a verb.
            Unavailable: they cannot be listed now.
        """
        ...

    def open(self, path: str, ahead: bool) -> BinaryIO:
        """The bytes of a file. `ahead`: it is going to be read in order.

        Raises:
            UserError: it may not be read.
            Unavailable: it cannot be read now.
        """
        ...

    def version(self, path: str) -> str | None:
        """Version of a file that was opened: it differs when the file has changed. None if
        unknown."""
        ...

    def modified_ms(self, path: str) -> int:
        """When a file was modified last, in milliseconds since 1970.

        Raises:
            UserError: nobody knows.
            Unavailable: it is not there, or cannot be looked at.
        """
        ...

    def size_bytes(self, path: str) -> int:
        """How large a file is; raises as `modified_ms`. Safe from any thread."""
        ...

    def sizes_bytes(self, pattern: str) -> dict[str, int]:
        """How large the files are that a pattern names; raises as `matching`."""
        ...

    def remote(self, path: str) -> bool:
        """Whether each read of a file is a request."""
        ...

    def expect(self, path: str, version: str) -> None:
        """Treat a file of any other version as changed."""
        ...


class LocalFiles:
    """Files of this machine (`FileSystem`). What was opened once stays the same, or reading it
    again is an error."""

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}

    def matching(self, pattern: str) -> list[str]:
        """The file, or what the pattern matches; folders are left out."""
        if os.path.isdir(pattern):
            raise UserError(f"{pattern!r} " + _DIRECTORY.format(pattern))
        if os.path.isfile(pattern):
            return [pattern]
        return [path for path in dict.fromkeys(_found(pattern)) if os.path.isfile(path)]

    def open(self, path: str, ahead: bool) -> BinaryIO:
        """The file, checked against its fingerprint (`LocalFile`)."""
        with system_errors(path):
            return cast(BinaryIO, LocalFile(path, self._versions))

    def version(self, path: str) -> str | None:
        """The fingerprint, once it was opened."""
        return self._versions.get(path)

    def modified_ms(self, path: str) -> int:
        """What the file system says."""
        with system_errors(path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def size_bytes(self, path: str) -> int:
        """What the file system says."""
        with system_errors(path):
            return os.stat(path).st_size

    def sizes_bytes(self, pattern: str) -> dict[str, int]:
        """What the file system says, of each."""
        return {path: self.size_bytes(path) for path in self.matching(pattern)}

    def remote(self, path: str) -> bool:
        """Reads are of this machine."""
        return False

    def expect(self, path: str, version: str) -> None:
        """Remember a fingerprint of an earlier process."""
        self._versions[path] = version


def _found(pattern: str) -> Iterator[str]:
    """What a pattern matches, as of `glob`; but `**` does not go into folders that are links, which
    may lead back to where they are, and would give each file many times."""
    parts = pattern.split("/")
    if _ANY not in parts:
        yield from glob.glob(pattern)
        return
    at = parts.index(_ANY)
    behind = "/".join(parts[at + 1 :]) or "*"
    start = "/".join(parts[:at]) or ("/" if at else os.curdir)
    for top in glob.glob(start):
        for folder, within, _ in os.walk(top):
            within[:] = sorted(each for each in within if not each.startswith("."))
            for path in _found(os.path.join(glob.escape(folder), behind)):
                yield path if at else path.removeprefix("./")


class ObjectFiles:
    """Objects by their URLs (`FileSystem`). What was listed or opened once stays the same version,
    or reading it again is an error."""

    def __init__(self, bucket: Callable[[str], Bucket] = Bucket) -> None:
        self._bucket = bucket
        self._versions: dict[str, dict[str, str]] = {}
        self._allowance = Allowance()

    def matching(self, pattern: str) -> list[str]:
        """The object, or what the pattern matches; their versions are remembered."""
        url = parse_url(pattern)
        chosen = self._chosen(url)
        versions = self._versions.setdefault(url.bucket, {})
        for each in chosen:
            versions.setdefault(each.key, each.version)
        return [str(ObjectUrl(url.bucket, each.key)) for each in chosen]

    def open(self, path: str, ahead: bool) -> BinaryIO:
        """The object; requests ask for the version that is remembered."""
        url = parse_url(path)
        versions = self._versions.setdefault(url.bucket, {})
        allowance = self._allowance if ahead else None
        return cast(BinaryIO, ObjectFile(self._bucket(url.bucket), url, versions, allowance))

    def version(self, path: str) -> str | None:
        """The entity tag, once it was listed or opened."""
        url = parse_url(path)
        return self._versions.get(url.bucket, {}).get(url.key)

    def modified_ms(self, path: str) -> int:
        """When this version was written; one request."""
        found = self._look(path)
        if found.modified_ms is None:
            raise UserError(f"{path}: its store does not say when it was modified")
        return found.modified_ms

    def size_bytes(self, path: str) -> int:
        """What the store says; one request."""
        return self._look(path).size_bytes

    def _look(self, path: str) -> ListedObject:
        url = parse_url(path)
        found = self._bucket(url.bucket).look(url.key)
        if found is None:
            raise Unavailable(f"{path} is not there; put it back, and the job goes on")
        return found

    def sizes_bytes(self, pattern: str) -> dict[str, int]:
        """What the list says in which they are found."""
        url = parse_url(pattern)
        return {str(ObjectUrl(url.bucket, each.key)): each.size_bytes for each in self._chosen(url)}

    def remote(self, path: str) -> bool:
        """Reads are requests."""
        return True

    def expect(self, path: str, version: str) -> None:
        """Remember an entity tag of an earlier process."""
        url = parse_url(path)
        self._versions.setdefault(url.bucket, {})[url.key] = version

    def _chosen(self, url: ObjectUrl) -> list[ListedObject]:
        folder = f"{url.key}/" if url.key else ""
        within = False
        chosen = []
        for found in self._bucket(url.bucket).list(literal_prefix(url.key)):
            if found.key.endswith("/"):
                continue  # the mark of a folder, as consoles make them
            if found.key == url.key:
                return [found]
            if matches(url.key, found.key):
                chosen.append(found)
            within = within or found.key.startswith(folder)
        if within and not chosen:
            text = str(url).rstrip("/")
            raise UserError(f"{text!r} " + _DIRECTORY.format(text))
        return chosen


class InputFiles:
    """Both, by what the path looks like (`FileSystem`)."""

    def __init__(self) -> None:
        self._local = LocalFiles()
        self._objects = ObjectFiles()

    def matching(self, pattern: str) -> list[str]:
        """The files that a pattern names, in no order."""
        return self._of(pattern).matching(pattern)

    def open(self, path: str, ahead: bool) -> BinaryIO:
        """The bytes of a file."""
        return self._of(path).open(path, ahead)

    def version(self, path: str) -> str | None:
        """Version of a file that was opened: it differs when the file has changed."""
        return self._of(path).version(path)

    def expect(self, path: str, version: str) -> None:
        """Treat a file of any other version as changed."""
        self._of(path).expect(path, version)

    def modified_ms(self, path: str) -> int:
        """When a file was modified last, in milliseconds since 1970."""
        return self._of(path).modified_ms(path)

    def size_bytes(self, path: str) -> int:
        """How large a file is."""
        return self._of(path).size_bytes(path)

    def sizes_bytes(self, pattern: str) -> dict[str, int]:
        """How large the files are that a pattern names."""
        return self._of(pattern).sizes_bytes(pattern)

    def remote(self, path: str) -> bool:
        """Whether each read of a file is a request."""
        return self._of(path).remote(path)

    def _of(self, path: str) -> FileSystem:
        return self._objects if is_url(path) else self._local


@contextlib.contextmanager
def system_errors(path: str) -> Iterator[None]:
    """Errors of the system while reading a file as ours: they pass away perhaps."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be read here: {error.strerror or error}; put it back, and see that "
            "every worker that may run the task finds the same files: the job goes on then"
        ) from error


def literal_prefix(pattern: str) -> str:
    """What every key that matches begins with, to list no more than needed."""
    found = _MAGIC.search(pattern)
    return pattern[: found.start()] if found else pattern


def matches(pattern: str, key: str) -> bool:
    """Whether a whole key matches."""
    return _match(pattern.split("/"), key.split("/"))


def _match(patterns: Sequence[str], names: Sequence[str]) -> bool:
    if not patterns or not names:
        return not patterns and not names
    first, *rest = patterns
    if first != _ANY:
        return _fits(first, names[0]) and _match(rest, names[1:])
    if not rest:
        return not any(name.startswith(".") for name in names)
    return _match(rest, names) or (not names[0].startswith(".") and _match(patterns, names[1:]))


def _fits(pattern: str, name: str) -> bool:
    hidden = name.startswith(".") and not pattern.startswith(".")
    return not hidden and fnmatchcase(name, pattern)


class LocalFile(io.FileIO):
    """An open file; reading raises UserError when it has changed, OSError like any other."""

    def __init__(self, path: str, versions: dict[str, str]) -> None:
        """`versions`: known fingerprints by path; another one is an error, the first is added."""
        super().__init__(path, "rb")
        self._path = path
        self._versions = versions
        try:
            status = os.fstat(self.fileno())
            self._modified_ns = status.st_mtime_ns
            if path in versions:
                self._compare(versions[path], status.st_size)
            else:
                versions[path] = fingerprint(self.fileno(), status.st_size)
        except BaseException:
            self.close()
            raise

    def read(self, size: int | None = -1, /) -> bytes:
        """The bytes. Raises UserError when the file has changed."""
        data = super().read(size)
        self._look()
        return data or b""

    def readinto(self, buffer: object, /) -> int:
        """The bytes as `read`, into a buffer."""
        count = super().readinto(buffer)  # type: ignore[arg-type]
        self._look()
        return count or 0

    def _look(self) -> None:
        """What was read is from before a change, or the change touches nothing that was there."""
        status = os.fstat(self.fileno())
        if status.st_mtime_ns == self._modified_ns:
            return
        before = self._versions[self._path]
        self._compare(before, status.st_size)
        known_bytes = _size(before)
        if status.st_size == known_bytes > WHOLE_BYTES:
            raise self._changed("has changed")
        self._modified_ns = status.st_mtime_ns
        if status.st_size > known_bytes:
            self._versions[self._path] = fingerprint(self.fileno(), status.st_size)

    def _compare(self, version: str, size_bytes: int) -> None:
        known_bytes = _size(version)
        if size_bytes < known_bytes:
            raise self._changed(f"was cut from {known_bytes:,} to {size_bytes:,} bytes")
        if fingerprint(self.fileno(), known_bytes) != version:
            raise self._changed("has changed, or another file has its name now")

    def _changed(self, how: str) -> UserError:
        return UserError(
            f"{self._path} {how} while a job was reading it; files must not change before the job "
            "is complete. Put the old file back and submit the job again, or give new data a new "
            "name"
        )


def fingerprint(descriptor: int, size_bytes: int) -> str:
    """A fingerprint of the first so many bytes of an open file."""
    digest = hashlib.blake2b(digest_size=8)
    if size_bytes <= WHOLE_BYTES:
        digest.update(_bytes(descriptor, 0, size_bytes))
    else:
        last = size_bytes - SAMPLE_BYTES
        for number in range(SAMPLES):
            digest.update(_bytes(descriptor, last * number // (SAMPLES - 1), SAMPLE_BYTES))
    return f"{size_bytes}-{digest.hexdigest()}"


def _size(version: str) -> int:
    return int(version.partition("-")[0])


def _bytes(descriptor: int, offset: int, size_bytes: int) -> bytes:
    pieces = []
    while size_bytes > 0 and (piece := os.pread(descriptor, size_bytes, offset)):
        pieces.append(piece)
        offset += len(piece)
        size_bytes -= len(piece)
    return b"".join(pieces)
