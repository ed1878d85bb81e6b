"""Batches are given to the plugin of an output in a form that it takes."""

from __future__ import annotations

from onyx.flow.batch import Segments, format_of
from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.plugins.protocol import ColumnsOutput, Output


class Writer:
    """Writes to one plugin: columns as they are where it takes them, else dicts."""

    def __init__(self, plugin: Output) -> None:
        self._plugin = plugin
        self._columns = plugin if isinstance(plugin, ColumnsOutput) else None

    def write(self, segments: Segments) -> None:
        """Write a batch. Raises like `Output.write`."""
        format_of(segments).choose(self._plugin.write, self._write_columns)(segments)

    def _write_columns(self, columns: Columns) -> None:
        if self._columns is not None:
            self._columns.write_columns(columns.record_batch)
        else:
            self._plugin.write(to_dicts(columns))
