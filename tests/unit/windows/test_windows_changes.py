"""What is stored of windows: that it is little, and that it is all."""

import pytest
from tests.support.windows.short import WATERMARK, add, add_grouped, held, shown, task_windows

from onyx.codec.values import decode_records, encode_records
from onyx.errors import UserError
from onyx.keystate.records import AddToSessions, AddUpdates, ClearExtent, SetStates

ACCUMULATING = {"type": "watermark", "refinement": "accumulating"}
SESSION = {"type": "session", "timeout_gap": (5, "elements")}
GLOBAL = {"type": "global"}
CONJ = {"aggregation": "conj"}


def stored(records):
    """As it comes back from a store."""
    return decode_records(encode_records(records))


def test_a_small_state_is_recorded_once_however_many_segments_have_changed_it():
    windows = task_windows(({}, []))
    add(windows, 1, 2, 3, 12)
    add(windows, 4)
    assert windows.take_changes() == {
        0: [SetStates("w0", 0, [None], [4]), SetStates("w0", 1, [None], [1])]
    }
    assert windows.take_changes() == {}


def test_groups_of_a_shard_are_in_one_record():
    windows = task_windows((GLOBAL, []), group_by="k", shard_of=len)
    add_grouped(windows, {"k": "a"}, {"k": "bb"}, {"k": "c"}, {"k": [1, 2]})
    assert windows.take_changes() == {
        1: [SetStates("w0", 1, ["a", "c"], [1, 1])],
        2: [SetStates("w0", 1, ["bb", [1, 2]], [1, 1])],
    }


def test_of_a_state_that_grows_only_updates_are_recorded():
    windows = task_windows(({**GLOBAL, **CONJ}, []))
    add(windows, 1, 2)
    windows.take_changes()
    add(windows, 3)
    assert windows.take_changes() == {0: [AddUpdates("w0", 1, None, [{"at": 3}])]}


def test_of_sessions_that_grow_only_places_and_updates_are_recorded():
    windows = task_windows(({**SESSION, **CONJ}, []))
    add(windows, 1, 20)
    windows.take_changes()
    add(windows, 3)
    assert windows.take_changes() == {0: [AddToSessions("w0", None, None, [3], [{"at": 3}])]}


def test_an_extent_that_has_fired_and_gone_is_one_record_however_many_groups_it_had():
    windows = task_windows(({}, [WATERMARK]), group_by="k")
    add_grouped(windows, {"k": "a", "at": 1}, {"k": "b", "at": 2})
    windows.take_changes()
    list(windows.advance(10))
    assert windows.take_changes() == {0: [ClearExtent("w0", 0)]}


def test_the_watermark_is_recorded_only_where_lateness_depends_on_it():
    for more, records in (({}, {}), ({"allowed_lateness": (0, "elements")}, {0: 1})):
        windows = task_windows((more, [WATERMARK]))
        list(windows.advance(10))
        assert {k: len(each) for k, each in windows.take_changes().items()} == records


STORIES = {
    "accumulating that has fired": (({}, [ACCUMULATING]), [1, 2, ("advance", 10), 3]),
    "conj": (({**CONJ}, [ACCUMULATING]), [1, 2, 15, ("advance", 12)]),
    "average": (({"aggregation": ("average", "at")}, []), [1, 2]),
    "collect by key": (({"aggregation": ("collect-by-key", "at")}, []), [1, 2, 1]),
    "sessions": (({**SESSION}, [ACCUMULATING]), [1, 20, 3, ("advance", 10)]),
    "sessions of segments": (({**SESSION, **CONJ}, []), [9, 1, 20, 5]),
    "segments counted": (
        ({}, [{"type": "segment", "threshold": (3, "elements")}]),
        [1, 2, 3, 4],
    ),
    "lateness": (({"allowed_lateness": (0, "elements")}, []), [1, ("advance", 10), 25]),
    "timers": (({}, [{"type": "timer", "period": (5, "seconds")}]), [1, 2]),
    "ordered": (({**CONJ, "storage_strategy": ("ordered-log",)}, []), [5, 2, 3]),
}


def play(windows, story):
    for event in story:
        if isinstance(event, tuple):
            list(windows.advance(event[1]))
        else:
            add(windows, event, now_ms=7)


@pytest.mark.parametrize("by", ["snapshot", "changes", "changes after each event"])
@pytest.mark.parametrize("name", STORIES)
def test_what_is_restored_holds_and_does_the_same(name, by):
    spec, story = STORIES[name]
    original, records = task_windows(spec), []
    for event in story:
        play(original, [event])
        if by == "changes after each event":
            records += original.take_changes().get(0, [])
    if by == "changes":
        records = original.take_changes()[0]
    restored = task_windows(spec)
    restored.restore(0, stored(original.snapshot(0) if by == "snapshot" else records))
    assert held(restored) == held(original)
    assert restored.next_tick_ms == original.next_tick_ms
    assert restored.take_changes() == {}
    for windows in (original, restored):
        windows.fired = [
            *add(windows, 2, 6),
            *shown(windows.advance(30)),
            *shown(windows.tick(9_000)),
        ]
    assert restored.fired == original.fired
    assert held(restored) == held(original)


def test_snapshots_of_several_shards_are_those_of_each():
    windows = task_windows(({}, [ACCUMULATING]), (SESSION, []), group_by="k", shard_of=len)
    add_grouped(windows, {"k": "a", "at": 1}, {"k": "bb", "at": 2}, {"k": "c", "at": 33})
    list(windows.advance(10))
    assert windows.snapshots([1, 2, 3]) == {each: windows.snapshot(each) for each in (1, 2, 3)}
    assert windows.snapshot(3) == []


def test_shards_that_are_dropped_are_neither_held_nor_recorded():
    timer = {"type": "timer", "period": (1, "seconds")}
    windows = task_windows(({}, [WATERMARK, timer]), (SESSION, []), group_by="k", shard_of=len)
    add_grouped(windows, {"k": "a", "at": 1}, {"k": "bb", "at": 2})
    windows.drop([2])
    assert list(windows.take_changes()) == [1]
    assert shown(windows.advance(10)) == ["t0 'a' 0-9: 1"]
    assert windows.snapshot(2) == []


def test_a_shard_that_comes_back_is_restored_beside_the_others():
    spec = ({}, [ACCUMULATING])
    old = task_windows(spec, group_by="k", shard_of=len)
    add_grouped(old, {"k": "bb", "at": 1})
    list(old.advance(10))
    windows = task_windows(spec, group_by="k", shard_of=len)
    add_grouped(windows, {"k": "a", "at": 2})
    windows.restore(2, stored(old.snapshot(2)))
    assert shown(windows.advance(11)) == ["t0 'a' 0-9: 1"]
    assert held(windows) == ["0-9: 1", "0-9: 1"]


def test_the_watermark_of_a_shard_is_its_own_until_the_tasks_has_caught_up():
    spec = ({"allowed_lateness": (0, "elements")}, [])
    old = task_windows(spec, group_by="k", shard_of=len)
    list(old.advance(100))
    add_grouped(old, {"k": "bb", "at": 100})
    windows = task_windows(spec, group_by="k", shard_of=len)
    windows.restore(1, [])
    windows.restore(2, stored(old.take_changes()[2]))
    segments, keys = [{"at": 1}, {"at": 1}], ["a", "bb"]
    assert windows.add(segments, keys, 0).late == [1]
    list(windows.advance(50))
    assert windows.add(segments, keys, 0).late == [0, 1]
    assert windows.add([{"at": 60}, {"at": 60}], keys, 0).late == [1]


def test_a_trigger_that_is_gone_leaves_its_state_out():
    old = task_windows(({}, [ACCUMULATING, {"type": "segment", "threshold": (3, "elements")}]))
    add(old, 1)
    list(old.advance(10))
    windows = task_windows(({}, []))
    windows.restore(0, stored(old.snapshot(0)))
    assert held(windows) == ["0-9: 1"]


def test_the_state_of_a_window_that_the_task_does_not_have_is_an_error():
    with pytest.raises(UserError, match="no window 'w3'"):
        task_windows(({}, [])).restore(0, [SetStates("w3", 0, [None], [1])])


def growing():
    """The user's own, whose functions change what they are given."""

    def apply(window, state, update):
        state.append(update)
        update.append("seen")
        return state

    return {
        "init": lambda window: [],
        "create_state_update": lambda window, state, segment: segment["tags"],
        "apply_state_update": apply,
    }


def test_users_functions_cannot_change_what_is_stored():
    functions = {"app:growing": growing}
    windows = task_windows(({**GLOBAL, "aggregation": "app:growing"}, []), functions=functions)
    segment = {"at": 1, "tags": ["x"]}
    windows.add([segment], None, 0)
    records = windows.take_changes()[0]
    segment["tags"].append("y")
    add_more = windows.add([{"at": 1, "tags": []}], None, 0)
    assert add_more.firings == []
    assert records == [AddUpdates("w0", 1, None, [["x"]])]


def test_shards_with_watermarks_of_their_own_have_fired_each_for_itself():
    spec = ({}, [ACCUMULATING])
    old = task_windows(spec, group_by="k", shard_of=len, assigned=False)
    add_grouped(old, {"k": "a", "at": 1}, {"k": "bb", "at": 1}, {"k": "a", "at": 10})
    for shards in (old.take_changes(), old.snapshots([1, 2])):
        windows = task_windows(spec, group_by="k", shard_of=len, assigned=False)
        for shard, records in shards.items():
            windows.restore(shard, stored(records))
        fired = add_grouped(windows, {"k": "bb", "at": 10}, {"k": "a", "at": 11})
        assert fired == ["t0 'bb' 0-9: 1"]


def test_a_group_that_goes_just_before_its_extent_does_is_gone_when_restored() -> None:
    fire = [{"type": "punctuation", "pred": "app:done", "post_evictor": ("all",)}, WATERMARK]
    functions = {"app:done": lambda trigger, event: event["segment"].get("done", False)}
    shards = {"a": 0, "b": 1}.__getitem__
    windows, again = (
        task_windows(({}, fire), group_by="k", functions=functions, shard_of=shards)
        for _ in range(2)
    )
    add_grouped(windows, {"at": 1, "k": "a"}, {"at": 1, "k": "b"})
    records = windows.take_changes()
    add_grouped(windows, {"at": 2, "k": "a", "done": True})
    assert shown(windows.advance(10)) == ["t1 'b' 0-9: 1"]
    for part in (records, windows.take_changes()):
        for shard, each in part.items():
            again.restore(shard, each)
    assert held(again) == held(windows) == []
