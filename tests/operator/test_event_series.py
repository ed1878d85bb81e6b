"""What repeats about an object is one Event with a count."""

from __future__ import annotations

import pytest

from onyx_operator import event_series
from onyx_operator.event_series import COMBINED, POST_INTERVAL_S, SIMILAR_MAX, WINDOW_S, EventSeries

JOB = ("uid-1", "Displaced", True)


def test_repeats_are_posted_ever_more_rarely_and_all_are_counted() -> None:
    events = EventSeries()
    posted = [each.count for _ in range(100) if (each := events.next(JOB, "gone", 10.0))]
    assert posted == [1, 2, 4, 8, 16, 32, 64]
    late = events.next(JOB, "gone", 10.0 + POST_INTERVAL_S)
    assert late is not None
    assert (late.count, late.first_s, late.last_s) == (101, 10.0, 10.0 + POST_INTERVAL_S)


def test_after_a_silence_it_is_a_new_event() -> None:
    events = EventSeries()
    first = events.next(JOB, "gone", 0.0)
    again = events.next(JOB, "gone", WINDOW_S)
    assert again is not None
    assert (again.count, again.first_s) == (1, WINDOW_S)
    assert again is not first


@pytest.mark.parametrize("other", [("uid-2", *JOB[1:]), ("uid-1", "Running", True)])
def test_other_objects_and_reasons_are_other_events(other: tuple[str, str, bool]) -> None:
    events = EventSeries()
    events.next(JOB, "gone", 0.0)
    found = events.next(other, "gone", 0.0)
    assert found is not None
    assert found.count == 1


def test_many_messages_of_one_reason_become_one_event_with_the_newest() -> None:
    events = EventSeries()
    found = [events.next(JOB, f"message {number}", 1.0) for number in range(SIMILAR_MAX + 3)]
    distinct = {id(each) for each in found if each is not None}
    assert len(distinct) == SIMILAR_MAX + 1
    combined = events.next(JOB, "the newest", 1.0)
    assert combined is not None
    assert (combined.message, combined.count) == (f"{COMBINED}the newest", 4)
    assert events.next(JOB, "message 0", 1.0) is found[0], "what is known goes on by itself"


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_series, "SERIES_MAX", 3)
    events = EventSeries()
    for number in range(10):
        events.next((f"uid-{number}", "Running", False), "it runs", 1.0)
    newest = events.next(("uid-9", "Running", False), "it runs", 1.0)
    oldest = events.next(("uid-0", "Running", False), "it runs", 1.0)
    assert newest is not None
    assert newest.count == 2
    assert oldest is not None
    assert oldest.count == 1
