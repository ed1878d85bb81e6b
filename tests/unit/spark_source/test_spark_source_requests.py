"""Rows of Spark as requests, and the options of a writer."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.errors import UserError
from onyx.spark_source import writers
from onyx.spark_source.options import write_options
from onyx.spark_source.writers import requests_of


def rows(*sizes: int) -> list[pa.RecordBatch]:
    firsts = [sum(sizes[:number]) for number in range(len(sizes))]
    return [
        pa.record_batch({"n": pa.array(range(first, first + size), pa.int64())})
        for first, size in zip(firsts, sizes, strict=True)
    ]


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 25), st.integers(300, 900))
def test_requests_are_neither_too_many_nor_too_large_and_keep_the_order(
    sizes: list[int], rows_max: int, bytes_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writers, "REQUEST_BYTES_MAX", bytes_max)
        found = list(requests_of(iter(rows(*sizes)), rows_max))
    assert [n for each in found for n in each.column(0).to_pylist()] == list(range(sum(sizes)))
    assert all(0 < len(each) <= rows_max for each in found)
    assert all(pa.ipc.get_record_batch_size(each) <= bytes_max for each in found)


def test_a_row_that_is_too_large_alone_is_refused() -> None:
    batch = pa.record_batch({"text": ["x" * 5_000_000]})
    with pytest.raises(UserError, match="a row has more than"):
        list(requests_of(iter([batch]), 10))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "option 'job' is missing"),
        ({"job": "a", "ack": "none"}, "an option is wrong"),
        ({"job": "a", "batchrows": "0"}, "an option is wrong"),
        ({"job": "a", "workers": "a:1", "zookeeper": "b:2"}, "either 'workers' or 'zookeeper'"),
        ({"job": "a", "startingfrom": "latest"}, "option 'startingfrom' is not known"),
    ],
)
def test_options_of_a_writer_that_are_wrong_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        write_options(given)
