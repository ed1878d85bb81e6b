"""Where files of a window by Spark lie.

    <state>/<job>/windows.spark/<task>/p-<id>.parquet     a part: rows that came between two chunks
    <state>/<job>/windows.spark/<task>/r-<id>/            a result: states after a firing; its
                                                          `_list.json` names the files that count

They lie beside the state log, because whoever reads that has to see them, and go with the job. Each
name is used once, and counts only when a chunk of the log names it; so neither a dead writer nor a
zombie can change what counts, and no file needs a fence. What no chunk names, because its writer
died before, stays until the job is removed.
"""

from __future__ import annotations

import contextlib
import uuid
from contextlib import AbstractContextManager

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from onyx.base.structs import stored
from onyx.errors import OnyxError, UserError
from onyx.spark.result_files import SUFFIX
from onyx.spark.target import Target, opened, target_in
from onyx.spark.windows.plan import COORDINATE, KEY_INT, SEQ
from onyx.state.names import WINDOWS_BY_SPARK
from onyx.storage.interface import Location
from onyx.storage.opening import location_of

RESULT = "r-"
LIST = "_list.json"
_MANY = frozenset({KEY_INT, COORDINATE, SEQ})
"""Columns of mostly different numbers, for which a dictionary would be made in vain."""


class Spool:
    """The files of one task. Safe to use from any thread; everything blocks, and may raise
    Unavailable, or UserError if a store refuses."""

    def __init__(self, location: Location) -> None:
        self.location = location

    def write(self, name: str, table: pa.Table) -> None:
        """Make a part durable."""
        with self.location.new_file(f"{name}{SUFFIX}") as file:
            encode(table, file)

    def target(self, name: str) -> AbstractContextManager[Target]:
        """A location for a result of this name."""
        return target_in(self.location, name)

    def settle(self, target: Target, master: str) -> None:
        """Make the result of a run durable. Raises Unavailable: it cannot be seen."""
        names = [name for name, _ in target.settle(master)]
        self.location.create(f"{target.name}/{LIST}", msgspec.json.encode(names))

    def path(self, name: str) -> str:
        """The path of a part or result, for a plan."""
        return self.location.path_of(name if name.startswith(RESULT) else f"{name}{SUFFIX}")

    def files(self, name: str) -> list[str]:
        """Names of the files of a result, in the order in which they are emitted."""
        return _listed(self.location, name)

    def opened(self, file: str) -> AbstractContextManager[pq.ParquetFile]:
        """One of them."""
        return opened(self.location, file)

    def remove(self, name: str) -> None:
        """Remove a part or result; what cannot be removed goes with the job."""
        with contextlib.suppress(OnyxError):
            if name.startswith(RESULT):
                self.location.remove_tree(name)
            else:
                self.location.delete(f"{name}{SUFFIX}")


def spool_of(store: Location, job: str, task: str) -> Spool:
    """The files of a task, in the location that keeps state."""
    return Spool(store / f"{job}/{WINDOWS_BY_SPARK}/{task}")


def files_of(path: str) -> list[str]:
    """The files of a part or result at a path or URL of a plan. Raises like `Spool.files`."""
    folder, _, name = path.rpartition("/")
    location = location_of(folder)
    return (
        [path] if name.endswith(SUFFIX) else [location.path_of(f) for f in _listed(location, name)]
    )


def _listed(location: Location, name: str) -> list[str]:
    data = location.read(f"{name}/{LIST}")
    if data is None:
        raise UserError(f"{location}/{name}/{LIST} is gone, although the state of a job needs it")
    names: list[str] = stored(data, list[str], f"{location}/{name}/{LIST}")
    return names


def new_part() -> str:
    """A name that nobody has used."""
    return f"p-{uuid.uuid4().hex}"


def new_result() -> str:
    """A name for a result."""
    return f"{RESULT}{uuid.uuid4().hex}"


def encode(table: pa.Table, target: object) -> None:
    """Write a part to a file or path."""
    few = [name for name in table.column_names if name not in _MANY]
    pq.write_table(table, target, use_dictionary=few)


def least(spool: Spool, name: str, column: str) -> int | None:
    """The least of a column of ints of a result; None: it is null everywhere, or not there."""
    found: list[int] = []
    for path in spool.files(name):
        with spool.opened(path) as file:
            if column not in file.schema_arrow.names:
                continue
            at = file.schema_arrow.names.index(column)
            for group in range(file.num_row_groups):
                chunk = file.metadata.row_group(group).column(at)
                known = chunk.statistics
                if known is not None and known.has_min_max:
                    found.append(known.min)
                elif chunk.num_values and (known is None or not known.has_null_count):
                    values = file.read_row_group(group, columns=[column]).column(column)
                    found += values.drop_null().unique().to_pylist()
    return min(found, default=None)
