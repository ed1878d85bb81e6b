"""What fires when the job ends: every extent, those that have changed since they fired, or none."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.windows.short import add, add_grouped, shown, task_windows

from onyx.windows.task_windows import TaskWindows

CHANGED = {"refinement": "discarding", "fire_at_end": "changed"}
SECOND = {"type": "segment", "threshold": (2, "elements"), **CHANGED}
SESSION = {"type": "session", "timeout_gap": (5, "elements")}
KINDS: dict[str, dict[str, Any]] = {
    "segment": SECOND,
    "punctuation": {"type": "punctuation", "pred": "m:done", **CHANGED},
    "timer": {"type": "timer", "period": (5, "milliseconds"), **CHANGED},
}
FUNCTIONS = {"m:done": lambda trigger, event: event["segment"].get("done", False)}


def ended(windows: TaskWindows) -> list[str]:
    return sorted(shown(windows.complete([0], 100)))


def made(trigger: dict[str, Any], window: dict[str, Any] | None = None) -> TaskWindows:
    return task_windows((window or {}, [trigger]), group_by="k", functions=FUNCTIONS)


@pytest.mark.parametrize("window", [{}, {"type": "global"}, SESSION], ids=lambda each: str(each))
@pytest.mark.parametrize("kind", KINDS)
def test_what_has_fired_and_got_nothing_since_does_not_fire_again(
    kind: str, window: dict[str, Any]
) -> None:
    windows = made(KINDS[kind], window)
    add_grouped(windows, {"k": "a", "at": 1}, {"k": "a", "at": 2, "done": True})
    list(windows.tick(50))
    add_grouped(windows, {"k": "b", "at": 3})
    assert [each.split()[1] for each in ended(windows)] == ["'b'"]


def test_what_has_got_more_since_it_fired_fires_at_the_end() -> None:
    windows = made(SECOND)
    add_grouped(windows, *({"k": "a", "at": each} for each in (1, 2, 3)))
    assert ended(windows) == ["t0 'a' 0-9: 1"]


def test_by_default_everything_fires_at_the_end() -> None:
    windows = made({**SECOND, "fire_at_end": "always"})
    add_grouped(windows, {"k": "a", "at": 1}, {"k": "a", "at": 2})
    assert ended(windows) == ["t0 'a' 0-9: 0"]


def test_never_means_that_nothing_fires_at_the_end() -> None:
    windows = made({**SECOND, "fire_at_end": "never"})
    add_grouped(windows, {"k": "a", "at": 1})
    assert ended(windows) == []


def test_a_watermark_trigger_fires_at_the_end_for_what_no_watermark_has_passed() -> None:
    trigger = {"type": "watermark", "refinement": "accumulating", "fire_at_end": "changed"}
    windows = task_windows(({}, [trigger]))
    add(windows, 1, 11)
    assert shown(windows.advance(10)) == ["t0 0-9: 1"]
    assert ended(windows) == ["t0 10-19: 1"]


def test_what_another_trigger_has_reset_is_no_change() -> None:
    timer = {"type": "timer", "period": (5, "milliseconds"), "refinement": "discarding"}
    windows = task_windows(({}, [SECOND, timer]), group_by="k")
    add_grouped(windows, {"k": "a", "at": 1}, {"k": "a", "at": 2})
    records = [each for shard in windows.take_changes().values() for each in shard]
    list(windows.tick(50))
    records += [each for shard in windows.take_changes().values() for each in shard]
    assert shown(windows.complete([0], 100)) == ["t1 'a' 0-9: 0"]
    restored = task_windows(({}, [SECOND, timer]), group_by="k")
    restored.restore(0, records)
    assert shown(restored.complete([0], 100)) == ["t1 'a' 0-9: 0"]
