"""Output `files`: JSON lines or Parquet, in parts that appear whole (see `parts`)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from onyx.plugins.options import Options, option_error, read_options
from onyx.plugins.part_formats import JsonLinesFormat, ParquetFormat
from onyx.plugins.parts import PartFormat, PartsWriter, RollLimits
from onyx.plugins.places import located, parts_at
from onyx.plugins.protocol import PluginContext

_COMPRESSIONS = {"jsonl": ("none", "gzip"), "parquet": ("snappy", "none", "gzip", "zstd")}
"""By format; the first is the default."""


class FilesOutputOptions(Options, frozen=True):
    path: Annotated[str, msgspec.Meta(min_length=1)]
    """Directory or `s3://bucket/prefix` to write parts to. A directory is made if it is missing;
    what is there is left alone."""
    format: Literal["jsonl", "parquet"] = "jsonl"
    compression: str | None = None
    """jsonl: `none` or `gzip`; parquet: `snappy`, `none`, `gzip` or `zstd`."""
    roll_bytes: Annotated[int, msgspec.Meta(ge=1)] = RollLimits().size_bytes
    """Start a new part at about this size."""
    roll_segments: Annotated[int, msgspec.Meta(ge=1)] = RollLimits().segments
    """Start a new part after so many segments."""
    roll_seconds: Annotated[float, msgspec.Meta(gt=0)] = RollLimits().age_s
    """Start a new part after this time; keep it well below the input's `pendingTimeout`."""


def files_output(context: PluginContext) -> FilesOutput:
    options = read_options(context, FilesOutputOptions)
    limits = RollLimits(options.roll_bytes, options.roll_segments, options.roll_seconds)
    place = parts_at(located(context, options.path), context)
    return FilesOutput(place, _format(context, options), context, limits)


def _format(context: PluginContext, options: FilesOutputOptions) -> PartFormat:
    possible = _COMPRESSIONS[options.format]
    compression = options.compression or possible[0]
    if compression not in possible:
        raise option_error(
            context,
            "compression",
            f"is {compression!r}, but {options.format} can be {', '.join(possible)}",
        )
    if options.format == "parquet":
        return ParquetFormat(context, compression)
    return JsonLinesFormat(context, compression)


class FilesOutput(PartsWriter):
    cooperative = False
    """Forcing a part to disk takes milliseconds, a request to an object store more."""
