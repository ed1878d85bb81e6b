"""The jars of Apache Kafka for tests, fetched once by Maven: `make kafka`.

Pinned by checksum, so whatever serves them serves the same. Maven knows its repository, and the
mirror by which this machine reaches it. Kept beside the programs of the test cluster, in a folder
named after the list: it is made last, so a folder that is there is whole.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.layout import CACHE

LIST = Path(__file__).with_suffix(".txt")
FETCH_TIMEOUT_S = 600.0
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_PROJECT = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>onyx</groupId><artifactId>kafka-jars</artifactId><version>1</version>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>
    <configuration><artifactItems>{items}</artifactItems></configuration>
  </plugin></plugins></build>
</project>
"""
_ITEM = (
    "<artifactItem><groupId>{0}</groupId><artifactId>{1}</artifactId>"
    "<version>{2}</version></artifactItem>"
)


class NotFetched(Exception):
    """The jars are not there, and why."""


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


def folder() -> Path:
    """Where the jars are, once they have been fetched."""
    return CACHE / f"kafka-{hashlib.sha256(LIST.read_bytes()).hexdigest()[:12]}"


def fetch() -> None:
    """Fetch them unless they are there; 44 MB.

    Raises:
        NotFetched: there is no Maven, the repository cannot be reached, or a jar is not the one
            that was pinned.
    """
    target = folder()
    if target.exists():
        return
    if shutil.which("mvn") is None:
        raise NotFetched("Kafka's jars are fetched by Maven (mvn), which is not installed")
    jars = list(_listed())
    print(f"fetching {len(jars)} jars of Kafka with Maven (once)", flush=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix="kafka-unfinished-", dir=CACHE))
    try:
        _copy(jars, unfinished)
        for jar in jars:
            if hashlib.sha256((unfinished / jar.name).read_bytes()).hexdigest() != jar.sha256:
                raise NotFetched(f"{jar.name} is not the file that {LIST.name} names")
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _copy(jars: list[Jar], to: Path) -> None:
    """Let Maven copy the jars, and none of what they depend on, into a folder."""
    items = "".join(_ITEM.format(jar.group, jar.artifact, jar.version) for jar in jars)
    with tempfile.TemporaryDirectory() as place:
        project = Path(place) / "pom.xml"
        project.write_text(_PROJECT.format(items=items))
        command = ["mvn", "-B", "-q", "-f", project, _COPY, f"-DoutputDirectory={to}"]
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    if ran.returncode:
        raise NotFetched(f"Maven has not fetched Kafka's jars:\n{ran.stdout.strip()}")


def _listed() -> Iterator[Jar]:
    for line in LIST.read_text().splitlines():
        if not line.startswith("#"):
            place, sha256 = line.split()
            yield Jar(*place.split(":"), sha256)


if __name__ == "__main__":
    try:
        fetch()
    except NotFetched as error:
        sys.exit(str(error))
