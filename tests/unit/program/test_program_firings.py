"""What a trigger's functions may give, and what is reported when they fail."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from onyx.errors import UserFunctionError
from onyx.flow.batch import as_dicts
from onyx.flow.columns.record_batch import Columns
from onyx.model.job import Trigger, Window
from onyx.operators.windowed.trigger_calls import TriggerCalls, checked
from onyx.operators.windowed.trigger_calls import emitted as emitted_by
from onyx.windows.firing import Firing

WINDOW = Window("hours", "count", "fixed", ("count",))
TRIGGER = Trigger("hours", "watermark", sync="m:f", emit="m:f")
FIRING = Firing(WINDOW, TRIGGER, "watermark", 0, True, "a", 0, 3_599_999, 7)
WHERE = "trigger watermark of window hours:"


def emitted(made: Any) -> list[dict[str, Any]]:
    calls = TriggerCalls({"m:f": lambda *arguments: made}, {}, columns=False)
    return checked([(FIRING, calls.emit(FIRING))])


@pytest.mark.parametrize(
    ("made", "segments"),
    [
        ({"n": 1}, [{"n": 1}]),
        ([{"n": 1}, {"n": 2}], [{"n": 1}, {"n": 2}]),
        (({"n": 1},), [{"n": 1}]),
        ([], []),
        (None, []),
    ],
)
def test_emit_gives_one_segment_several_or_none(made: Any, segments: list[Any]) -> None:
    assert emitted(made) == segments


@pytest.mark.parametrize(
    ("made", "reported"),
    [
        (5, "returned an int: it must return a dict, a list of dicts or None"),
        ([{"n": 1}, 5], "returned a list that holds an int: it must return a dict, a list of dict"),
        ([{"n": 1}, {"n": {1}}], "returned a segment that cannot be sent: key 'n' holds a set"),
        (
            {"n": 2**64},
            "returned a segment that cannot be sent: key 'n' holds an int beyond 64 bits",
        ),
        ({1: 2}, "returned a segment that cannot be sent: the segment has a key that is an int"),
    ],
)
def test_what_cannot_be_sent_is_told_with_trigger_and_function(made: Any, reported: str) -> None:
    with pytest.raises(UserFunctionError, match=re.escape(f"{WHERE} emit m:f {reported}")):
        emitted(made)


def test_an_exception_of_sync_is_told_with_its_trigger_and_its_line() -> None:
    def fails(*arguments: Any) -> None:
        raise ValueError("disk full")

    reported = re.escape(
        f"{WHERE} sync m:f raised ValueError: disk full (test_program_firings.py, line "
    )
    with pytest.raises(UserFunctionError, match=reported):
        TriggerCalls({"m:f": fails}, {}, columns=False).sync(FIRING)


def test_a_function_of_other_arguments_is_told_too() -> None:
    with pytest.raises(UserFunctionError, match=r"emit m:f raised TypeError: .* takes 1 pos"):
        TriggerCalls({"m:f": lambda event: None}, {}, columns=False).emit(FIRING)


ROWS = Trigger("hours", "watermark", emit="rows")
ARROW = Trigger("hours", "watermark", sync="m:f", emit="m:f", batch_format="arrow")


def fire(
    trigger: Trigger,
    *groups: Any,
    function: Any = None,
    columns: bool = True,
    closed: Sequence[int] = (),
) -> list[tuple[int, type, list[dict[str, Any]]]]:
    """Groups fire, each with its number as state; group n is in shard n % 2. What is emitted."""
    fired = [
        Firing(WINDOW, trigger, "watermark", n % 2, True, group, 0, 99, n)
        for n, group in enumerate(groups)
    ]
    return sent(fired, function, columns, closed)


def sent(
    fired: list[Any],
    function: Any = None,
    columns: bool = True,
    closed: Sequence[int] = (),
) -> list[tuple[int, type, list[dict[str, Any]]]]:
    page = emitted_by(TriggerCalls({"m:f": function}, {}, columns), fired, closed)
    return [(each.shard, type(each.segments), as_dicts(each.segments)) for each in page]


def row(group: Any, state: Any) -> dict[str, Any]:
    return {"group": group, "lower": 0, "upper": 99, "state": state}


def test_rows_of_a_task_over_columns_are_columns_by_shard() -> None:
    assert fire(ROWS, "a", "b", "c") == [
        (0, Columns, [row("a", 0), row("c", 2)]),
        (1, Columns, [row("b", 1)]),
    ]


def test_rows_of_a_task_over_dicts_are_dicts() -> None:
    assert fire(ROWS, "a", columns=False) == [(0, list, [row("a", 0)])]


def test_rows_of_groups_that_no_column_holds_are_dicts() -> None:
    assert fire(ROWS, "a", 1) == [
        (0, list, [row("a", 0)]),
        (1, list, [row(1, 1)]),
    ]


def test_a_shard_that_has_fired_for_the_last_time_emits_no_rows() -> None:
    assert fire(ROWS, "a", "b", closed=[0]) == [(1, Columns, [row("b", 1)])]


def test_functions_over_record_batches_are_called_once_a_shard() -> None:
    seen = []

    def double(event: Any, window: Window, trigger: Trigger, state_event: Any, rows: Any) -> Any:
        seen.append((state_event["event_type"], "group_key" in state_event, rows.to_pylist()))
        return pa.table({"twice": pc.multiply(rows["state"], 2)})

    made = fire(ARROW, "a", "b", "c", function=double)
    assert made == [(0, Columns, [{"twice": 0}, {"twice": 4}]), (1, Columns, [{"twice": 2}])]
    both = ("watermark", False, [row("a", 0), row("c", 2)])
    assert seen == [both, both, *2 * [("watermark", False, [row("b", 1)])]], "sync, then emit"


@pytest.mark.parametrize(
    ("made", "reported"),
    [
        (5, "the function returned an int: it must return a pyarrow.RecordBatch"),
        ({"n": 1}, "the function returned a dict: it must return a pyarrow.RecordBatch"),
        (
            pa.record_batch({"at": pa.array([2**62], pa.timestamp("s"))}),
            "returned a segment that cannot be sent: key 'at' holds",
        ),
    ],
)
def test_what_is_no_record_batch_is_told_with_trigger_and_function(
    made: Any, reported: str
) -> None:
    with pytest.raises(UserFunctionError, match=f"{WHERE} emit m:f.*{re.escape(reported)}"):
        fire(ARROW, "a", function=lambda *arguments: made)


def test_groups_that_no_column_holds_are_told_where_the_function_takes_columns() -> None:
    with pytest.raises(
        UserFunctionError, match="types that no column holds together: make them alike"
    ):
        fire(ARROW, "a", 1, function=lambda *arguments: None)


def test_states_of_many_keys_do_not_become_a_field_for_each() -> None:
    fired = [
        Firing(WINDOW, ROWS, "watermark", 0, True, group, 0, 99, {f"key {n}": 1})
        for n, group in enumerate("abcdefghij" * 10)
    ]
    assert [kind for _, kind, _ in sent(fired)] == [list]
