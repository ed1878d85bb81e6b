"""Columns as messages of Kafka: the same as of the same segments in dicts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.support.column_strategies import columns
from tests.support.plugin_context import plugin_context

from onyx.errors import UserError
from onyx.flow.columns import Columns, to_dicts
from onyx.plugins.kafka.messages import Messages
from onyx.plugins.kafka.options import OutputOptions
from onyx.plugins.options import read_options

NOON = datetime(2026, 3, 1, 12, 0, 0, 1_001, UTC)


def messages(**options: Any) -> Messages:
    given = {"bootstrapServers": "localhost:1", "topic": "t", **options}
    context = plugin_context(given)
    return Messages(context, read_options(context, OutputOptions))


def batch(**given: Any) -> Columns:
    return Columns.of(pa.RecordBatch.from_pydict(given))


@settings(max_examples=100, deadline=None)
@given(rows=columns())
def test_json_messages_are_those_of_dicts(rows: Columns) -> None:
    assert messages().of_columns(rows) == messages().of(to_dicts(rows))


@pytest.mark.parametrize("key", [["a", None, "ü"], [1, None, -2], [b"x", b"", None], [None] * 3])
@pytest.mark.parametrize("at", [[5, None, 0], [NOON, None, NOON], [None] * 3])
@pytest.mark.parametrize("value", [["x", None, ""], [b"\xff", None, b""], [7, 8, 9]])
def test_key_value_and_time_are_those_of_dicts(key: Any, at: Any, value: Any) -> None:
    rows = batch(k=key, at=at, v=value)
    fields = {"keyField": "k", "timestampField": "at", "format": "bytes", "valueField": "v"}
    made = messages(**fields)
    assert made.of_columns(rows) == made.of(to_dicts(rows))


def test_fields_that_a_batch_lacks_are_none() -> None:
    made = messages(keyField="k", timestampField="at", format="text", valueField="v")
    rows = batch(other=[1, 2])
    assert made.of_columns(rows) == made.of(to_dicts(rows))


def test_headers_are_those_of_dicts() -> None:
    made = messages(headersField="h")
    rows = batch(h=[{"a": "b"}, None], n=[1, 2])
    assert made.of_columns(rows) == made.of(to_dicts(rows))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"k": [1.5]}, "key 'k' holds a float; a str, bytes or an int is wanted"),
        ({"at": [-5]}, "key 'at' holds a int; milliseconds since 1970"),
        ({"at": ["soon"]}, "key 'at' holds a str; milliseconds since 1970"),
        ({"k": ["x"], "n": ["y" * 1_000_000]}, r"a message of 1,000,\d+ bytes is too large"),
    ],
)
def test_what_is_no_message_is_refused_with_its_key(given: Any, why: str) -> None:
    with pytest.raises(UserError, match=why):
        messages(keyField="k", timestampField="at").of_columns(batch(**given))
