"""When windows fire, what they hold afterwards, and which segments are late."""

import pytest
from tests.support.windows.short import WATERMARK, add, add_grouped, held, shown, task_windows

from onyx.errors import UserError, UserFunctionError
from onyx.keystate.records import SetSessions, WatermarkReached
from onyx.keystate.selection import Selection

ACCUMULATING = {"type": "watermark", "refinement": "accumulating"}
SESSION = {"type": "session", "timeout_gap": (5, "elements")}


def every(number, **more):
    return {"type": "segment", "threshold": (number, "elements"), **more}


def test_an_extent_fires_when_the_watermark_is_past_its_last_place():
    windows = task_windows(({}, [WATERMARK]))
    assert add(windows, 1, 2, 11) == []
    assert shown(windows.advance(9)) == []
    assert shown(windows.advance(10)) == ["t0 0-9: 2"]
    assert held(windows) == ["10-19: 1"]


def test_a_watermark_that_does_not_rise_fires_nothing():
    windows = task_windows(({}, [ACCUMULATING]))
    list(windows.advance(50))
    add(windows, 1)
    assert list(windows.advance(50)) == []
    assert list(windows.advance(40)) == []
    assert shown(windows.advance(51)) == ["t0 0-9: 1"]


def test_an_extent_that_is_kept_fires_again_only_for_groups_that_have_got_more():
    windows = task_windows(({}, [ACCUMULATING]), group_by="k")
    add_grouped(windows, {"k": "a", "at": 1}, {"k": "b", "at": 2})
    assert shown(windows.advance(10)) == ["t0 'a' 0-9: 1", "t0 'b' 0-9: 1"]
    assert shown(windows.advance(11)) == []
    add_grouped(windows, {"k": "b", "at": 3})
    assert shown(windows.advance(12)) == ["t0 'b' 0-9: 2"]


def test_a_segment_for_a_discarded_extent_begins_it_anew():
    windows = task_windows(({}, [WATERMARK]))
    add(windows, 1, 2)
    list(windows.advance(10))
    add(windows, 3)
    assert shown(windows.advance(11)) == ["t0 0-9: 1"]


def test_a_delay_makes_it_wait():
    windows = task_windows(({}, [{**WATERMARK, "delay": (5, "milliseconds")}]))
    add(windows, 1)
    assert shown(windows.advance(14)) == []
    assert shown(windows.advance(15)) == ["t0 0-9: 1"]


def test_a_session_is_over_when_the_watermark_is_past_its_gap():
    windows = task_windows((SESSION, [WATERMARK]))
    add(windows, 1, 6)
    assert shown(windows.advance(11)) == []
    add(windows, 11)
    assert shown(windows.advance(16)) == []
    assert shown(windows.advance(17)) == ["t0 1-11: 3"]
    assert held(windows) == []


def test_session_keys_tell_sessions_of_a_group_apart():
    window = {**SESSION, "session_key": "user", "window_key": "at"}
    windows = task_windows((window, [every(3, fire_all_extents=True)]), group_by="k")
    fired = add_grouped(
        windows,
        {"k": "a", "user": 1, "at": 1},
        {"k": "a", "user": [2], "at": 3},
        {"k": "a", "user": 1, "at": 4},
    )
    assert fired == ["t0 'a' 1-4: 2", "t0 'a' 3-3: 1"]


def test_nothing_is_late_where_no_lateness_is_said():
    windows = task_windows(({}, [WATERMARK]))
    list(windows.advance(1_000))
    assert windows.add([{"at": 1}], None, 0).late == []


def test_late_segments_are_reported_and_what_they_would_belong_to_is_dropped():
    windows = task_windows(({"allowed_lateness": (5, "elements")}, [ACCUMULATING]))
    add(windows, 1)
    assert shown(windows.advance(14)) == ["t0 0-9: 1"]
    assert windows.add([{"at": 2}, {"at": 20}], None, 0).late == []
    assert shown(windows.advance(15)) == ["t0 0-9: 2"]
    assert held(windows) == ["20-29: 1"]
    assert windows.add([{"at": 3}, {"at": 21}, {"at": 4}], None, 0).late == [0, 2]


def test_a_segment_is_late_when_it_is_for_all_windows_of_the_task():
    late = {"allowed_lateness": (0, "elements")}
    windows = task_windows((late, []), ({**late, "range": (100, "elements")}, []))
    list(windows.advance(50))
    assert windows.add([{"at": 1}], None, 0).late == []
    list(windows.advance(100))
    assert windows.add([{"at": 1}], None, 0).late == [0]


def test_a_late_segment_makes_no_trigger_count_it():
    windows = task_windows(({"allowed_lateness": (0, "elements")}, [every(2)]))
    list(windows.advance(100))
    assert add(windows, 1, 101) == []
    assert add(windows, 2, 102) == ["t0 100-109: 2"]


def test_the_last_extents_of_a_sliding_window_take_a_segment_that_is_late_for_the_first():
    sliding = {"type": "sliding", "range": (10, "elements"), "slide": (5, "elements")}
    windows = task_windows(({**sliding, "allowed_lateness": (0, "elements")}, []))
    list(windows.advance(10))
    assert windows.add([{"at": 7}], None, 0).late == []
    assert held(windows) == ["5-14: 1"]


def test_a_timer_fires_after_its_period_from_the_first_segment_on():
    windows = task_windows(({}, [{"type": "timer", "period": (2, "seconds")}]))
    assert windows.next_tick_ms is None
    add(windows, 1, now_ms=500)
    assert windows.next_tick_ms == 2_501
    assert list(windows.tick(2_500)) == []
    assert shown(windows.tick(2_600)) == ["t0 0-9: 1"]
    assert windows.next_tick_ms == 4_601


def test_segments_are_the_watermark_where_nobody_assigns_one():
    windows = task_windows(({}, [WATERMARK]), assigned=False)
    assert add(windows, 1, 12, 3, 25) == ["t0 0-9: 1", "t0 0-9: 1", "t0 10-19: 1"]
    assert list(windows.advance(1_000)) == []


def test_a_percentile_fires_when_that_share_is_passed_and_once_more_at_the_end():
    trigger = {
        "type": "percentile-watermark",
        "watermark_percentage": 0.5,
        "refinement": "discarding",
    }
    windows = task_windows(({"range": (11, "elements")}, [trigger]))
    add(windows, 1)
    assert shown(windows.advance(4)) == []
    assert shown(windows.advance(5)) == ["t0 0-10: 1"]
    assert shown(windows.complete([0], 0)) == ["t0 0-10: 0"]


def test_firings_of_several_windows_come_in_the_order_of_the_segments():
    windows = task_windows(({}, [every(1)]), ({"type": "global"}, [every(2)]))
    assert add(windows, 1, 2) == ["t0 0-9: 1", "t0 0-9: 2", "t0 -inf-inf: 2"]


def test_triggers_see_what_those_before_them_have_left():
    evicting = every(2, post_evictor=("all",))
    windows = task_windows(({}, [every(1), evicting, every(1)]))
    assert add(windows, 1, 2) == ["t0 0-9: 1", "t2 0-9: 1", "t0 0-9: 2", "t1 0-9: 2"]
    assert held(windows) == []


def test_segments_are_counted_by_group():
    windows = task_windows(({"type": "global"}, [every(2)]), group_by="k")
    segments = [{"k": key} for key in ("a", "b", "a", True, 1, 1)]
    assert add_grouped(windows, *segments) == ["t0 'a' -inf-inf: 2", "t0 1 -inf-inf: 2"]


def test_the_end_comes_for_each_shard_by_itself():
    windows = task_windows(({}, [WATERMARK]), group_by="k", shard_of=int)
    add_grouped(windows, {"k": "1", "at": 1}, {"k": "2", "at": 2})
    assert shown(windows.complete([2], 0)) == ["t0 '2' 0-9: 1"]
    assert shown(windows.complete([1], 0)) == ["t0 '1' 0-9: 1"]


def test_the_state_of_a_firing_is_its_own():
    windows = task_windows(({"aggregation": "conj"}, [every(1)]))
    first = windows.add([{"at": 1}], None, 0).firings[0]
    add(windows, 2)
    assert first.state == [{"at": 1}]
    first.state[0]["at"] = "changed"
    assert held(windows) == ["0-9: [{'at': 1}, {'at': 2}]"]


def test_a_segment_that_is_changed_later_is_kept_as_it_came():
    windows = task_windows(({"aggregation": "conj"}, []))
    segment = {"at": 1}
    windows.add([segment], None, 0)
    segment["at"] = 99
    assert held(windows) == ["0-9: [{'at': 1}]"]


def test_user_functions_get_a_mapping_about_the_event():
    windows = task_windows(({}, [every(1)]), group_by="k")
    list(windows.advance(3))
    keys = [("a")]
    event = windows.add([{"k": "a", "at": 5}], keys, 0).firings[0].state_event()
    assert {**event, "window": event["window"].id} == {
        "event_type": "new-segment",
        "segment": {"k": "a", "at": 5},
        "grouped": True,
        "group_key": "a",
        "lower_bound": 0,
        "upper_bound": 9,
        "window": "w0",
        "watermark": 3,
    }


def median():
    """The user's own: all values, of which the middle one is of interest."""
    return {
        "init": lambda window: [],
        "create_state_update": lambda window, state, segment: segment["at"],
        "apply_state_update": lambda window, state, update: sorted([*state, update]),
        "super_aggregation": lambda window, one, other: sorted([*one, *other]),
    }


def beyond():
    """The user's own: fires for extents with more than two values, and at the end."""
    return {
        "trigger_fire": lambda trigger, state, event: (
            event["event_type"] == "job-completed" or len(event["extent_state"]) > 2
        )
    }


def keep_largest():
    return {
        "create_state_update": lambda trigger, state, event: state[-1:],
        "apply_state_update": lambda trigger, state, update: update,
    }


def broken(*_):
    raise ValueError("no such thing")


FUNCTIONS = {
    "app:median": median, "app:beyond": beyond, "app:largest": keep_largest, "app:broken": broken
}  # fmt: skip


def test_the_users_own_aggregation_trigger_and_refinement_work_together():
    own = {"type": "app:beyond", "refinement": "app:largest", "state_context": ("window-state",)}
    windows = task_windows(({"aggregation": "app:median"}, [own]), functions=FUNCTIONS)
    assert add(windows, 5, 3) == []
    assert add(windows, 4) == ["t0 0-9: [3, 4, 5]"]
    assert held(windows) == ["0-9: [5]"]
    assert shown(windows.complete([0], 0)) == ["t0 0-9: [5]"]


def test_the_users_own_aggregation_merges_sessions():
    windows = task_windows(({**SESSION, "aggregation": "app:median"}, []), functions=FUNCTIONS)
    add(windows, 9, 1, 5)
    assert held(windows) == ["1-9: [1, 5, 9]"]


def test_a_function_that_raises_is_named():
    pred = {"type": "punctuation", "pred": "app:broken"}
    windows = task_windows(({}, [pred]), functions=FUNCTIONS)
    with pytest.raises(UserFunctionError, match=r"t0 .*app:broken raised ValueError: no su"):
        add(windows, 1)


@pytest.mark.parametrize("value", ["text", None])
def test_values_that_cannot_be_added_are_refused(value):
    windows = task_windows(({"aggregation": ("sum", "v")}, []))
    with pytest.raises(UserError, match=r"window w0 of task gather: sum: cannot .*'v', .* of type"):
        windows.add([{"at": 1, "v": value}], None, 0)


def test_a_missing_key_is_an_error():
    windows = task_windows(({"aggregation": ("sum", "v")}, []))
    with pytest.raises(UserError, match="sum: a segment has no key 'v'"):
        windows.add([{"at": 1}], None, 0)


def test_a_window_that_is_not_declared_is_an_error():
    with pytest.raises(UserError, match="task gather has no window 'w7', but w0"):
        task_windows(({}, [])).query("w7")


def test_one_group_can_be_asked_about_alone():
    windows = task_windows(({}, []), group_by="k")
    add_grouped(windows, {"k": "a", "at": 1}, {"k": "b", "at": 2}, {"k": "a", "at": 30})
    found = windows.query("w0", Selection(key="a"))
    assert [(each.lower, each.state) for each in found] == [(0, 1), (30, 1)]


def test_a_window_shows_what_has_just_come():
    windows = task_windows(({}, [WATERMARK]), group_by="k")
    add_grouped(windows, {"k": "a", "at": 1})
    assert held(windows) == ["0-9: 1"]


def test_a_session_that_the_dead_had_not_fired_is_kept_until_it_fires():
    """They knew of a later watermark, and had carried out the first page of what it passed."""
    windows = task_windows(({**SESSION, "allowed_lateness": (0, "elements")}, [ACCUMULATING]))
    sessions = SetSessions("w0", [None], [None], [[1, 10]], [[1, 10]], [[1, 1]], [[[], []]])
    windows.restore(0, [sessions, WatermarkReached("w0", 30)])
    assert shown(windows.advance(8)) == ["t0 1-1: 1"]
    assert shown(windows.advance(20)) == ["t0 10-10: 1"]
    assert held(windows) == []
