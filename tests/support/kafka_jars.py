"""The jars of Apache Kafka for tests, fetched once: `python -m tests.support.kafka_jars`.

Pinned by checksum, so whatever serves them serves the same. Kept beside the programs of the test
cluster, in a folder named after the list: it is made last, so a folder that is there is whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.layout import CACHE

REPOSITORY = os.environ.get("ONYX_MAVEN_REPOSITORY", "https://repo1.maven.org/maven2")
LIST = Path(__file__).with_suffix(".txt")
FETCH_TIMEOUT_S = 120.0
_AT_ONCE = 4


@dataclass(frozen=True)
class Jar:
    """One file of a Maven repository."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def url(self) -> str:
        place = "/".join([*self.group.split("."), self.artifact, self.version, self.name])
        return f"{REPOSITORY}/{place}"


def folder() -> Path:
    """Where the jars are, once they have been fetched."""
    return CACHE / f"kafka-{hashlib.sha256(LIST.read_bytes()).hexdigest()[:12]}"


def fetch() -> None:
    """Fetch them unless they are there; 44 MB.

    Raises:
        OSError: the repository cannot be reached.
        ValueError: a jar is not the one that was pinned.
    """
    target = folder()
    if target.exists():
        return
    jars = list(_listed())
    print(f"fetching {len(jars)} jars of Kafka from {REPOSITORY} (once)", flush=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix="kafka-unfinished-", dir=CACHE))
    try:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(lambda jar: _fetch(jar, unfinished), jars))
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _listed() -> Iterator[Jar]:
    for line in LIST.read_text().splitlines():
        if not line.startswith("#"):
            place, sha256 = line.split()
            yield Jar(*place.split(":"), sha256)


def _fetch(jar: Jar, to: Path) -> None:
    with urllib.request.urlopen(jar.url, timeout=FETCH_TIMEOUT_S) as answer:
        data = answer.read()
    if hashlib.sha256(data).hexdigest() != jar.sha256:
        raise ValueError(f"{jar.url} is not the file that {LIST.name} names")
    (to / jar.name).write_bytes(data)


if __name__ == "__main__":
    fetch()
