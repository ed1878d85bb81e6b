"""Parts of lines, read as the input `files` reads them; `lines` says how they become columns."""

from __future__ import annotations

import pyarrow as pa

from onyx.errors import OnyxError
from onyx.plugins.files.byte_sources import FileBytes
from onyx.plugins.files.extras import Extras
from onyx.plugins.files.options import FilesInputOptions
from onyx.plugins.files.text_reader import FileBlocks, FileReader
from onyx.plugins.parts.offsets import Rows
from onyx.plugins.protocol import Cursor, Reader
from onyx.plugins.records import BadRecords, Records
from onyx.spark_source.lines import JsonLines, TextLines
from onyx.storage.files import Files


def open_lines(rows: Rows, schema: pa.Schema, text: bool) -> Reader:
    """A reader at the first of the rows.

    Args:
        text: whether a row is the JSON of all that it has, in the only column of the schema.

    Raises:
        OnyxError: the part is gone or damaged.
    """
    records: Records = TextLines(rows, schema) if text else JsonLines(rows, schema)
    source = FileBytes(rows.path, 0, Files())
    bad, extras = BadRecords(rows.path, keep=False), Extras(rows.path)
    most = FilesInputOptions(path=rows.path, format="parquet").record_bytes_max
    reader = FileReader(FileBlocks(source, records, bad, Cursor(0, 0), most, extras, columns=True))
    try:
        reader.skip(rows.first)
    except OnyxError:
        reader.close()
        raise
    return reader
