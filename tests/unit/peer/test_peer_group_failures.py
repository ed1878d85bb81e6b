"""Who reports whose death, and how the ring closes."""

from __future__ import annotations

import pytest

from onyx.log.interface import Session
from onyx.peer.group import BackOffElapsed, PulseGone, Restart, SessionChanged
from onyx.replica.commands import GroupLeaveCluster


def grow(ring, names: str) -> None:
    for name in names:
        ring.start(name)
        ring.play()


def reports(ring, dead: str) -> list[str]:
    return [entry.writer for entry in ring.log if entry.command == GroupLeaveCluster(id=dead)]


def test_a_death_is_reported_once_by_the_one_who_watched(ring):
    grow(ring, "abc")
    watcher = next(name for name, target in ring.pairs("a").items() if target == "b")
    ring.kill("b")
    ring.feed(watcher, PulseGone("b"))
    ring.play()

    assert reports(ring, "b") == [watcher]
    assert sorted(ring.pairs("a")) == ["a", "c"]


@pytest.mark.parametrize("survivors", [1, 2, 3])
def test_any_number_of_simultaneous_deaths_is_repaired(ring, survivors):
    names = "abcdef"
    grow(ring, names)
    ring.kill(*names[survivors:])
    ring.play()

    replica = ring.states["a"].replica
    assert sorted(replica.groups) == list(names[:survivors])
    assert sorted(replica.pairs) == (list(names[:survivors]) if survivors > 1 else [])


def test_a_report_is_repeated_after_a_reconnect_while_the_dead_is_still_a_member(ring):
    grow(ring, "ab")
    ring.dead.add("b")
    first = ring.feed("a", PulseGone("b"))
    ring.feed("a", SessionChanged(Session.SUSPENDED))

    assert ring.feed("a", SessionChanged(Session.CONNECTED)) == first

    ring.play("a")
    ring.feed("a", SessionChanged(Session.SUSPENDED))
    assert ring.feed("a", SessionChanged(Session.CONNECTED)) == ()


def test_the_death_of_a_stranger_is_no_news(ring):
    grow(ring, "ab")

    assert ring.feed("a", PulseGone("z")) == ()


def test_newcomers_clear_away_a_cluster_that_died_as_a_whole(ring):
    grow(ring, "abc")
    ring.kill("a", "b", "c")
    grow(ring, "d")

    for _ in range(10):
        ring.feed("d", BackOffElapsed())
        ring.play("d")
    assert ring.states["d"].replica.groups == ("d",)


def test_a_joiner_whose_watcher_dies_tries_again_with_another(ring):
    grow(ring, "ab")
    ring.start("c")
    ring.read("c")
    ring.play("c")
    watcher = next(iter(ring.states["c"].replica.prepared))
    ring.kill(watcher)
    ring.play()

    ring.feed("c", BackOffElapsed())
    ring.play()
    assert ring.states["c"].joined


def test_one_who_reads_of_its_own_death_starts_again_and_does_nothing_more(ring):
    grow(ring, "ab")
    ring.write(GroupLeaveCluster(id="b"), writer="a")
    ring.play()

    assert ring.actions["b"][-1] == Restart("declared dead")
    assert ring.feed("b", PulseGone("a")) == ()
