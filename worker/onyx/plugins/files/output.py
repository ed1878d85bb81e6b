"""Output `files`: JSON lines or Parquet, in parts that appear whole (see `parts.writer`)."""

from __future__ import annotations

from onyx.plugins.files.options import COMPRESSIONS, FilesOutputOptions
from onyx.plugins.options import located
from onyx.plugins.parts.folders import NotThere, parts_at, parts_in, whose
from onyx.plugins.parts.formats import JsonLinesFormat, ParquetFormat
from onyx.plugins.parts.offsets import Part
from onyx.plugins.parts.writer import ColumnsFormat, ColumnsPartsWriter
from onyx.plugins.protocol import PluginContext
from onyx.plugins.rolling import roll_limits


class FilesOutput(ColumnsPartsWriter):
    """Parts of one task at `path`."""

    def __init__(self, context: PluginContext, options: FilesOutputOptions) -> None:
        self._path = located(context, options.path)
        store = parts_at(self._path, context)
        super().__init__(store, _format(context, options), context, roll_limits(options))

    def last_parts(self) -> list[str]:
        """The name of the last part of each writer."""
        newest: dict[str, Part] = {}
        ours = whose(self._context.task, self._context.job)
        try:
            for part in parts_in(str(self._path), ours.__eq__, self._context.where):
                if part.number >= newest.get(part.writer, part).number:
                    newest[part.writer] = part
        except NotThere:
            return []  # nothing was written
        return sorted(part.path.rpartition("/")[2] for part in newest.values())


def _format(context: PluginContext, options: FilesOutputOptions) -> ColumnsFormat:
    compression = options.compression or COMPRESSIONS[options.format][0]
    if options.format == "parquet":
        return ParquetFormat(context, compression)
    return JsonLinesFormat(context, compression, options.nan)
