"""How groups join the ring, one after the other and several at once."""

from __future__ import annotations

from onyx.peer.group import AddPeers, BackOffElapsed, RemovePeer, StartBackOff


def test_the_first_group_joins_at_once_and_then_offers_its_peers(ring):
    ring.start("a", "a1", "a2")

    assert ring.written("a") == ["prepare-join-cluster"]

    ring.play()
    assert ring.written("a") == ["prepare-join-cluster", "add-virtual-peer", "add-virtual-peer"]
    assert ring.states["a"].replica.peers == ("a1", "a2")


def test_a_second_group_joins_in_three_phases_and_both_watch_each_other(ring):
    ring.start("a")
    ring.play()
    ring.start("b", "b1")
    ring.play()

    assert [entry.command.NAME for entry in ring.log[1:]] == [
        "prepare-join-cluster",
        "notify-join-cluster",
        "accept-join-cluster",
        "add-virtual-peer",
    ]
    assert ring.pairs("a") == {"a": "b", "b": "a"}
    assert ring.watched() == {"a": ["b"], "b": ["a"]}


def test_every_watch_of_a_grown_ring_is_a_pair(ring):
    names = list("abcdef")
    for name in names:
        ring.start(name)
        ring.play()

    pairs = ring.pairs("a")
    assert sorted(pairs) == sorted(pairs.values()) == names
    assert ring.watched() == {name: [pairs[name]] for name in names}


def test_a_joiner_watches_both_ends_of_its_gap_until_it_has_joined(ring):
    for name in "ab":
        ring.start(name)
        ring.play()
    ring.start("c")
    ring.read("c")
    ring.play("c")

    assert ring.watched()["c"] == ["a", "b"]


def test_one_who_finds_no_watcher_backs_off_before_it_tries_again(ring):
    ring.start("a")
    ring.play()
    ring.start("b")
    ring.start("c")
    ring.play("c")
    ring.play()

    assert StartBackOff() in ring.actions["c"]
    assert ring.written("c") == ["prepare-join-cluster", "abort-join-cluster"]

    ring.feed("c", BackOffElapsed())
    ring.play()
    assert ring.states["c"].joined
    assert ring.feed("c", BackOffElapsed()) == ()


def test_a_peer_taken_back_before_the_group_has_joined_was_never_offered(ring):
    ring.start("a", "a1", "a2")
    ring.feed("a", RemovePeer("a1"))
    ring.play()

    assert ring.states["a"].replica.peers == ("a2",)
    assert "leave-cluster" not in ring.written("a")


def test_peers_come_and_go_while_joined(ring):
    ring.start("a", "a1")
    ring.play()
    ring.feed("a", AddPeers(("a2",)))
    ring.feed("a", RemovePeer("a1"))
    ring.play()

    assert ring.states["a"].replica.peers == ("a2",)
