"""Acks that wait for what a task with state has made: answers of requests say that it is there."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.support.clocks import ManualClock

from onyx.base.runs import array_of
from onyx.ledger.lineage import run_of_roots
from onyx.ledger.returns import ReturnPart
from onyx.model.job import CatalogEntry, Job, Window
from onyx.model.requests import asked_for, windows_asked_for
from onyx.task.state.chunks import PendingChunk
from onyx.task.state.emissions import EmissionRun, Emissions
from onyx.task.state.held_acks import MIXED, HeldAcks

FIRST = 100
"""The partition of shard 0."""


class Held:
    """Chunks of a task: each acks roots of an input, and emits into shards."""

    def __init__(self, restored: int = 0, in_a_loop: bool = False) -> None:
        self.emissions = Emissions("keep", FIRST, ManualClock(), 60.0)
        if restored:
            self.emissions.restore(0, 0, [EmissionRun([{}] * restored)])
        self.acks = HeldAcks(self.emissions, in_a_loop)

    def chunk(
        self,
        roots: list[int],
        again: bool = False,
        made_of: list[int] | None = None,
        unfinished: bool = False,
        **shards: int,
    ) -> list[int]:
        """One becomes durable, and what it has emitted is sent; what is acked then."""
        parents = None if made_of is None else np.array(made_of, dtype=np.uint64)
        for shard, count in shards.items():
            self.emissions.add(int(shard[1:]), EmissionRun([{}] * count, parents=parents))
        emitted = self.emissions.take_fresh()
        columns = np.array(roots, dtype=np.uint64)
        self.emissions.release(emitted)
        acked = self.acks.hold(PendingChunk([(columns, columns)], emitted, {}, again, unfinished))
        return self._roots(acked)

    def complete(self, shard: int, first: int, end: int) -> list[int]:
        """Emissions are complete; what is acked then."""
        self.emissions.read(1_000)
        self.emissions.complete(run_of_roots(FIRST + shard, first, end))
        return self._roots(self.acks.take())

    def _roots(self, acked: list[Any]) -> list[int]:
        return [each for roots, _ in acked for each in array_of(roots).tolist()]


def test_a_chunk_is_acked_when_all_is_complete_that_it_has_emitted() -> None:
    held = Held()
    assert held.chunk([1, 2], s0=2, s3=1) == []
    assert held.chunk([3]) == [3], "it has emitted nothing"
    assert held.chunk([4], s0=1) == []
    assert [array_of(each).tolist() for each in held.acks.waiting_roots()] == [[1, 2], [4]]
    assert held.complete(0, 0, 2) == []
    assert held.complete(0, 2, 3) == [4], "others are not waited for"
    assert held.complete(3, 0, 1) == [1, 2]
    assert held.acks.waiting_roots() == []


def test_what_is_not_finished_waits_for_all_that_is_made_of_it_later() -> None:
    held = Held()
    assert held.chunk([1], unfinished=True, s0=1) == []
    assert held.complete(0, 0, 1) == [], "more is to come"
    assert held.chunk([], unfinished=True, s0=1) == []
    assert held.complete(0, 1, 2) == []
    assert held.chunk([], s0=1) == []
    assert held.complete(0, 2, 3) == [1]


def test_what_was_applied_before_waits_for_all_that_was_emitted() -> None:
    held = Held(restored=2)
    assert held.chunk([1], again=True, s1=1) == []
    assert held.complete(1, 0, 1) == []
    assert held.complete(0, 0, 2) == [1]


def test_in_a_loop_what_was_applied_before_does_not_wait_for_itself() -> None:
    held = Held(restored=2, in_a_loop=True)
    assert held.chunk([1], again=True) == [1]
    assert held.chunk([2], s0=1) == []
    assert held.complete(0, 2, 3) == [2], "though those before it are not complete"


def test_a_flush_goes_behind_what_was_emitted() -> None:
    held = Held()
    held.acks.flush_behind()
    assert not held.acks.wants_flush(), "there is nothing to wait for"
    held.chunk([1], s0=2, s1=1)
    held.acks.flush_behind()
    assert not held.acks.wants_flush()
    held.emissions.read(2)
    assert not held.acks.wants_flush()
    held.emissions.read(2)
    assert [held.acks.wants_flush(), held.acks.wants_flush()] == [True, False]


PARTS = {"total": ReturnPart("sum", 5, 8)}


def root_of(shard: int, position: int) -> int:
    return int(array_of(run_of_roots(FIRST + shard, position, position + 1))[0])


def test_what_is_given_back_goes_to_the_segment_that_it_was_made_of() -> None:
    held = Held()
    held.chunk([1, 2], made_of=[2, 1, 2], s0=3)
    found = held.acks.returned({root_of(0, at): PARTS for at in range(3)})
    assert [root for root, _ in found] == [2, 1, 2]


@pytest.mark.parametrize("roots", [[7], [7, 8]])
def test_what_was_made_of_several_segments_at_once_is_an_error(roots: list[int]) -> None:
    held = Held()
    held.chunk(roots, s0=2)
    found = dict(held.acks.returned({root_of(0, 1): PARTS}))
    assert list(found) == roots
    errors = [parts["total"].error for parts in found.values()]
    assert errors == ([""] if len(roots) == 1 else [MIXED, MIXED])


def test_requests_reach_the_first_window_and_no_further() -> None:
    names = ["in", "keep", "sum", "after", "out"]
    entries = (
        CatalogEntry("in", "input", plugin="http"),
        CatalogEntry("file", "input", plugin="files"),
        *(CatalogEntry(each, "function") for each in names[1:-1]),
        CatalogEntry("out", "output"),
    )
    edges = (*itertools.pairwise(names), ("file", "after"))
    job = Job("j", edges, entries, windows=(Window("w", "sum", "global", "count"),))
    assert asked_for(job) == {"in", "keep", "sum"}
    assert windows_asked_for(job) == ("sum",)
