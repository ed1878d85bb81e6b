"""What a processor has saved comes back whole and once, whoever takes over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.examples import examples

from onyx.client.states.kinds import OneSnapshot
from onyx.codec.values import decode_records, encode_records
from onyx.flow.groups.keys import SHARDS
from onyx.keystate.buckets import InMemory
from onyx.keystate.extents import Extent
from onyx.keystate.selection import EVERYTHING, Answer, Selection, merge, place_of
from onyx.operators.processor.snapshot import ProcessorSnapshot

KEYS = st.sampled_from(["a", "b", "c", 7, -1, None, 2.5, b"x"])
SAVED = st.dictionaries(KEYS, st.integers(0, 3) | st.lists(st.text(max_size=2), max_size=2))
STEPS = st.lists(st.lists(SAVED, min_size=1, max_size=3) | st.integers(1, 4), max_size=8)
"""What each peer saves, in turn; or a number of peers from then on."""


class Peer:
    """A peer, with its log: chunks of changes, or a chunk with all."""

    def __init__(self, own: Sequence[int]) -> None:
        self.snapshot = ProcessorSnapshot(own, InMemory())
        self.own = own
        self.log: dict[int, list[Any]] = {shard: [] for shard in own}

    def save(self, entries: dict[Any, Any], whole: bool) -> None:
        self.snapshot.begin()
        self.snapshot.take(list(entries.items()), [])
        self.snapshot.finish(whole)
        for shard, records in self.snapshot.take_changes().items():
            self.log[shard] += decode_records(encode_records(records))

    def compact(self) -> None:
        of_shard = self.snapshot.freeze(self.own)
        self.log = {shard: decode_records(encode_records(of_shard(shard))) for shard in self.own}


def peers_of(count: int, before: Sequence[Peer]) -> list[Peer]:
    peers = [Peer(range(rank, SHARDS, count)) for rank in range(count)]
    for old in before:
        for shard, records in old.log.items():
            taker = peers[shard % count]
            taker.snapshot.restore(shard, records)
            taker.log[shard] = list(records)
    for peer in peers:
        peer.snapshot.restored()
    return peers


def content(entries: Any) -> Counter[str]:
    return Counter(repr(entry) for entry in entries)


@given(STEPS, st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_what_was_saved_is_there_once_whoever_takes_over(steps: list[Any], compacts: bool) -> None:
    peers, saved = peers_of(2, ()), [dict[Any, Any](), dict[Any, Any]()]
    for step in steps:
        if isinstance(step, int):
            before = sum((content(each.items()) for each in saved), Counter())
            peers = peers_of(step, peers)
            after = [list(peer.snapshot.entries()) for peer in peers]
            assert sum(map(content, after), Counter()) == before
            # As a processor does that adds up: of equal keys it keeps one.
            saved = [dict(entries) for entries in after]
            for peer, entries in zip(peers, saved, strict=True):
                peer.save(entries, whole=True)
        else:
            for rank, entries in enumerate(step[: len(peers)]):
                peers[rank].save(entries, whole=True)
                saved[rank] = entries
                if compacts:
                    peers[rank].compact()
    for peer, entries in zip(peers, saved, strict=True):
        assert content(peer.snapshot.entries()) == content(entries.items())


@given(st.lists(SAVED, max_size=6))
@settings(max_examples=examples(100), deadline=None)
def test_a_processor_that_saves_changes_has_all_that_it_has_saved(steps: list[Any]) -> None:
    (peer,), saved = peers_of(1, ()), dict[Any, Any]()
    for changes in steps:
        peer.save(changes, whole=False)
        saved |= changes
        (peer,) = peers_of(1, [peer])
        assert content(peer.snapshot.entries()) == content(saved.items())
    peer.snapshot.begin()
    peer.snapshot.take([], list(saved))
    peer.snapshot.finish(whole=False)
    assert not list(peer.snapshot.entries())


@given(st.lists(SAVED, min_size=1, max_size=4))
@settings(max_examples=examples(50), deadline=None)
def test_only_what_has_changed_is_recorded(steps: list[Any]) -> None:
    (peer,) = peers_of(1, ())
    for entries in steps:
        peer.save(entries, whole=True)
        length = sum(map(len, peer.log.values()))
        peer.save(entries, whole=True)
        assert sum(map(len, peer.log.values())) == length


def pages(
    ones: Sequence[ProcessorSnapshot | OneSnapshot], asked: Selection, size: int
) -> list[Extent]:
    """What several are asked together, page by page."""
    seen: list[Extent] = []
    while True:
        found = [each.query(asked, size + 1) for each in ones]
        answers = [Answer(extents[:size], len(extents) > size) for extents in found]
        page = merge(answers, size)
        seen += page.extents
        if not page.more:
            return seen
        asked = replace(asked, after=place_of(page.extents[-1]))


@given(st.lists(SAVED, min_size=1, max_size=3), st.integers(1, 4), st.integers(1, 5), KEYS)
@settings(max_examples=examples(100), deadline=None)
def test_entries_are_shown_once_of_peers_that_have_taken_over_and_of_logs(
    entries: list[dict[Any, Any]], takers: int, size: int, key: Any
) -> None:
    peers = peers_of(len(entries), ())
    for peer, each in zip(peers, entries, strict=True):
        peer.save(each, whole=True)
    for now in (peers, peers_of(takers, peers)):
        logs = []
        for peer in now:
            for shard, records in peer.log.items():
                one = OneSnapshot()
                one.restore(shard, records)
                logs.append(one)
        for ones in ([peer.snapshot for peer in now], logs):
            found = [(each.group, each.state) for each in pages(ones, EVERYTHING, size)]
            assert content(found) == sum((content(each.items()) for each in entries), Counter())
            mine = [each.state for each in pages(ones, Selection(key=key), size)]
            assert content(mine) == content(each[key] for each in entries if key in each)
