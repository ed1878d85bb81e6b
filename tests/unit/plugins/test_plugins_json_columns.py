"""Columns as JSON: the same text as for the same segments in dicts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.jobs.plugin_context import plugin_context
from tests.support.windows.column_strategies import columns

from onyx.errors import UserError
from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.plugins import jsonl
from onyx.plugins.jsonl import JsonLines, Nan

NAN, INFINITY = float("nan"), float("inf")
ODD = {"a": [1.5, NAN, None], "b": [[INFINITY], [], [None, 2.5]], "n": [None, 1, 2]}


def lines(nan: Nan = "error") -> JsonLines:
    return JsonLines(plugin_context({}), nan)


def record_batch(segments: dict[str, list[Any]]) -> Columns:
    return Columns.of(pa.RecordBatch.from_pydict(segments))


@settings(max_examples=examples(300), deadline=None)
@given(rows=columns(), step=st.integers(1, 4))
def test_the_lines_are_those_of_dicts(rows: Columns, step: int) -> None:
    before, jsonl._ROWS = jsonl._ROWS, step
    try:
        assert b"".join(lines().encode_columns(rows)) == lines().encode(to_dicts(rows))
        assert lines().encode_each_of(rows) == lines().encode_each(to_dicts(rows))
    finally:
        jsonl._ROWS = before


@pytest.mark.parametrize("nan", ["null", "text"])
def test_what_is_not_finite_is_written_as_in_dicts(nan: Nan) -> None:
    rows = record_batch(ODD)
    assert b"".join(lines(nan).encode_columns(rows)) == lines(nan).encode(to_dicts(rows))


@pytest.mark.parametrize("key", ["a", "b"])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_what_is_not_finite_is_refused_with_its_key(key: str, kind: pa.DataType) -> None:
    array = pa.array(ODD["a"], kind)
    batch = pa.RecordBatch.from_arrays([array if key == "a" else pa.array(ODD["b"])], names=[key])
    with pytest.raises(UserError, match=rf"key '{key}' holds NaN or an infinity.* set option nan"):
        list(lines().encode_columns(Columns(batch)))


def test_what_no_text_says_is_refused_with_its_key() -> None:
    late = pa.array([2**60]).cast(pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([late], names=["at"])
    with pytest.raises(UserError, match=r"key 'at' holds a timestamp\[us, tz=UTC\] that JSON"):
        list(lines().encode_columns(Columns(batch)))
