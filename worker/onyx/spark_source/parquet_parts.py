"""Parts of Parquet, read as the input `files` reads them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from onyx.base.seams import SystemClock
from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import CatalogEntry, Job
from onyx.plugins.context import context_of
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import FilesInputOptions
from onyx.plugins.files.parquet_reader import ParquetRows
from onyx.plugins.parts.offsets import Rows
from onyx.plugins.protocol import Cursor, Reader
from onyx.rights import EVERYTHING
from onyx.storage.files import Files

_READ = CatalogEntry("onyx", "input", plugin="files", batch_format="arrow")
_JOB = Job("spark", ((_READ.name, "spark"),), (_READ,))
"""The job as whose input a part is read."""


def open_parquet(rows: Rows, schema: pa.Schema | None) -> Reader:
    """A reader at the first of the rows; with a schema, of its columns only.

    Raises:
        OnyxError: the part is gone or damaged.
    """
    context = context_of(
        _JOB, _READ, JobId("spark"), PeerId("spark"), GroupId("spark"), SystemClock(), _no_function
    )
    options = FilesInputOptions(path=rows.path, format="parquet", hive_partitioning=False)
    context = replace(context, schema=schema, rights=EVERYTHING)
    return FilesInput(context, options).open(rows.path, Cursor(rows.first))


def rows_of_parquet(path: str) -> int:
    """How many rows a part has, by its footer. Raises as `open_parquet`."""
    parquet = ParquetRows(path, 0, Files())
    try:
        return parquet.rows
    finally:
        parquet.close()


def _no_function(name: str) -> Any:
    raise AssertionError(f"parts need no function, and {name} was asked for")
