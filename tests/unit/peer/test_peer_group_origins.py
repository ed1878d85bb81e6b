"""A reader that jumps over collected entries still does what it owed."""

from __future__ import annotations

from onyx.peer.group import GroupLeft, Leave
from onyx.replica.commands import Gc, GroupLeaveCluster


def test_a_watcher_that_missed_the_request_notifies_its_joiner(ring):
    ring.start("a")
    ring.play()
    ring.start("b")
    ring.read("b")
    ring.play("b")
    ring.jump("a", "b")
    ring.play()

    assert ring.states["b"].joined
    assert ring.watched() == {"a": ["b"], "b": ["a"]}


def test_a_joiner_that_missed_the_notification_accepts(ring):
    ring.start("a")
    ring.play()
    ring.start("b")
    ring.play("a")
    ring.jump("b", "a")
    ring.play()

    assert ring.states["b"].joined


def test_a_joiner_of_whom_the_origin_knows_nothing_asks_again(ring):
    ring.start("a", "a1")
    ring.start("b")
    ring.read("a")
    ring.jump("b", "a")

    assert ring.written("b") == ["prepare-join-cluster", "prepare-join-cluster"]

    ring.play()
    assert ring.states["b"].joined


def test_one_whom_the_origin_no_longer_has_starts_again(ring):
    for name in "abc":
        ring.start(name)
        ring.play()
    ring.write(GroupLeaveCluster(id="b"), writer="a")
    ring.play("a", "c")
    ring.jump("b", "a")

    assert ring.states["b"].ended


def test_one_on_its_way_out_has_left_when_the_origin_does_not_know_it(ring):
    for name in "ab":
        ring.start(name)
        ring.play()
    ring.feed("b", Leave())
    ring.play("a")
    ring.write(Gc(id="collector"))
    ring.play("a")

    assert ring.jump("b", "a") == (GroupLeft(),)
