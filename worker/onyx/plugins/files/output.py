"""Output `files`: JSON lines or Parquet, in parts that appear whole (see `parts.writer`)."""

from __future__ import annotations

import contextlib

from onyx.plugins.files.options import COMPRESSIONS, FilesOutputOptions
from onyx.plugins.options import located, option_error
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
        if options.existing == "refuse" and context.upgrades is None:
            self._refuse_others(context)
        super().__init__(store, _format(context, options), context, roll_limits(options))

    def _refuse_others(self, context: PluginContext) -> None:
        """Raises UserError if others have parts here and this job has none: it has just begun."""
        own = f"--{context.job}"

        def has(mine: bool) -> bool:
            found = parts_in(str(self._path), lambda who: who.endswith(own) is mine, context.where)
            return next(found, None) is not None

        with contextlib.suppress(NotThere):
            if has(mine=False) and not has(mine=True):
                what = "has parts of other jobs: name another folder, or say existing: append"
                raise option_error(context, "path", what)

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
