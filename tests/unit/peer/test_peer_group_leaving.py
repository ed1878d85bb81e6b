"""Clean leaves, and what tasks may still say."""

from __future__ import annotations

import pytest
from tests.support.log.submissions import submit_job

from onyx.log.interface import Session
from onyx.peer.group import (
    AddPeers,
    AppendCommands,
    GroupLeft,
    Leave,
    PauseDue,
    Propose,
    PulseGone,
    SessionChanged,
)
from onyx.replica.commands import ExhaustInput, KillJob
from onyx.replica.effects import StartTask, StopTask

SUSPENDED = SessionChanged(Session.SUSPENDED)
JOB = {
    "id": "job",
    "tasks": ["in", "out"],
    "inputs": ["in"],
    "outputs": ["out"],
    "task_scheduler": "balanced",
    "saturation": 2,
    "task_saturation": {"in": 1, "out": 1},
    "min_required_peers": {"in": 1, "out": 1},
    "acker_percentage": 1,
}


def test_a_clean_leave_takes_the_peers_out_and_ends_when_it_is_read(ring):
    for name in "ab":
        ring.start(name, f"{name}1")
        ring.play()
    ring.feed("b", Leave())

    assert ring.written("b")[-2:] == ["leave-cluster", "group-leave-cluster"]
    assert GroupLeft() not in ring.actions["b"]

    ring.play()
    assert ring.actions["b"][-1] == GroupLeft()
    assert ring.states["a"].replica.groups == ("a",)
    assert ring.states["a"].replica.peers == ("a1",)


@pytest.mark.parametrize(
    "events",
    [
        [SUSPENDED, PauseDue(1), Leave()],
        [SUSPENDED, Leave(), PauseDue(1)],
        [Leave(), SUSPENDED, PauseDue(1)],
    ],
)
def test_a_leave_does_not_wait_for_a_zookeeper_that_is_gone(ring, events):
    ring.start("a", "a1")
    ring.play()
    for event in events[:-1]:
        assert GroupLeft() not in ring.feed("a", event)
    assert ring.feed("a", events[-1]) == (GroupLeft(),)
    assert ring.feed("a", SessionChanged(Session.CONNECTED)) == ()


def test_a_leave_goes_on_when_zookeeper_is_back_in_time(ring):
    ring.start("a", "a1")
    ring.play()
    for event in (Leave(), SUSPENDED, SessionChanged(Session.CONNECTED), PauseDue(1)):
        assert GroupLeft() not in ring.feed("a", event)
    ring.play()
    assert ring.actions["a"][-1] == GroupLeft()


def test_a_group_on_its_way_out_takes_nothing_more_on(ring):
    ring.start("a", "a1")
    ring.play()
    ring.feed("a", Leave())

    assert ring.feed("a", Leave()) == ()
    assert ring.feed("a", AddPeers(("a2",))) == ()
    assert ring.feed("a", PulseGone("b")) == ()


def running(ring) -> dict[str, str]:
    """A group with two peers and a job on them; task -> peer."""
    ring.start("a", "a1", "a2")
    ring.play()
    ring.write(submit_job(**JOB))
    ring.play()
    return {each.task: each.peer for each in ring.actions["a"] if isinstance(each, StartTask)}


def test_what_a_task_proposes_is_written_while_its_peer_has_it(ring):
    peers = running(ring)
    command = ExhaustInput(job="job", task="in")

    assert ring.feed("a", Propose(peers["in"], command)) == (AppendCommands((command,)),)


def test_what_a_stopped_task_still_says_is_dropped(ring):
    peers = running(ring)
    ring.write(KillJob(job="job"))
    ring.play()

    assert any(isinstance(action, StopTask) for action in ring.actions["a"])
    command = ExhaustInput(job="job", task="in")
    assert ring.feed("a", Propose(peers["in"], command)) == ()


def test_a_peer_cannot_speak_for_another_job(ring):
    peers = running(ring)
    command = KillJob(job="other")

    assert ring.feed("a", Propose(peers["in"], command)) == ()
