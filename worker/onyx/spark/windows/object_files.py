"""Files of a window by Spark in an object store: executors read parts and write results there.

A result is what its `list.json` names. Beside these objects there may be others, of tasks of Spark
that were repeated; they count for nobody, and go with the result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from onyx.errors import OnyxError, UserError
from onyx.spark.child.request import StageRequest
from onyx.spark.objects.fetch import opened_parquet
from onyx.spark.objects.staged import ObjectTarget, read_list
from onyx.spark.session.scratch import spark_scratch
from onyx.spark.windows.spool import RESULT, SUFFIX, encode
from onyx.storage.objects.bucket import Bucket
from onyx.storage.objects.urls import ObjectUrl, parse_url
from onyx.storage.objects.writer import ObjectWriter

LIST = "list.json"


class SpoolObjects:
    """A file without a name, which is gone when nobody has any of its bytes."""

    def __init__(self, url: ObjectUrl) -> None:
        self._url = url

    def make(self) -> None:
        """Nothing has to be made."""

    def write(self, name: str, table: pa.Table) -> None:
        """Make a part durable. Its name is random, so nobody else can have begun it."""
        writer = ObjectWriter(self._bucket, self._key(name), lambda upload: None)
        try:
            encode(table, writer)
            writer.settle()
            writer.complete()
        except BaseException:
            with contextlib.suppress(OnyxError):
                writer.abort()
            raise

    @contextlib.contextmanager
    def asked(self, request: StageRequest, name: str) -> Iterator[StageRequest]:
        """The request, with a place for a result of this name."""
        with spark_scratch() as scratch:
            yield msgspec.structs.replace(
                request,
                target=str(scratch / "written.json"),
                objects=ObjectTarget(self.path(name), "part"),
            )

    def settle(self, asked: StageRequest, name: str) -> None:
        """Make the result of a run durable."""
        names = [each.name for each in read_list(Path(asked.target))]
        self._bucket.put((self._url / name / LIST).key, msgspec.json.encode(names))

    def path(self, name: str) -> str:
        """The URL of a part or result, for a plan."""
        return f"s3://{self._url.bucket}/{self._key(name)}"

    def files(self, name: str) -> list[str]:
        """The files of a result, in the order in which they are emitted."""
        return files_of(self.path(name))

    def opened(self, file: str) -> AbstractContextManager[pq.ParquetFile]:
        """One of them."""
        return opened_parquet(parse_url(file))

    def remove(self, name: str) -> None:
        """Remove a part or result; what cannot be removed goes with the job."""
        with contextlib.suppress(OnyxError):
            if not name.startswith(RESULT):
                self._bucket.delete(self._key(name))
                return
            for found in self._bucket.list(f"{self._key(name)}/"):
                self._bucket.delete(found.key)

    @property
    def _bucket(self) -> Bucket:
        return Bucket(self._url.bucket)

    def _key(self, name: str) -> str:
        return (self._url / (name if name.startswith(RESULT) else f"{name}{SUFFIX}")).key


def files_of(path: str) -> list[str]:
    """The objects of a result, in order; of a part itself.

    Raises:
        UserError: the result is gone.
        Unavailable: the store cannot be reached.
    """
    if path.endswith(SUFFIX):
        return [path]
    url = parse_url(path) / LIST
    found = Bucket(url.bucket).get(url.key)
    if found is None:
        raise UserError(f"{url} is gone, although the state of a job needs it")
    return [f"{path}/{name}" for name in msgspec.json.decode(found.data, type=list[str])]


def all_files(paths: Sequence[str]) -> list[str]:
    """The objects of several."""
    return [file for path in paths for file in files_of(path)]
