"""A queue of dicts and columns behaves like one list of segments."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import from_dicts, to_dicts
from onyx.plugins import segment_runs
from onyx.plugins.segment_runs import SegmentRuns

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 4), st.booleans()),
        st.tuples(st.just("drop"), st.integers(0, 6), st.booleans()),
    ),
    max_size=12,
)


def dicts(run: Segments) -> list[dict[str, int]]:
    return run if isinstance(run, list) else to_dicts(run)


@settings(max_examples=examples(200), deadline=None)
@given(steps=STEPS, first=st.integers(0, 8), count=st.integers(0, 8))
def test_it_holds_what_a_list_would(
    steps: list[tuple[str, int, bool]], first: int, count: int
) -> None:
    before, segment_runs._MERGED_MAX = segment_runs._MERGED_MAX, 3
    runs, model, made = SegmentRuns(), [], 0
    try:
        for what, size, in_columns in steps:
            if what == "drop":
                runs.drop(min(size, len(model)))
                del model[: min(size, len(model))]
                continue
            new = [{"n": made + n} for n in range(size)]
            made += size
            runs.append(from_dicts(new)[0] if in_columns else new)
            model += new
    finally:
        segment_runs._MERGED_MAX = before
    assert len(runs) == len(model)
    found = runs.between(first, count)
    assert [each for run in found for each in dicts(run)] == model[first : first + count]
    assert all(map(len, found))


def test_columns_stay_columns() -> None:
    runs = SegmentRuns()
    runs.append([{"n": 0}])
    runs.append(from_dicts([{"n": 1}, {"n": 2}])[0])
    assert [isinstance(run, list) for run in runs.between(0, 2)] == [True, False]
