"""The files of a window by Spark, read in bounded batches by whoever is asked about it.

Nobody keeps a file for a reader: the peer that made it removes it when a chunk of the state log has
given it up. Then that chunk names what is there instead, so the log is to be read again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from onyx.errors import Unavailable, UserError
from onyx.spark.result_names import SUFFIX
from onyx.spark.windows.spool import LIST, Spool

ROWS_MAX = 100_000_000
"""So many rows are read for one question: some 10 s of a core."""
BATCH_ROWS = 65_536

Limits = Mapping[str, tuple[int, int]]
"""The least and greatest number that is looked for in columns of ints."""


class FileReader:
    """Reads for one question."""

    def __init__(self, folder: Spool, rows_max: int = ROWS_MAX) -> None:
        self._folder = folder
        self._left = self._rows_max = rows_max

    def batches(self, path: str, limits: Limits) -> Iterator[pa.RecordBatch]:
        """What is in a part or result at a path of a plan, without row groups that have nothing
        within the limits, by their statistics.

        Raises:
            UserError: it is damaged, or more would be read than may be.
            Unavailable: it is gone, or cannot be read now.
        """
        for file in self._files(path.rpartition("/")[2]):
            with self._explained(file), self._folder.opened(file) as parquet:
                yield from self._of_file(parquet, limits)

    def _files(self, name: str) -> list[str]:
        if name.endswith(SUFFIX):
            return [name]
        with self._explained(f"{name}/{LIST}"):
            return self._folder.files(name)

    @contextlib.contextmanager
    def _explained(self, file: str) -> Iterator[None]:
        """What cannot be read because it is gone is somewhere else."""
        where = self._folder.location
        try:
            yield
        except UserError as error:
            if where.exists(file):
                raise
            raise Unavailable(f"{where.path_of(file)} is gone: a newer one is there") from error

    def _of_file(self, file: pq.ParquetFile, limits: Limits) -> Iterator[pa.RecordBatch]:
        wanted = [
            number
            for number in range(file.num_row_groups)
            if _may_have(file.metadata.row_group(number), limits)
        ]
        self._left -= sum(file.metadata.row_group(number).num_rows for number in wanted)
        if self._left < 0:
            raise UserError(
                f"the question is about more than {self._rows_max:,} rows in files of a window by "
                "Spark: ask for a range of time, or wait until it has fired"
            )
        if wanted:
            yield from file.iter_batches(BATCH_ROWS, row_groups=wanted)


def _may_have(group: pq.RowGroupMetaData, limits: Limits) -> bool:
    """Whether a row group may have numbers within the limits, by its statistics."""
    for number in range(group.num_columns):
        column = group.column(number)
        least, greatest = limits.get(column.path_in_schema, (None, None))
        known = column.statistics
        if least is None or greatest is None or known is None or not known.has_min_max:
            continue
        if known.max < least or known.min > greatest:
            return False
    return True
