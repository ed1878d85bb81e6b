"""Segments in the form that the task and its plugin have in common: read as dicts or columns by one
method, and written in a form that the plugin takes.

A reader of columns gives one form at a time: columns of the same types, or dicts. What it has
already (`ready`) is read in one go, so that a bad record among many does not cut a batch. When the
rest of it cannot be read now, what comes before is given first, so that positions do not move.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from onyx.errors import OnyxError
from onyx.flow.batch import Read, Segments, format_of, of_runs
from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.plugins.protocol import Around, ColumnsOutput, ColumnsReader, Cursor, Output, Reader

# --- reading ------------------------------------------------------------------------------------


class SegmentsReader(Protocol):
    """A reader (`protocol.Reader`) that may give columns."""

    def read(self, segments_max: int) -> Read:
        """The next segments, at most `segments_max`; empty when there are none now."""
        ...

    def exhausted(self) -> bool:
        """True when everything was read and nothing will ever follow."""
        ...

    def cursor(self, position: int) -> Cursor:
        """The nearest known cursor at or before `position`."""
        ...

    def close(self) -> None:
        """Release the partition; nothing is read afterwards."""
        ...


def plugin_reader(reader: SegmentsReader) -> Reader:
    """The plugin's own reader, which may have methods of other protocols."""
    found: Any = reader
    while isinstance(found, Around):
        found = found.beneath
    own: Reader = found
    return own


def segments_reader(reader: Reader, columns: bool) -> SegmentsReader:
    """The reader of partition, read as columns if that is wanted and the plugin can."""
    if columns and isinstance(reader, ColumnsReader):
        return _OfColumns(reader, reader)
    return reader


class _OfColumns(Around):
    def __init__(self, reader: Reader, columns: ColumnsReader) -> None:
        self._columns = columns
        self.beneath = reader
        self.exhausted = reader.exhausted
        self.cursor = reader.cursor
        self.close = reader.close
        self._ready = columns.ready

    def read(self, segments_max: int) -> Read:
        runs = [self._next(segments_max)]
        count = len(runs[0])
        with suppress(OnyxError):  # the next read meets it again
            while 0 < count < segments_max and self._ready():
                runs.append(self._next(segments_max - count))
                count += len(runs[-1])
        return of_runs(runs)

    def _next(self, segments_max: int) -> Segments:
        found = self._columns.read_columns(segments_max)
        return found if isinstance(found, list) else Columns.of(found)


# --- writing ------------------------------------------------------------------------------------


class PluginWriter:
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
