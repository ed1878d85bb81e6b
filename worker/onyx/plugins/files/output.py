"""Output `files`: JSON lines or Parquet, in parts that appear whole (see `parts.writer`)."""

from __future__ import annotations

from onyx.plugins.files.options import COMPRESSIONS, OutputOptions
from onyx.plugins.options import located
from onyx.plugins.parts.columns import ColumnsFormat, ColumnsPartsWriter
from onyx.plugins.parts.formats import JsonLinesFormat, ParquetFormat
from onyx.plugins.parts.listing import NotThere, parts_in
from onyx.plugins.parts.names import whose
from onyx.plugins.parts.offsets import Part
from onyx.plugins.parts.stores import parts_at
from onyx.plugins.protocol import PluginContext
from onyx.plugins.roll_limits import roll_limits


class FilesOutput(ColumnsPartsWriter):
    """Parts of one task at `path`."""

    def __init__(self, context: PluginContext, options: OutputOptions) -> None:
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


def _format(context: PluginContext, options: OutputOptions) -> ColumnsFormat:
    compression = options.compression or COMPRESSIONS[options.format][0]
    if options.format == "parquet":
        return ParquetFormat(context, compression)
    return JsonLinesFormat(context, compression, options.nan)
