"""A function over columns: which row of the batch a row of its result belongs to."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import onyx
from onyx.flow.columns.record_batch import Columns, from_dicts, to_dicts
from onyx.flow.leaves import ERROR, RETRY, ROW, Leaves, apply_to_columns

BATCH = from_dicts([{"n": n, "words": ["w"] * n} for n in (3, 0, 2, 1)])[0]


def lineage(leaves: Leaves) -> tuple[list[Any], Any, Any]:
    assert isinstance(leaves.segments, Columns)
    parents = None if leaves.parents is None else leaves.parents.tolist()
    index = None if leaves.child_index is None else leaves.child_index.tolist()
    return [row["n"] for row in to_dicts(leaves.segments)], parents, index


def messages(leaves: Leaves) -> set[str]:
    assert [index for index, _ in leaves.failures] == [0, 1, 2, 3]
    return {str(error) for _, error in leaves.failures}


def test_as_many_rows_belong_to_the_rows_in_order():
    leaves = apply_to_columns(lambda batch: batch.select(["n"]), (), BATCH)
    assert lineage(leaves) == ([3, 0, 2, 1], None, None)


def test_a_filter_keeps_the_parents():
    leaves = apply_to_columns(lambda batch: batch.filter(pc.field("n") > 1), (), BATCH)
    assert lineage(leaves) == ([3, 2], [0, 2], None)


def test_a_sort_is_put_back_in_the_order_of_the_parents():
    leaves = apply_to_columns(lambda batch: batch.sort_by("n"), (), BATCH)
    assert lineage(leaves) == ([3, 0, 2, 1], None, None)


def test_an_explosion_with_polars_counts_the_children_of_each_parent():
    def explode(batch: pa.RecordBatch) -> pl.DataFrame:
        return pl.from_arrow(batch).explode("words").drop_nulls("words")

    leaves = apply_to_columns(explode, (), BATCH)
    expected = ([3, 3, 3, 2, 2, 1], [0, 0, 0, 2, 2, 3], [0, 1, 2, 0, 1, 0])
    assert lineage(leaves) == expected


def test_a_query_of_duckdb_keeps_the_parents():
    def query(batch: pa.RecordBatch) -> Any:
        return duckdb.from_arrow(pa.table(batch)).filter("n < 3").to_arrow_table()

    assert lineage(apply_to_columns(query, (), BATCH)) == ([0, 2, 1], [1, 2, 3], None)


def test_params_come_first_and_several_batches_are_one_result():
    def fn(low: int, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        return [batch.slice(0, 1), batch.filter(pc.field("n") < low)]

    assert lineage(apply_to_columns(fn, (2,), BATCH)) == ([3, 0, 1], [0, 1, 3], None)


@pytest.mark.parametrize("nothing", [None, []])
def test_nothing_is_no_rows(nothing):
    leaves = apply_to_columns(lambda batch: nothing, (), BATCH)
    assert (len(leaves), leaves.failures) == (0, [])


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (lambda batch: batch.select(["n"]).slice(1), "3 rows without __row__ for 4"),
        (lambda batch: batch.set_column(2, ROW, pa.array([0, 1, 2, 4])), "no row of the batch has"),
        (lambda batch: batch.set_column(2, ROW, pa.array([0, 1, 2, None])), "has nulls"),
        (lambda batch: batch.set_column(2, ROW, pa.array(["0"] * 4)), "values of type string"),
        (lambda batch: batch.to_pylist()[0], "returned a dict"),
        (lambda batch: 1, "returned an int"),
    ],
)
def test_a_broken_rule_is_shown_for_every_row(fn, said):
    (message,) = messages(apply_to_columns(fn, (), BATCH))
    assert said in message
    assert "row" in message


def test_what_the_function_raises_is_the_failure_of_every_row():
    def divide(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ZeroDivisionError("by hand")

    assert messages(apply_to_columns(divide, (), BATCH)) == {"by hand"}


def test_a_large_batch_has_its_row_numbers():
    columns = Columns(pa.record_batch({"n": np.arange(40_000)}))
    leaves = apply_to_columns(lambda batch: batch.slice(39_999), (), columns)
    assert leaves.parents is not None
    assert leaves.parents.tolist() == [39_999]


# --- retries -------------------------------------------------------------------------------------


def asked(leaves: Leaves) -> list[tuple[int, str, str]]:
    return [(index, type(error).__name__, str(error)) for index, error in leaves.failures]


def with_column(name: str, values: pa.Array) -> Any:
    return lambda batch: batch.select(["n"]).append_column(name, values)


def test_a_mask_says_which_rows_are_to_be_read_again():
    mask = pa.array([True, False, None, True])
    leaves = apply_to_columns(with_column(RETRY, mask), (), BATCH)
    assert lineage(leaves)[:2] == ([0, 2], [1, 2])
    said = "the function returned onyx.FAIL"
    assert asked(leaves) == [(0, "Retry", said), (3, "Retry", said)]


def test_text_says_why_a_row_is_to_be_read_again():
    leaves = apply_to_columns(with_column(RETRY, pa.array([None, "busy", None, ""])), (), BATCH)
    assert lineage(leaves)[:2] == ([3, 2], [0, 2])
    assert asked(leaves) == [(1, "Retry", "busy"), (3, "Retry", f"{RETRY} is empty text")]


def test_nothing_in_the_column_changes_nothing():
    for none in (pa.nulls(4), pa.array([False] * 4), pa.array([None] * 4, pa.string())):
        leaves = apply_to_columns(with_column(RETRY, none), (), BATCH)
        assert lineage(leaves) == ([3, 0, 2, 1], None, None)
        assert not leaves.segments.has(RETRY)


def test_a_row_that_has_failed_and_is_to_be_read_again_is_read_again():
    def fn(batch):
        made = batch.select(["n"]).append_column(ERROR, pa.array(["bad", "bad", None, None]))
        return made.append_column(RETRY, pa.array([False, True, True, False]))

    leaves = apply_to_columns(fn, (), BATCH)
    assert [each[:2] for each in asked(leaves)] == [
        (0, "UserFunctionError"),
        (1, "Retry"),
        (2, "Retry"),
    ]
    assert lineage(leaves)[:2] == ([1], [3])


def test_a_retry_that_is_raised_is_for_all_rows():
    def fn(batch):
        raise onyx.Retry("down", max_retries=2)

    assert asked(apply_to_columns(fn, (), BATCH)) == [(n, "Retry", "down") for n in range(4)]


def test_a_column_of_retries_holds_text_or_a_mask():
    leaves = apply_to_columns(with_column(RETRY, pa.array([1, 0, 0, 1])), (), BATCH)
    [said] = messages(leaves)
    assert "values of type int64 in __retry__" in said
