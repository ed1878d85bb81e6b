"""Comparisons of flow conditions, over dicts: one row each of operator, value and what holds."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import pytest

from onyx.flow.conditions import compile_conditions
from onyx.flow.predicates import read, segment_test
from onyx.flow.segment import Refusal
from onyx.model.job import FlowCondition, Job

MISSING = object()
NAN = float("nan")
NOON = datetime(2013, 1, 5, 12, tzinfo=UTC)
EAST = timezone(timedelta(hours=2))


def holds(expression, x, where="here"):
    test = segment_test(read(expression, {"limit": 3}, FUNCTIONS.__getitem__, where))
    return bool(test({}, {}, {} if x is MISSING else {"k": x}, []))


FUNCTIONS = {
    "m:long": lambda event, old, new, all_new: len(new["k"]) > 2,
    "m:over": lambda event, old, new, all_new, limit: new["k"] > limit,
}


@pytest.mark.parametrize(
    ("operator", "value", "true", "false"),
    [
        (">", 15, [16, 15.5, Decimal("15.1"), 2**70], [15, 15.0, -1, False, NAN]),
        (">=", 15, [15, 15.0, Decimal(15)], [14.9, NAN]),
        ("<", 1, [0, False, -0.5], [1, True, 1.0]),
        ("<=", 0.5, [0, 0.5, Decimal("0.5")], [1, Decimal("0.51")]),
        ("<", "b", ["a", "B", ""], ["b", "ba"]),
        (">=", "AA", ["AA", "B"], ["A", ""]),
        ("==", 1, [1, 1.0, True, Decimal(1)], [2, "1", None, MISSING, [1], b"1", NAN]),
        ("==", 0.1, [0.1], [Decimal("0.1"), "0.1"]),
        ("==", "x", ["x"], ["y", b"x", 1, None, MISSING, NOON]),
        ("==", True, [True, 1], [False, "true", None]),
        ("!=", 1, [2, "1", None, MISSING, NAN], [1, 1.0, True]),
        ("!=", "x", ["y", None, MISSING, 3, NOON], ["x"]),
        ("in", ("AA", "UA"), ["AA", "UA"], ["DL", None, MISSING, 3, ["AA"], {}]),
        ("in", (1, 2.5), [1, 1.0, True, Decimal("2.5")], ["1", 2, NAN]),
    ],
)
def test_a_comparison_means_what_python_means(operator, value, true, false):
    assert [holds((operator, "k", value), x) for x in true] == [True] * len(true)
    assert [holds((operator, "k", value), x) for x in false] == [False] * len(false)


@pytest.mark.parametrize("operator", [">", ">=", "<", "<=", "=="])
@pytest.mark.parametrize("value", [0, "", "2013-01-05"])
def test_nothing_is_compared_with_null(operator, value):
    assert not holds((operator, "k", value), None)
    assert not holds((operator, "k", value), MISSING)


def test_null_is_none_and_a_key_that_is_not_there():
    assert [holds(("is-null", "k"), x) for x in (None, MISSING, 0, "", NAN)] == [True] * 2 + [
        False
    ] * 3


@pytest.mark.parametrize(
    ("operator", "value", "true", "false"),
    [
        ("<", "2013-01-05T12:30:00", [NOON, date(2013, 1, 5)], [date(2013, 1, 6)]),
        ("==", "2013-01-05", [date(2013, 1, 5), "2013-01-05"], [NOON, date(2013, 1, 6)]),
        ("==", "2013-01-05T12:00:00Z", [NOON, NOON.astimezone(EAST)], [date(2013, 1, 5)]),
        (">=", "2013-01-05T14:00:00+02:00", [NOON], [date(2013, 1, 5)]),
        ("!=", "2013-01-05", [NOON], [date(2013, 1, 5)]),
        ("in", ("2013-01-05", "2013-02-01T00:00:00"), [date(2013, 2, 1)], [NOON]),
    ],
)
def test_iso_text_is_a_time_where_the_value_is_one(operator, value, true, false):
    assert [holds((operator, "k", value), x) for x in true] == [True] * len(true)
    assert [holds((operator, "k", value), x) for x in false] == [False] * len(false)


@pytest.mark.parametrize(
    ("expression", "x", "said"),
    [
        ((">", "k", 15), "16", "compares a str with a number"),
        ((">", "k", "15"), 16, "compares an int with text"),
        (("<", "k", "b"), b"a", "compares a bytes with text"),
        (("<=", "k", 1), [1], "compares a list with a number"),
        (("<=", "k", 1), NOON, "compares a datetime.datetime with a number"),
        (("<", "k", "soon"), NOON, "with text that is no date or time in ISO 8601"),
        (("<", "k", "2013-01-05"), time(1), "compares a datetime.time with text"),
    ],
)
def test_what_has_no_order_is_refused_with_condition_key_and_types(expression, x, said):
    with pytest.raises(Refusal) as caught:
        holds(expression, x, "job 'flights', flowConditions[2] from 'a'")
    message = str(caught.value)
    assert message.startswith(f"job 'flights', flowConditions[2] from 'a': [\"{expression[0]}\", k")
    assert said in message
    assert "make key 'k' one type" in message


def test_comparisons_combine_with_functions_and_guard_them():
    guarded = ("and", ("not", ("is-null", "k")), "m:long", ("in", "k", ("abc", "ab")))
    assert [holds(guarded, x) for x in ("abc", "ab", "xyz", None, MISSING)] == [True] + [False] * 4
    assert [holds(("or", ("==", "k", 0), ("m:over", "limit")), x) for x in (0, 3, 4)] == [
        True,
        False,
        True,
    ]


def test_a_condition_for_exceptions_compares_the_segment_that_failed():
    job = Job(
        "j",
        (("in", "a"), ("a", "b")),
        (),
        flow_conditions=(
            FlowCondition("a", ("b",), (">", "n", 1), short_circuit=True, thrown_exception=True),
        ),
    )
    conditions = compile_conditions(job, "a", FUNCTIONS.__getitem__)
    error = ValueError()
    flows = [conditions.route({}, {"n": n}, error, [error]).flow for n in (1, 2)]
    assert flows == [frozenset(), {"b"}]
