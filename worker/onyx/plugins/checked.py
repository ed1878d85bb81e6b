"""Checks a user's plugin against the protocol at run time; an error names the plugin and the rule.

Without these checks a reader that returns too much, or something that is no dict, fails elsewhere
and later, or loses segments. Plugins of Onyx are not checked here, because their tests check them.
A plugin that never makes progress looks like a slow one: that is no error, and is reported while
the job does not advance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from onyx.errors import UserError, describe_type
from onyx.flow.segment import Segment
from onyx.plugins.bases import ImmediateOutput
from onyx.plugins.protocol import (
    Around,
    Behind,
    ColumnsReader,
    Cursor,
    Input,
    MeasuredInput,
    Output,
    Reader,
)

_OF_READERS = ("read", "exhausted", "cursor", "close", "obstacle")
_OF_COLUMNS = (*_OF_READERS, "ready")


def check_built(plugin: Any, name: str) -> None:
    """Raises UserError if a user's class does not call `__init__` of its base class of Onyx."""
    bases = [each for each in type(plugin).__mro__[1:] if Protocol not in each.__bases__]
    ours = [each for each in bases if each.__module__.startswith("onyx.plugins.")]
    base = next((each for each in ours if "__init__" in vars(each)), None)
    if base is not None and "_durable" not in vars(plugin):
        raise UserError(
            f"plugin {name} breaks a rule: {type(plugin).__name__}.__init__() does not call "
            f"super().__init__(), which {base.__name__} needs"
        )


class CheckedInput(Input):
    """A user's input (`protocol.Input`). Raises UserError where it breaks a rule."""

    def __init__(self, plugin: Input, name: str) -> None:
        self._plugin = plugin
        self._name = name
        self.cooperative = plugin.cooperative
        self.examined = plugin.examined
        self.wakes = plugin.wakes

    def partitions(self) -> Sequence[str]:
        """A list of different strings, or UserError."""
        found: Any = self._plugin.partitions()
        if not isinstance(found, list | tuple) or {*map(type, found)} - {str}:
            raise _broken(
                self._name, f"partitions() returned {describe_type(found)}, not a list of str"
            )
        if len(set(found)) != len(found):
            raise _broken(self._name, "partitions() names a partition twice")
        return found

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """A reader with all methods, or UserError."""
        reader = self._plugin.open(partition, cursor)
        columns = hasattr(reader, "read_columns")
        methods = _OF_COLUMNS if columns else _OF_READERS
        missing = [each for each in methods if not callable(getattr(reader, each, None))]
        if missing:
            what = f"open() returned {describe_type(reader)} without {missing[0]}()"
            base = "ColumnsReader" if columns else "Reader"
            raise _broken(self._name, f"{what}, which all have that derive from {base}")
        return (CheckedColumnsReader if columns else CheckedReader)(reader, self._name)

    def behind(self, cursors: Mapping[str, Cursor]) -> Mapping[str, Behind]:
        """What the plugin says, if it has the method (`protocol.MeasuredInput`), or UserError."""
        if not isinstance(self._plugin, MeasuredInput):
            return {}
        found: Any = self._plugin.behind(cursors)
        if not isinstance(found, dict) or {*map(type, found.values())} - {Behind}:
            what = f"behind() returned {describe_type(found)}, not a dict with a Behind for each"
            raise _broken(self._name, f"{what} partition")
        return {name: each for name, each in found.items() if name in cursors}

    def close(self) -> None:
        """Close the plugin."""
        self._plugin.close()

    def column_types(self) -> Mapping[str, pa.DataType]:
        """The types that the plugin says."""
        return self._plugin.column_types()

    def describe(self, partition: str, position: int) -> str:
        """The name that the plugin gives."""
        return self._plugin.describe(partition, position)


class CheckedReader(Reader, Around):
    """A reader of a user's input."""

    def __init__(self, reader: Reader, plugin: str) -> None:
        self._reader = self.beneath = reader
        self._plugin = plugin

    def read(self, segments_max: int) -> list[Segment]:
        """At most `segments_max` dicts, or UserError."""
        return self._checked(self._reader.read(segments_max), segments_max, "read")

    def _checked(self, found: Any, segments_max: int, method: str) -> list[Segment]:
        if type(found) is not list:
            raise _broken(self._plugin, f"{method}() returned {describe_type(found)}, not a list")
        if len(found) > segments_max:
            what = f"{method}({segments_max}) returned {len(found)} segments, which is more"
            raise _broken(self._plugin, what)
        kinds = set(map(type, found))
        if kinds and kinds != {dict}:
            odd = next(each for each in found if type(each) is not dict)
            what = f"{method}() returned a list that holds {describe_type(odd)}, not a dict"
            raise _broken(self._plugin, what)
        return found

    def exhausted(self) -> bool:
        """A bool, or UserError."""
        found: Any = self._reader.exhausted()
        if type(found) is not bool:
            raise _broken(self._plugin, f"exhausted() returned {describe_type(found)}, not a bool")
        return found

    def cursor(self, position: int) -> Cursor:
        """A cursor at or before `position`, or UserError."""
        found: Any = self._reader.cursor(position)
        if not isinstance(found, Cursor) or type(found.position) is not int:
            raise _broken(self._plugin, f"cursor() returned {describe_type(found)}, not a Cursor")
        if not 0 <= found.position <= position:
            raise _broken(
                self._plugin,
                f"cursor({position}) returned a cursor at position {found.position}: it must be at "
                "or before the position asked for, or segments would be left out",
            )
        return found

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


class CheckedColumnsReader(CheckedReader, ColumnsReader):
    """A reader of a user's input that can read columns."""

    def read_columns(self, segments_max: int) -> pa.RecordBatch | list[Segment]:
        """At most `segments_max` rows, or dicts, or UserError."""
        assert isinstance(self._reader, ColumnsReader), "asked before"
        found: Any = self._reader.read_columns(segments_max)
        if isinstance(found, list):
            return self._checked(found, segments_max, "read_columns")
        if not isinstance(found, pa.RecordBatch):
            what = f"read_columns() returned {describe_type(found)}, not a pyarrow.RecordBatch"
            raise _broken(self._plugin, what)
        if found.num_rows > segments_max:
            what = f"read_columns({segments_max}) returned {found.num_rows} rows, which is more"
            raise _broken(self._plugin, what)
        return found

    def ready(self) -> int:
        """An int, or UserError."""
        assert isinstance(self._reader, ColumnsReader), "asked before"
        found: Any = self._reader.ready()
        if type(found) is not int:
            raise _broken(self._plugin, f"ready() returned {describe_type(found)}, not an int")
        return found


class DurableCount:
    """Checks the `durable()` of a user's output."""

    def __init__(self, plugin: Output, name: str) -> None:
        self._plugin = plugin
        self._name = name
        self._before = 0

    def after(self, written: int) -> int:
        """What the output says now.

        Args:
            written: segments that were ever written to the plugin.

        Raises:
            UserError: it went back, or exceeds what was written.
        """
        found: Any = self._plugin.durable()
        if type(found) is not int:
            raise self._wrong(f"durable() returned {describe_type(found)}, not an int")
        if found > written:
            raise self._wrong(f"durable() returned {found}, but only {written} were written")
        if found < self._before:
            raise self._wrong(f"durable() went back from {self._before} to {found}")
        if found < written and isinstance(self._plugin, ImmediateOutput):
            raise self._wrong(
                f"write() was overridden and counts only {found} of {written} segments: override "
                "deliver() instead, or call super().write() with all segments"
            )
        self._before = found
        return found

    def _wrong(self, what: str) -> UserError:
        return UserError(
            f"plugin {self._name} breaks a rule of outputs: {what}; see onyx.plugin.Output"
        )


def _broken(plugin: str, what: str) -> UserError:
    return UserError(f"plugin {plugin} breaks a rule of inputs: {what}; see onyx.plugin.Reader")
