"""What a trigger's functions may give, and what is reported when they fail."""

from __future__ import annotations

import re
from typing import Any

import pytest

from onyx.errors import UserFunctionError
from onyx.model.job import Trigger, Window
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
