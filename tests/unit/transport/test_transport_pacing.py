"""When the next frame of a stream is due."""

import pytest

from onyx.transport.sending import (
    GATHER_MAX_S,
    PATIENCE_S,
    PAUSE_MAX_S,
    PAUSE_MIN_S,
    REPLY_PAUSE_S,
    Pace,
    Urgency,
)

FULL, HEARTBEAT_S = 1_000_000, 1.0
PATIENT, GATHER, REPLY, ITEM, FLUSH = Urgency


def after(size: int) -> Pace:
    """A frame of this size has gone out at second 100."""
    pace = Pace(FULL, HEARTBEAT_S)
    pace.sent(100.0, size)
    return pace


def wait_s(pace: Pace, now_s: float, urgency: Urgency, waiting: int = 1) -> float:
    return pace.wait_s(now_s, waiting, urgency)


@pytest.mark.parametrize("urgency", [PATIENT, REPLY, ITEM, FLUSH])
def test_after_a_silence_everything_goes_at_once(urgency):
    assert wait_s(Pace(FULL, HEARTBEAT_S), 100.0, urgency) <= 0
    assert wait_s(after(50_000), 100.0 + 2 * PATIENCE_S, urgency) <= 0


@pytest.mark.parametrize(
    ("size", "pause_s"),
    [(0, PAUSE_MIN_S), (100, PAUSE_MIN_S), (20_000, 0.002), (FULL, PAUSE_MAX_S)],
)
def test_a_batch_waits_the_longer_the_more_the_last_frame_carried(size, pause_s):
    assert wait_s(after(size), 100.0, ITEM) == pytest.approx(pause_s)


def test_a_batch_before_others_waits_for_them_but_not_for_ever():
    pace = Pace(FULL, HEARTBEAT_S)
    pace.queued(100.0)
    pace.queued(100.01)
    assert wait_s(pace, 100.0, GATHER) == pytest.approx(GATHER_MAX_S)
    assert wait_s(pace, 100.0 + GATHER_MAX_S, GATHER) == pytest.approx(0)
    assert wait_s(pace, 100.0, ITEM) <= 0


def test_what_a_frame_left_behind_waits_for_others_afresh():
    pace = Pace(FULL, HEARTBEAT_S)
    pace.queued(100.0)
    pace.sent(101.0, FULL, left=True)
    assert wait_s(pace, 101.0, GATHER) == pytest.approx(GATHER_MAX_S)


def test_replies_leave_room_for_others_about_the_same_segments():
    assert wait_s(after(100), 100.0, REPLY) == pytest.approx(REPLY_PAUSE_S)
    assert wait_s(after(FULL), 100.0, REPLY) == pytest.approx(PAUSE_MAX_S)


def test_what_is_not_urgent_waits_for_company():
    assert wait_s(after(100), 100.0, PATIENT) == pytest.approx(PATIENCE_S)


def test_a_flush_ends_every_pause():
    assert wait_s(after(FULL), 100.0, FLUSH) == pytest.approx(PAUSE_MIN_S)


@pytest.mark.parametrize("urgency", Urgency)
def test_a_full_frame_never_waits(urgency):
    assert wait_s(after(FULL), 100.0, urgency, waiting=FULL) == 0


def test_with_nothing_to_say_the_next_frame_is_a_heartbeat():
    assert wait_s(after(100), 100.25, PATIENT, waiting=0) == pytest.approx(HEARTBEAT_S - 0.25)
    assert wait_s(after(100), 101.0, PATIENT, waiting=0) <= 0


def test_when_much_was_received_the_other_side_hears_of_it_soon():
    wait = after(100).wait_s(100.0, 0, PATIENT, unannounced=True)
    assert wait == pytest.approx(PATIENCE_S)


def test_the_writer_sleeps_through_the_pause_and_then_looks_again():
    pace = after(50_000)
    assert pace.sleep_s(100.0, HEARTBEAT_S) == pytest.approx(PAUSE_MAX_S)
    assert pace.sleep_s(100.0, 0.001) == 0.001
    assert pace.sleep_s(100.0 + 2 * PAUSE_MAX_S, 0.9) == 0.9


def test_after_a_heartbeat_the_writer_sleeps_until_it_is_woken():
    assert after(0).sleep_s(100.0, HEARTBEAT_S) == HEARTBEAT_S


def test_a_new_stream_begins_at_once():
    pace = after(FULL)
    pace.restart()
    assert pace.sleep_s(100.0, HEARTBEAT_S) == HEARTBEAT_S
    assert wait_s(pace, 100.0, ITEM) <= 0
