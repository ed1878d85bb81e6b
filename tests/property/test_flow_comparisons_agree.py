"""A comparison over a column, over the values of a batch together, and over each of them agree."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.flow.comparisons import ColumnComparison, Comparison
from onyx.flow.segment import Refusal

POOL = [
    None, 0, 1, -1, 127, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 0.1, 0.5, -0.0,
    float("nan"), float("inf"), float("-inf"), True, False, "", "a", "b", "2013-01-05", b"a",
    date(2013, 1, 5), date(1969, 12, 31), datetime(2013, 1, 5, tzinfo=UTC),
    datetime(2013, 1, 5, 10, tzinfo=UTC), datetime(2013, 1, 5, 12, tzinfo=UTC),
    Decimal("0.5"), Decimal("0.10"), Decimal("999.99"), Decimal(100), [1], time(1), timedelta(1),
]  # fmt: skip
TYPES = [
    pa.int8(), pa.uint8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(),
    pa.string(), pa.binary(), pa.date32(), pa.timestamp("us", "UTC"),
    pa.timestamp("us", "Europe/Berlin"), pa.decimal128(5, 2), pa.decimal128(38, 10),
    pa.decimal128(3, -2), pa.null(), pa.list_(pa.int64()), pa.time64("us"), pa.duration("us"),
]  # fmt: skip


def column_of(kind):
    """All values of the pool that the type has, as they are in a dict."""
    values = []
    for value in POOL:
        try:
            found = pa.array([value], kind)[0].as_py()
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
        if found == value or found != found or kind.equals(pa.float32()):
            values.append(found)
    return pa.array(values, kind)


COLUMNS = {kind: column_of(kind) for kind in TYPES}
numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.1, 0.25, 0.5, -0.0, 2.0**53, 2.0**63, 1e300, -1e300]),
)
texts = st.sampled_from(
    ["", "a", "b", "2013-01-05", "2013-01-05T12:00:00", "2013-01-05T12:00:00+02:00", "1969-12-31"]
)
values = st.one_of(numbers, texts)
many = st.lists(st.one_of(values, st.booleans()), min_size=1, max_size=4).map(tuple)
comparisons = st.one_of(
    st.builds(
        Comparison, st.sampled_from([">", ">=", "<", "<=", "==", "!="]), st.just("k"), values
    ),
    st.builds(Comparison, st.sampled_from(["==", "!="]), st.just("k"), st.booleans()),
    st.builds(Comparison, st.just("in"), st.just("k"), many),
    st.just(Comparison("is-null", "k")),
)


def one_by_one(comparison, rows):
    """Which hold, and which cannot be compared."""
    answer, holds, refused = comparison.answer(), [], []
    for place, row in enumerate(rows):
        try:
            holds.append(bool(answer(row["k"])))
        except Refusal:
            holds.append(False)
            refused.append(place)
    return holds, refused


@given(comparisons, st.sampled_from(TYPES), st.booleans())
def test_a_column_and_its_values_are_compared_alike(comparison, kind, with_null):
    column = COLUMNS[kind] if with_null else COLUMNS[kind].drop_null()
    columns = Columns.of(pa.RecordBatch.from_arrays([column], ["k"]))
    rows = to_dicts(columns)
    answers = ColumnComparison(comparison).answers(columns)
    holds, refused = one_by_one(comparison, rows)
    assert answers.holds.tolist() == holds
    assert ([] if answers.refused is None else answers.refused.nonzero()[0].tolist()) == refused
    together = comparison.of_all()([row["k"] for row in rows])
    if refused:
        assert together is None
    elif together is not None:
        assert together.tolist() == holds
