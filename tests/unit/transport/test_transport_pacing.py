"""When the next frame of a stream is due."""

import pytest

from onyx.transport.pacing import PATIENCE_S, PAUSE_MAX_S, PAUSE_MIN_S, Pace

FULL, HEARTBEAT_S = 1_000_000, 1.0


def after(size: int) -> Pace:
    """A frame of this size has gone out at second 100."""
    pace = Pace(FULL, HEARTBEAT_S)
    pace.sent(100.0, size)
    return pace


def wait_s(pace: Pace, now_s: float, waiting: int = 0, urgent: bool = False) -> float:
    return pace.wait_s(now_s, waiting, urgent, patient=waiting > 0)


def test_after_a_silence_everything_goes_at_once():
    assert wait_s(Pace(FULL, HEARTBEAT_S), 100.0, waiting=1) <= 0
    assert wait_s(after(50_000), 100.0 + 2 * PATIENCE_S, waiting=1) <= 0
    assert wait_s(after(50_000), 100.0 + 2 * PAUSE_MAX_S, waiting=1, urgent=True) <= 0


@pytest.mark.parametrize(
    ("size", "pause_s"),
    [(0, PAUSE_MIN_S), (100, PAUSE_MIN_S), (20_000, 0.002), (FULL, PAUSE_MAX_S)],
)
def test_what_is_urgent_waits_the_longer_the_more_the_last_frame_carried(size, pause_s):
    assert wait_s(after(size), 100.0, waiting=1, urgent=True) == pytest.approx(pause_s)


def test_what_is_not_urgent_waits_for_company():
    assert wait_s(after(100), 100.0, waiting=1) == pytest.approx(PATIENCE_S)


def test_a_full_frame_never_waits():
    assert wait_s(after(FULL), 100.0, waiting=FULL) == 0


def test_with_nothing_to_say_the_next_frame_is_a_heartbeat():
    assert wait_s(after(100), 100.25) == pytest.approx(HEARTBEAT_S - 0.25)
    assert wait_s(after(100), 101.0) <= 0


def test_the_writer_rests_after_a_large_frame_only_and_looks_again_at_the_end_of_the_pause():
    assert not after(100).resting(100.0)
    large = after(50_000)
    assert large.resting(100.0)
    assert wait_s(large, 100.0) == pytest.approx(PAUSE_MAX_S)
    assert not large.resting(100.0 + 2 * PAUSE_MAX_S)


def test_a_new_stream_begins_at_once():
    pace = after(FULL)
    pace.restart()
    assert not pace.resting(100.0)
    assert wait_s(pace, 100.0, waiting=1) <= 0
