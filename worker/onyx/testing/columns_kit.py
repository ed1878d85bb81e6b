"""Checks that an input gives the same segments as columns that it gives as dicts.

A key that a dict lacks and a key that is None are both null in columns, so nulls are left out of
the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import pyarrow as pa

from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.plugins.protocol import START, ColumnsReader, Cursor, Input

READS_MAX = 1_000_000
"""Reads in a row after which a source counts as one that never ends."""


def check_columns_input(
    make: Callable[[str], Input], read_sizes: Iterable[int] = (1, 3, 1_000)
) -> None:
    """Check an input whose readers can read columns, over a bounded and small source.

    Args:
        make: a new instance over the same source each time it is called, for a task with this
            `batchFormat`: `dicts` or `arrow`.
        read_sizes: how many segments are asked for at a time, one whole reading for each.

    Raises:
        AssertionError: what was done, and what came of it.
    """
    with closing(make("dicts")) as plugin:
        expected = {name: _segments(plugin, name) for name in plugin.partitions()}
    with closing(make("arrow")) as plugin:
        names = list(plugin.partitions())
        assert names == list(expected), f"partitions() gives {names}, for dicts {list(expected)}"
    for name, segments in expected.items():
        for size in read_sizes:
            with closing(make("arrow")) as plugin:
                found = plain(read_columns(plugin, name, START, size))
            assert found == segments, f"{name}: {size} rows at a time give {found}, not {segments}"
        _check_cursors(make, name, segments)


def _check_cursors(make: Callable[[str], Input], name: str, segments: list[Any]) -> None:
    with closing(make("arrow")) as plugin, closing(plugin.open(name, START)) as reader:
        assert isinstance(reader, ColumnsReader)
        position = 0
        for _ in range(READS_MAX):
            if reader.exhausted():
                return
            position += len(reader.read_columns(2))
            cursor = reader.cursor(position)
            assert cursor.position <= position, f"{name}: cursor({position}) is later: {cursor}"
            stored = msgspec.json.decode(msgspec.json.encode(cursor.state))
            again = Cursor(cursor.position, stored)
            with closing(make("arrow")) as fresh:
                for each in (plugin, fresh):
                    found = plain(read_columns(each, name, again, 5))
                    wanted = segments[cursor.position :]
                    assert found == wanted, f"{name}: re-opened at {cursor}: {found}, not {wanted}"
    raise AssertionError(f"{name}: not exhausted after {READS_MAX} reads")


def read_columns(
    plugin: Input, name: str, cursor: Cursor, segments_max: int
) -> Iterator[pa.RecordBatch | list[Any]]:
    """All that a bounded partition gives from a cursor on, call by call."""
    with closing(plugin.open(name, cursor)) as reader:
        assert isinstance(reader, ColumnsReader), f"{type(reader)} has no read_columns"
        for _ in range(READS_MAX):
            if reader.exhausted():
                return
            found = reader.read_columns(segments_max)
            count = len(found)
            assert count <= segments_max, f"read_columns({segments_max}) gave {count} rows"
            if count:
                yield found
    raise AssertionError(f"{name}: not exhausted after {READS_MAX} reads")


def plain(parts: Iterable[pa.RecordBatch | list[Any]]) -> list[Any]:
    """The segments, without what is null."""
    found = []
    for part in parts:
        segments = part if isinstance(part, list) else to_dicts(Columns.of(part))
        found += [without_nulls(each) for each in segments]
    return found


def without_nulls(value: Any) -> Any:
    """The value without keys whose value is None, at any depth."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def _segments(plugin: Input, name: str) -> list[Any]:
    with closing(plugin.open(name, START)) as reader:
        segments: list[Any] = []
        for _ in range(READS_MAX):
            if reader.exhausted():
                return segments
            segments += [without_nulls(each) for each in reader.read(1_000)]
    raise AssertionError(f"{name}: not exhausted after {READS_MAX} reads")
