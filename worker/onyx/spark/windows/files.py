"""Files of a window by Spark: parts that a peer writes, and results that Spark writes.

    <state>/<job>/windows.spark/<task>/p-<id>.parquet     a part: rows that came between two chunks
    <state>/<job>/windows.spark/<task>/r-<id>/            a result: states after a firing

They lie beside the state log, because whoever reads that has to see them, and go with the job. Each
name is used once, and counts only when a chunk of the log names it; so neither a dead writer nor a
zombie can change what counts, and no file needs a fence. What no chunk names, because its writer
died before, stays until the job is removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from onyx.durable import make_durable_directory, sync_directory
from onyx.errors import Unavailable
from onyx.spark.windows.plan import KEY_INT, PLACE, SEQ

SUFFIX = ".parquet"
_MANY = frozenset({KEY_INT, PLACE, SEQ})
"""Columns of mostly different numbers, for which a dictionary would be made in vain."""


class SpoolFolder:
    """Of one task. Safe to use from any thread; everything blocks."""

    def __init__(self, root: Path, mode: int | None = None) -> None:
        """`mode`: of the folder if it has to be made."""
        self.root = root
        self._mode = mode

    def new_part(self) -> str:
        """A name that nobody has used."""
        return f"p-{uuid.uuid4().hex}"

    def new_result(self) -> str:
        """The same for a result."""
        return f"r-{uuid.uuid4().hex}"

    def make(self) -> None:
        """Make the folder. Raises Unavailable."""
        with _explained(self.root):
            make_durable_directory(self.root, self._mode)

    def write(self, name: str, table: pa.Table) -> None:
        """Make a part durable. Raises Unavailable."""
        target = self.part(name)
        with _explained(target):
            self.make()
            temporary = target.with_name(f".{target.name}")
            few = [name for name in table.column_names if name not in _MANY]
            pq.write_table(table, temporary, use_dictionary=few)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.rename(target)
            sync_directory(self.root)

    def settle(self, name: str) -> None:
        """Make the result of a stage durable. Raises Unavailable: it cannot be seen."""
        folder = self.root / name
        with _explained(folder):
            for path in folder.iterdir():
                if not _is_data(path):
                    path.unlink()  # checksums and marks of Hadoop
            for path in folder.iterdir():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            sync_directory(folder)
            sync_directory(self.root)

    def part(self, name: str) -> Path:
        """The file of a part."""
        return self.root / f"{name}{SUFFIX}"

    def result(self, name: str) -> list[Path]:
        """The files of a result, in the order in which they are emitted. Raises Unavailable."""
        folder = self.root / name
        with _explained(folder):
            return sorted(path for path in folder.iterdir() if _is_data(path))

    def least(self, name: str, column: str) -> int | None:
        """The least of a column of ints of a result; None: it is null everywhere, or not there.
        Raises Unavailable."""
        found: list[int] = []
        for path in self.result(name):
            with _explained(path), pq.ParquetFile(path) as file:
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

    def remove(self, name: str) -> None:
        """Remove a part or result; what cannot be removed goes with the job."""
        with contextlib.suppress(OSError):
            if name.startswith("r-"):
                shutil.rmtree(self.root / name)
            else:
                self.part(name).unlink()


def _is_data(path: Path) -> bool:
    return path.suffix == SUFFIX and not path.name.startswith((".", "_"))


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror or error}") from error
