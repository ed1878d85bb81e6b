"""Output `files`: JSON lines or Parquet, in parts that appear whole (see `parts`)."""

from __future__ import annotations

from onyx.plugins.built_in_options import COMPRESSIONS, FilesOutputOptions
from onyx.plugins.locations import located, parts_at
from onyx.plugins.options import read_options
from onyx.plugins.parts.formats import JsonLinesFormat, ParquetFormat
from onyx.plugins.parts.writer import PartFormat, PartsWriter
from onyx.plugins.protocol import PluginContext
from onyx.plugins.roll_limits import RollLimits


def files_output(context: PluginContext) -> FilesOutput:
    options = read_options(context, FilesOutputOptions)
    limits = RollLimits(options.roll_bytes, options.roll_segments, options.roll_seconds)
    place = parts_at(located(context, options.path), context)
    return FilesOutput(place, _format(context, options), context, limits)


def _format(context: PluginContext, options: FilesOutputOptions) -> PartFormat:
    compression = options.compression or COMPRESSIONS[options.format][0]
    if options.format == "parquet":
        return ParquetFormat(context, compression)
    return JsonLinesFormat(context, compression, options.nan)


class FilesOutput(PartsWriter):
    cooperative = False
    """Forcing a part to disk takes milliseconds, a request to an object store more."""
