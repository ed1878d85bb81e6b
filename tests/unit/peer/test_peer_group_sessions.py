"""What a group does when it cannot be sure that its session lives."""

from __future__ import annotations

import pytest

from onyx.log.interface import Session
from onyx.peer.group import (
    GroupLeft,
    Leave,
    Pause,
    PauseDue,
    Restart,
    Resume,
    SessionChanged,
    StartPauseTimer,
)
from onyx.peer.life import pause_delay_s, permitted

SUSPENDED = SessionChanged(Session.SUSPENDED)
CONNECTED = SessionChanged(Session.CONNECTED)
LOST = SessionChanged(Session.LOST)

STORIES = {
    "a short interruption only starts the timer": (
        [SUSPENDED, CONNECTED],
        [StartPauseTimer(1)],
    ),
    "a long interruption pauses and resumes": (
        [SUSPENDED, PauseDue(1), CONNECTED],
        [StartPauseTimer(1), Pause(), Resume()],
    ),
    "the timer of an interruption that is over is void": (
        [SUSPENDED, CONNECTED, PauseDue(1), SUSPENDED, PauseDue(1), PauseDue(2), PauseDue(2)],
        [StartPauseTimer(1), StartPauseTimer(2), Pause()],
    ),
    "news that is no change is no news": (
        [CONNECTED, SUSPENDED, SUSPENDED, PauseDue(1), SUSPENDED],
        [StartPauseTimer(1), Pause()],
    ),
    "a lost session ends the incarnation": (
        [SUSPENDED, PauseDue(1), LOST, CONNECTED, LOST],
        [StartPauseTimer(1), Pause(), Restart("session lost")],
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_a_story_of_a_session(ring, story):
    events, expected = STORIES[story]
    ring.start("a")
    ring.play()
    found = [action for event in events for action in ring.feed("a", event)]

    assert expected == found


def test_a_session_lost_on_the_way_out_is_a_way_out(ring):
    ring.start("a")
    ring.play()
    ring.feed("a", Leave())

    assert ring.feed("a", LOST) == (GroupLeft(),)


@pytest.mark.parametrize(
    ("now_s", "confirmed_s", "delay_s"),
    [(10.0, 10.0, 4.0), (13.0, 10.0, 1.0), (14.0, 10.0, 0.0), (99.0, 10.0, 0.0)],
)
def test_the_lease_counts_from_what_the_server_is_known_to_have_heard(now_s, confirmed_s, delay_s):
    assert pause_delay_s(now_s, confirmed_s, 6.0) == delay_s
    assert permitted(now_s, confirmed_s, 6.0) == (delay_s > 0)
