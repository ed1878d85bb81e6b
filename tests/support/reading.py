"""Reading an input as columns and as dicts, in the ways that the engine may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import pyarrow as pa

from onyx.flow.columns import Columns, to_dicts
from onyx.plugins.protocol import START, ColumnsReader, Cursor, Input


def read_columns(
    plugin: Input, name: str, cursor: Cursor, segments_max: int
) -> Iterator[pa.RecordBatch | list[Any]]:
    """All that a bounded partition gives from a cursor on, call by call."""
    with closing(plugin.open(name, cursor)) as reader:
        assert isinstance(reader, ColumnsReader)
        while not reader.exhausted():
            found = reader.read_columns(segments_max)
            assert len(found) <= segments_max
            if len(found):
                yield found


def same_as_dicts(make: Callable[[str], Input], name: str) -> None:
    """Columns hold what dicts do at each position, also from each cursor on: a key that a dict
    lacks is null.

    Args:
        make: the input for `dicts` or `arrow`.
    """
    plain = make("dicts")
    with closing(plain.open(name, START)) as reader:
        expected = []
        while not reader.exhausted():
            expected += [without_nulls(each) for each in reader.read(1000)]
    for size in (1, 3, 1000):
        assert as_dicts(read_columns(make("arrow"), name, START, size)) == expected
    plugin = make("arrow")
    with closing(plugin.open(name, START)) as reader:
        assert isinstance(reader, ColumnsReader)
        position = 0
        while not reader.exhausted():
            position += len(reader.read_columns(2))
            cursor = reader.cursor(position)
            assert cursor.position <= position
            stored = msgspec.json.decode(msgspec.json.encode(cursor.state))
            again = Cursor(cursor.position, stored)
            for fresh in (plugin, make("arrow")):
                found = as_dicts(read_columns(fresh, name, again, 5))
                assert found == expected[cursor.position :]


def as_dicts(parts: Iterator[pa.RecordBatch | list[Any]]) -> list[Any]:
    """The segments, without what is null."""
    found = []
    for part in parts:
        segments = part if isinstance(part, list) else to_dicts(Columns(part))
        found += [without_nulls(each) for each in segments]
    return found


def without_nulls(value: Any) -> Any:
    """The same without keys whose value is None, at any depth."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value
