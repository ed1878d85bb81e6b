"""What a trigger's functions may give, and what is reported when they fail."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from onyx.errors import UserFunctionError
from onyx.flow.batch import Segments, as_dicts
from onyx.flow.columns.record_batch import Columns
from onyx.model.job import Trigger, Window
from onyx.program.failure import Failure
from onyx.program.firing import carry_out
from onyx.program.trigger_calls import TriggerCalls, checked
from onyx.windows.firing import Firing

WINDOW = Window("hours", "count", "fixed", ("count",))
TRIGGER = Trigger("hours", "watermark", sync="m:f", emit="m:f")
FIRING = Firing(WINDOW, TRIGGER, "watermark", 0, True, "a", 0, 3_599_999, 7)
WHERE = "trigger watermark of window hours:"


def emitted(made: Any) -> list[dict[str, Any]]:
    calls = TriggerCalls("count", {"m:f": lambda *arguments: made}, {}, columns=False)
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
        TriggerCalls("count", {"m:f": fails}, {}, columns=False).sync(FIRING)


def test_a_function_of_other_arguments_is_told_too() -> None:
    with pytest.raises(UserFunctionError, match=r"emit m:f raised TypeError: .* takes 1 pos"):
        TriggerCalls("count", {"m:f": lambda event: None}, {}, columns=False).emit(FIRING)


ROWS = Trigger("hours", "watermark", emit="rows")
ARROW = Trigger("hours", "watermark", sync="m:f", emit="m:f", batch_format="arrow")


class Sends:
    """A `Folding` that only keeps what is emitted."""

    def __init__(self, function: Any = None, columns: bool = True) -> None:
        self.calls = TriggerCalls("count", {"m:f": function}, {}, columns)
        self.closed: set[int] = set()
        self.sent: list[tuple[int, type, list[dict[str, Any]]]] = []

    def emit(self, shard: int, segments: Segments, child: str | None = None) -> None:
        self.sent.append((shard, type(segments), as_dicts(segments)))

    def changed(self, segments: int) -> None: ...


def fire(trigger: Trigger, *groups: Any, folding: Sends) -> list[Any]:
    """Groups fire, each with its number as state; group n is in shard n % 2."""
    fired = [
        Firing(WINDOW, trigger, "watermark", n % 2, True, group, 0, 99, n)
        for n, group in enumerate(groups)
    ]
    carry_out(folding, fired)  # type: ignore[arg-type]
    return folding.sent


def row(group: Any, state: Any) -> dict[str, Any]:
    return {"group": group, "lower": 0, "upper": 99, "state": state}


def test_rows_of_a_task_over_columns_are_columns_by_shard() -> None:
    assert fire(ROWS, "a", "b", "c", folding=Sends()) == [
        (0, Columns, [row("a", 0), row("c", 2)]),
        (1, Columns, [row("b", 1)]),
    ]


def test_rows_of_a_task_over_dicts_are_dicts() -> None:
    assert fire(ROWS, "a", folding=Sends(columns=False)) == [(0, list, [row("a", 0)])]


def test_rows_of_groups_that_no_column_holds_are_dicts() -> None:
    assert fire(ROWS, "a", 1, folding=Sends()) == [
        (0, list, [row("a", 0)]),
        (1, list, [row(1, 1)]),
    ]


def test_a_shard_that_has_fired_for_the_last_time_emits_no_rows() -> None:
    folding = Sends()
    folding.closed.add(0)
    assert fire(ROWS, "a", "b", folding=folding) == [(1, Columns, [row("b", 1)])]


def test_functions_over_record_batches_are_called_once_a_shard() -> None:
    seen = []

    def double(event: Any, window: Window, trigger: Trigger, state_event: Any, rows: Any) -> Any:
        seen.append((state_event["event_type"], "group_key" in state_event, rows.to_pylist()))
        return pa.table({"twice": pc.multiply(rows["state"], 2)})

    sent = fire(ARROW, "a", "b", "c", folding=Sends(double))
    assert sent == [(0, Columns, [{"twice": 0}, {"twice": 4}]), (1, Columns, [{"twice": 2}])]
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
    folding = Sends(lambda *arguments: made)
    with pytest.raises(Failure, match=f"{WHERE} emit m:f.*{re.escape(reported)}"):
        fire(ARROW, "a", folding=folding)


def test_groups_that_no_column_holds_are_told_where_the_function_takes_columns() -> None:
    with pytest.raises(Failure, match="types that no column holds together: make them alike"):
        fire(ARROW, "a", 1, folding=Sends(lambda *arguments: None))


def test_states_of_many_keys_do_not_become_a_field_for_each() -> None:
    fired = [
        Firing(WINDOW, ROWS, "watermark", 0, True, group, 0, 99, {f"key {n}": 1})
        for n, group in enumerate("abcdefghij" * 10)
    ]
    folding = Sends()
    carry_out(folding, fired)  # type: ignore[arg-type]
    assert [kind for _, kind, _ in folding.sent] == [list]
