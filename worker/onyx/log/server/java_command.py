"""The command line of a ZooKeeper server: Java, its jars, flags of the virtual machine.

Five jars are enough (no netty, log4j or web server), which halves memory and start-up to about half
a second. A server that people operate also writes a log, with three more jars.
"""

from __future__ import annotations

import importlib.util
import os
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
