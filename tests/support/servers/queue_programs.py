"""Programs of the queues that tests run, made once by `make queues`: Redis and NATS.

Redis is taken from the machine, or from the packages of Debian, which need not be installed for it.
NATS is built with Go, as the object store is.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.cluster import binaries
from tests.cluster.commands import ClusterError
from tests.cluster.layout import CACHE

FETCH_TIMEOUT_S = 300.0
_FOLDER = CACHE / "redis"
_PACKAGES = ("redis-server", "redis-tools", "liblzf1", "libjemalloc2")
"""The program, and those of its libraries that not every machine has."""


class NotFetched(Exception):
    """A program is not there, and why."""


def redis() -> tuple[Path, Mapping[str, str]] | None:
    """The server and the environment that it needs; None: it has not been fetched."""
    if (found := shutil.which("redis-server")) is not None:
        return Path(found), {}
    program = _FOLDER / "usr" / "bin" / "redis-server"
    if not program.exists():
        return None
    folders = {str(each.parent) for each in (_FOLDER / "usr" / "lib").rglob("*.so.*")}
    return program, {"LD_LIBRARY_PATH": ":".join(sorted(folders))}


def nats() -> Path | None:
    """The server; None: it has not been built."""
    if (found := shutil.which("nats-server")) is not None:
        return Path(found)
    program = binaries.program("nats-server")
    return program if program.exists() else None


def fetch() -> None:
    """Make what is missing.

    Raises:
        NotFetched: a program could not be fetched.
        ClusterError: it could not be built.
    """
    if redis() is None:
        _fetch_redis()
    if nats() is None:
        binaries.build(["nats-server"])


def _fetch_redis() -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise NotFetched("there is no redis-server, and none of Debian's tools to fetch it")
    print("fetching Redis from Debian (once)", flush=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix="redis-unfinished-", dir=CACHE))
    try:
        _run(["apt-get", "download", "--quiet", *_PACKAGES], unfinished)
        for each in sorted(unfinished.glob("*.deb")):
            _run(["dpkg", "-x", each.name, "."], unfinished)
            each.unlink()
        unfinished.rename(_FOLDER)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _run(command: list[str], folder: Path) -> None:
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
    )
    if ran.returncode:
        raise NotFetched(
            f"{' '.join(command)} failed (after apt-get update it may not):\n{ran.stderr.strip()}"
        )


if __name__ == "__main__":
    try:
        fetch()
    except (NotFetched, ClusterError) as error:
        sys.exit(str(error))
