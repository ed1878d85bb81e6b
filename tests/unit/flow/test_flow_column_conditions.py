"""Flow conditions over columns: functions, comparisons, failures, keys left out, conversions."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from onyx.errors import UserFunctionError
from onyx.flow import routing
from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.flow.conditions import compile_conditions
from onyx.flow.leaves import Leaves
from onyx.flow.routed import FailureHandling
from onyx.flow.routing import route_batch
from onyx.flow.segment import Refusal
from onyx.model.job import FlowCondition, Job

CHILDREN = ("b", "c", "errors")
WORKFLOW = (("in", "a"), *(("a", child) for child in CHILDREN))
ROWS = Columns(
    pa.RecordBatch.from_pydict(
        {"n": [0, 1, 2, 3, None], "k": ["x", "y", None, "x", "z"], "f": [0.5, 1, 2, 3, 4]}
    )
)


def seen_by(calls):
    """Functions of which each notes what it was given."""

    def over(event, rows, limit):
        calls.append(rows.num_rows)
        return pc.greater(rows["n"], limit)

    def numpy(event, rows):
        return np.array([True, False, True, False, True])

    def dicts(event, old, new, all_new):
        calls.append(new["n"])
        return new["k"] == "x"

    return {
        "m:over": over,
        "m:numpy": numpy,
        "m:polars": lambda event, rows: pl.from_arrow(rows)["n"] > 1,
        "m:dicts": dicts,
        "m:fails": lambda event, rows: 1 / 0,
        "m:all": lambda event, rows: pc.is_valid(rows["f"]),
        "m:chunks": lambda event, rows: pa.chunked_array([[True, None], [None, False, True]]),
        "m:nulls": lambda event, rows: pa.nulls(rows.num_rows),
        "m:number": lambda event, rows: rows["n"],
        "m:short": lambda event, rows: np.array([True]),
        "m:one": lambda event, rows: True,
        "m:many": lambda event, rows: rows,
        "m:post": lambda event, asked, error: {"error": type(error).__name__, "n": 7},
        "m:any": lambda event, old, error, all_new: True,
    }


def condition(to, predicate, batch_format="dicts", **keys):
    return FlowCondition("a", to, predicate, batch_format=batch_format, **keys)


def routed(*conditions, rows=ROWS, leaves=None, calls=None, handling=None):
    job = Job("j", WORKFLOW, (), flow_conditions=conditions)
    compiled = compile_conditions(job, "a", seen_by([] if calls is None else calls).__getitem__)
    return route_batch(
        compiled, CHILDREN, {}, rows, leaves or Leaves(rows), handling or FailureHandling()
    )


def columns_to(result, child):
    segments = result.to[child].segments
    assert isinstance(segments, Columns)
    return segments


@pytest.mark.parametrize(
    ("predicate", "batch_format", "parents"),
    [
        ((">", "n", 1), "dicts", [2, 3]),
        (("!=", "k", "x"), "dicts", [1, 2, 4]),
        (("and", (">", "n", 0), ("in", "k", ("x", "y"))), "dicts", [1, 3]),
        (("or", ("is-null", "k"), ("==", "f", 4)), "dicts", [2, 4]),
        (("not", ("is-null", "nowhere")), "dicts", []),
        (("m:over", "limit"), "arrow", [2, 3]),
        ("m:numpy", "arrow", [0, 2, 4]),
        ("m:polars", "arrow", [2, 3]),
        ("m:chunks", "arrow", [0, 4]),
        ("m:nulls", "arrow", []),
        (("and", "m:numpy", ("not", ("m:over", "limit"))), "arrow", [0, 4]),
        ("m:dicts", "dicts", [0, 3]),
        (("or", ("is-null", "n"), "m:dicts"), "dicts", [0, 3, 4]),
        (("sql", "n * 2 > 3"), "dicts", [2, 3]),
        (("not", ("sql", "n * 2 > 3")), "dicts", [0, 1, 4]),
        (("and", ("sql", "k in ('x', 'y')"), (">", "n", 0)), "dicts", [1, 3]),
        (("or", ("sql", "f = 4"), "m:numpy"), "arrow", [0, 2, 4]),
    ],
)
def test_columns_go_where_the_predicate_holds(predicate, batch_format, parents):
    result = routed(condition(("b",), predicate, batch_format, options={"limit": 1}))
    assert result.to["b"].parents is None or result.to["b"].parents.tolist() == parents
    assert to_dicts(columns_to(result, "b")) == [ROWS.row(parent) for parent in parents]
    assert not result.failures


def test_a_function_over_columns_gets_the_whole_batch_even_where_a_row_is_decided():
    calls = []
    routed(
        condition("none", ("==", "n", 0), short_circuit=True),
        condition(("b",), ("m:over", "limit"), "arrow", options={"limit": 1}),
        calls=calls,
    )
    assert calls == [5]


def test_a_function_over_dicts_gets_only_rows_that_are_not_decided():
    calls = []
    routed(
        condition(("b",), ("==", "n", 0), short_circuit=True),
        condition(("c",), ("and", ("not", ("is-null", "k")), "m:dicts")),
        calls=calls,
    )
    assert calls == [1, 3, None]


def test_rows_are_converted_once_for_several_functions_over_dicts(monkeypatch):
    made = []
    monkeypatch.setattr(
        routing, "shown_dicts", lambda rows: made.append(len(rows)) or to_dicts(rows)
    )
    routed(
        condition(("b",), ("and", (">", "n", 0), "m:dicts")),
        condition(("c",), ("not", "m:dicts")),
        condition(("b",), "m:dicts"),
    )
    # In each the old segments and the new ones: rows 1 to 3, then the others.
    assert made == [3, 3, 2, 2]


def test_nothing_is_converted_for_comparisons_and_functions_over_columns(monkeypatch):
    monkeypatch.setattr(routing, "shown_dicts", None)
    result = routed(
        condition(("b",), ("and", (">", "n", 0), "m:numpy"), "arrow"),
        condition(("c",), ("in", "k", ("x",)), exclude_keys=("k",)),
    )
    assert [len(columns_to(result, child)) for child in ("b", "c")] == [1, 2]


def test_dicts_are_converted_once_for_functions_over_columns(monkeypatch):
    made = []
    real = routing.from_dicts
    monkeypatch.setattr(routing, "from_dicts", lambda each: made.append(len(each)) or real(each))
    dicts = to_dicts(ROWS)
    result = routed(
        condition(("b",), ("m:over", "limit"), "arrow", options={"limit": 1}),
        condition(("c",), "m:numpy", "arrow"),
        rows=dicts,
    )
    assert made == [5]
    assert result.to["b"].segments == dicts[2:4]
    assert result.to["c"].segments == dicts[::2]


def test_a_dict_that_fits_no_column_fails_only_the_conditions_over_columns():
    dicts = [{"n": 1}, {"n": "one"}, {"n": 3}]
    result = routed(
        condition(("b",), ("m:over", "limit"), "arrow", options={"limit": 1}),
        condition(("c",), ("==", "n", "one")),
        rows=dicts,
    )
    [(parent, error)] = result.failures
    assert parent == 1
    assert "key 'n' holds a str where the column is of type int64" in str(error)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("m:number", "returned a pyarrow.lib.Int64Array of int64"),
        ("m:short", "returned 1 answers for 5 rows"),
        ("m:one", "returned a bool"),
        ("m:many", "returned a pyarrow.lib.RecordBatch"),
    ],
)
def test_an_answer_of_another_form_fails_all_rows_with_the_rule(name, said):
    result = routed(condition(("b",), name, "arrow"))
    assert [parent for parent, _ in result.failures] == [0, 1, 2, 3, 4]
    assert {type(error) for _, error in result.failures} == {UserFunctionError}
    message = str(result.failures[0][1])
    assert said in message
    assert "fn(event, record_batch, *params)" in message
    assert "as long as the batch; null is false" in message


def test_what_a_predicate_raises_goes_beside_the_columns_of_the_others():
    result = routed(
        condition("none", ("==", "n", 0), short_circuit=True),
        condition(
            ("b",),
            ("or", (">", "n", 2), (">", "k", 1)),
            predicate_errors_to=("b",),
            post_transform="m:post",
            exclude_keys=("n",),
        ),
    )
    assert to_dicts(columns_to(result, "b")) == [{"k": "x", "f": 3.0}]
    assert result.to["b"].parents.tolist() == [3]
    beside = result.beside["b"]
    assert beside.segments == [{"error": "Refusal"}] * 2
    assert beside.parents.tolist() == [1, 4]
    assert [len(share) for share in result.shares_of("b")] == [1, 2]


def test_rows_that_another_operand_decides_do_not_fail():
    either = routed(condition(("b",), ("or", ("is-null", "nowhere"), (">", "k", 1))))
    assert not either.failures
    both = routed(condition(("b",), ("and", ("==", "n", 2), (">", "k", 1))))
    assert not both.failures
    some = routed(condition(("b",), ("and", ("in", "n", (2, 3)), (">", "k", 1))))
    assert [(parent, type(error)) for parent, error in some.failures] == [(3, Refusal)]


def test_a_row_that_failed_is_asked_nothing_more():
    calls = []
    routed(condition(("b",), ("or", ("not", (">", "k", 1)), "m:dicts")), calls=calls)
    assert calls == []
    routed(condition(("b",), ("or", (">", "k", 1), "m:dicts")), calls=calls)
    assert calls == [2]


def test_keys_left_out_are_dropped_or_null():
    result = routed(
        condition(("b",), (">", "n", 1), exclude_keys=("f", "nowhere")),
        condition(("b", "c"), ("is-null", "k"), exclude_keys=("n",)),
    )
    assert columns_to(result, "b").record_batch.schema.names == ["n", "k"]
    assert to_dicts(columns_to(result, "b")) == [{"n": None, "k": None}, {"n": 3, "k": "x"}]
    assert to_dicts(columns_to(result, "c")) == [{"k": None, "f": 2.0}]


def test_rows_of_which_the_function_failed_go_beside_the_others_as_dicts():
    failed = ValueError("bad")
    kept = np.array([0, 2, 3, 4])
    leaves = Leaves(ROWS.take(kept), kept, None, [(1, failed)])
    result = routed(
        condition(
            ("errors",), "m:any", short_circuit=True, thrown_exception=True, post_transform="m:post"
        ),
        condition(("b",), ("is-null", "n")),
        leaves=leaves,
    )
    assert result.to["errors"].segments == [{"error": "ValueError", "n": 7}]
    assert result.to["errors"].parents.tolist() == [1]
    assert result.to["b"].parents.tolist() == [4]


def test_a_dead_letter_beside_columns():
    handling = FailureHandling("b", lambda index, error: {"letter": index})
    leaves = Leaves(ROWS.take(np.array([0])), np.array([0]), None, [(1, ValueError())])
    result = routed(condition(("b",), ("==", "n", 0)), leaves=leaves, handling=handling)
    assert len(columns_to(result, "b")) == 1
    assert result.beside["b"].segments == [{"letter": 1}]
    assert len(result.letters) == 1


def test_rows_are_retried():
    result = routed(condition("none", (">", "n", 1), short_circuit=True, action="retry"))
    assert result.retries == [2, 3]
    assert [len(result.to[child]) for child in CHILDREN] == [0, 0, 0]


def test_sql_over_dicts_is_over_columns_made_of_them():
    dicts = to_dicts(ROWS)
    result = routed(condition(("b",), ("sql", "n + f > 2 and k is not null")), rows=dicts)
    assert result.to["b"].segments == [dicts[3]]
    assert not result.failures


def test_sql_fails_for_the_rows_that_it_cannot_compute_with_and_nobody_has_decided():
    rows = Columns(pa.RecordBatch.from_pydict({"t": ["1", "x", "3", "y"]}))
    result = routed(
        condition("none", ("==", "t", "y"), short_circuit=True),
        condition(("b",), ("sql", "t::int > 1")),
        rows=rows,
    )
    assert [parent for parent, _ in result.failures] == [1]
    assert "Could not convert string 'x'" in str(result.failures[0][1])
    assert to_dicts(columns_to(result, "b")) == [{"t": "3"}]


def test_sql_about_a_column_that_is_not_there_fails_all_rows():
    result = routed(condition(("b",), ("sql", "nn > 1")))
    assert [parent for parent, _ in result.failures] == [0, 1, 2, 3, 4]
    assert "names the column nn, which the batch does not have" in str(result.failures[0][1])
