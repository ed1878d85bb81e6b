"""Output `files`: JSON lines or Parquet, in parts that appear whole (see `parts.writer`)."""

from __future__ import annotations

from onyx.plugins.files.options import COMPRESSIONS, OutputOptions
from onyx.plugins.options import located
from onyx.plugins.parts.columns import ColumnsFormat, ColumnsPartsWriter
from onyx.plugins.parts.formats import JsonLinesFormat, ParquetFormat
from onyx.plugins.parts.stores import parts_at
from onyx.plugins.protocol import PluginContext
from onyx.plugins.roll_limits import roll_limits


class FilesOutput(ColumnsPartsWriter):
    """Parts of one task at `path`."""

    def __init__(self, context: PluginContext, options: OutputOptions) -> None:
        store = parts_at(located(context, options.path), context)
        super().__init__(store, _format(context, options), context, roll_limits(options))


def _format(context: PluginContext, options: OutputOptions) -> ColumnsFormat:
    compression = options.compression or COMPRESSIONS[options.format][0]
    if options.format == "parquet":
        return ParquetFormat(context, compression)
    return JsonLinesFormat(context, compression, options.nan)
