"""What a run of a stage writes: a folder of Parquet files that no other run has.

Spark writes them itself where it sees a folder, and executors upload them elsewhere
(`objects.writing`). Either way nothing counts before somebody names the files: nobody can see from
the folder alone whether a run has ended, and a task of Spark that was repeated leaves files there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from onyx.base.structs import RESTORE
from onyx.errors import OnyxError, StateError, Unavailable, UserError, UserFunctionError
from onyx.spark.child.request import StageRequest
from onyx.spark.objects.messages import ObjectTarget, read_list
from onyx.spark.processes import spark_scratch
from onyx.spark.result_files import SUFFIX
from onyx.storage.file_system import sync_directory
from onyx.storage.interface import Location


class Target(msgspec.Struct, frozen=True):
    """A folder for one run."""

    location: Location
    name: str
    """The name of the folder in the location."""
    list_of_names: Path
    """A file on this machine, in which a run says what executors have written."""

    def asked(self, request: StageRequest) -> StageRequest:
        """The request, for a result in this folder, whose rows become segments."""
        request = msgspec.structs.replace(request, as_segments=True)
        if self.location.local is None:
            objects = ObjectTarget(self.location.path_of(self.name), "part")
            return request.written_to(str(self.list_of_names), objects)
        return request.written_to(self.location.path_of(self.name))

    def settle(self, master: str, durable: bool = True) -> tuple[tuple[str, int], ...]:
        """The files that a run has written.

        Args:
            master: the Spark that ran, for messages.
            durable: whether they must survive a loss of power.

        Returns:
            The names of the files in the location, in the order of their rows; each with its rows.

        Raises:
            UserFunctionError: it cannot be seen from here.
            Unavailable: it cannot be read or written now.
        """
        if self.location.local is None:
            written = read_list(self.list_of_names)
            return tuple((f"{self.name}/{each.name}", each.rows) for each in written)
        folder = self.location.local / self.name
        if not folder.is_dir():
            raise UserFunctionError(
                f"Spark at {master} has written the result to {folder}, which this worker "
                "does not see: `path` must be on a volume that both share"
            )
        try:
            names = _settled(folder, durable)
        except OSError as error:
            raise Unavailable(f"{folder}: {error.strerror or error}") from error
        return tuple((f"{self.name}/{name}", rows_of(self.location, f"{self.name}/{name}"))
                     for name in names)  # fmt: skip

    def drop(self) -> None:
        """Remove what was written, as far as that is possible now."""
        with contextlib.suppress(OnyxError):
            self.location.remove_tree(self.name)


@contextlib.contextmanager
def target_in(location: Location, name: str) -> Iterator[Target]:
    """A target for one run, in a location; after an exception what was written is removed.

    Args:
        name: of a folder that nobody else uses.
    """
    location.make()
    with spark_scratch() as scratch:
        target = Target(location, name, scratch / "written.json")
        try:
            yield target
        except BaseException:
            target.drop()
            raise


def is_data(name: str) -> bool:
    """Whether a file is one of a result: not one of the marks and checksums of Hadoop."""
    return name.endswith(SUFFIX) and not name.startswith((".", "_"))


@contextlib.contextmanager
def opened(location: Location, name: str) -> Iterator[pq.ParquetFile]:
    """A Parquet file of a location, in a block that does nothing but read it.

    Raises:
        UserError: it is gone.
        StateError: it is no Parquet file, or damaged.
        Unavailable: it cannot be read now.
    """
    source, what = location.source(name), "no Parquet file"
    try:
        with pq.ParquetFile(source) as file:
            what = "damaged"
            yield file
    except FileNotFoundError as error:
        raise UserError(f"{location.path_of(name)} is gone: somebody has removed it") from error
    except (pa.ArrowException, OSError) as error:
        raise StateError(f"{location.path_of(name)} is {what} ({error}); {RESTORE}") from error


def rows_of(location: Location, name: str) -> int:
    """Rows of a Parquet file. Raises like `opened`."""
    with opened(location, name) as file:
        rows: int = file.metadata.num_rows
        return rows


def _settled(folder: Path, durable: bool) -> list[str]:
    """Leave but data in a folder; the names."""
    for path in folder.iterdir():
        if not is_data(path.name):
            path.unlink()  # checksums and marks of Hadoop, which no other reader knows
    names = sorted(os.listdir(folder))
    for name in names if durable else ():
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())
    if durable:
        sync_directory(folder)
        sync_directory(folder.parent)
    return names
