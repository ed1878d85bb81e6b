"""A join of two streams gives what a plain nested loop gives over the rows that are not late: in
both formats, whatever the order and the batches in which rows come, and through restarts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stream_joins import HeldStreams, Plain, counted

from onyx.flow.batch import Segments, as_dicts
from onyx.flow.columns.record_batch import from_dicts
from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.keystate.groups import Shards
from onyx.keystate.pages import Emission
from onyx.keystate.records import Record
from onyx.model.job import CatalogEntry, Job, JoinSide, Within
from onyx.operators.stream_join.definition import StreamJoin, stream_join
from onyx.operators.stream_join.looking import look_at
from onyx.operators.stream_join.results import gathered
from onyx.operators.stream_join.spans import LEFT, RIGHT, Side
from onyx.settings import StateSettings
from onyx.task.state.mapped import mapped
from onyx.windows.firing import FiringPages

KEYS = (
    st.integers(-1, 2),
    st.sampled_from(["", "a", "x" * 70, "x" * 70 + "y"]),
    st.booleans(),
    st.sampled_from([0, 1.0, 2, 2.5]),
    st.sampled_from([0, 2**63, 2**64 - 1]),
    st.sampled_from([0, Decimal("0.50"), Decimal("0.25"), Decimal("0.00"), Decimal(2**63)]),
)


@dataclass
class Case:
    """A join and what comes to it."""

    plain: Plain
    steps: list[tuple[str, Any]]
    """`left` and `right` with rows, `watermark` with a time, `restart` with nothing."""
    columns: tuple[bool, bool]
    page_max: int
    spilled: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    how = draw(st.sampled_from(["inner", "left", "right", "outer", "asof"]))
    kinds = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))
    sides = tuple(tuple(f"{side}{n}" for n in range(len(kinds))) for side in ("l", "r"))
    if how != "asof" and draw(st.booleans()):
        plain = Plain(how, sides, range=draw(st.integers(1, 9)))
    else:
        before = draw(st.none() | st.integers(0, 6)) if how == "asof" else draw(st.integers(0, 6))
        plain = Plain(how, sides, before, 0 if how == "asof" else draw(st.integers(0, 6)))
    plain = replace(plain, prefixes=(draw(st.sampled_from(["", "l_"])), "r_"))
    numbers, steps = itertools.count(), []
    part = draw(st.sampled_from([1, 4]))  # milliseconds, or quarters of them
    # All are different: latest is one row.
    times = (time / part if part > 1 else time for time in draw(st.permutations(range(40))))
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["left", "right", "watermark", "restart"]))
        if kind == "watermark":
            steps.append((kind, draw(st.integers(-5, 45))))
            continue
        rows = []
        for _ in range(draw(st.integers(1, 4)) if kind != "restart" else 0):
            names = sides[kind == "right"]
            parts = {name: draw(st.none() | each) for name, each in zip(names, kinds, strict=True)}
            time = next(times, None)
            if time is not None:
                rows.append(parts | {"at": time, "n": next(numbers)})
        steps.append((kind, rows))
    return Case(
        plain,
        steps,
        (draw(st.booleans()), draw(st.booleans())),
        draw(st.sampled_from([1, 3, 1_000])),
        draw(st.booleans()),
    )


def join_of(plain: Plain) -> StreamJoin:
    left, right = (
        JoinSide(task, keys if len(keys) > 1 else keys[0], "at", prefix)
        for task, keys, prefix in zip(("a", "b"), plain.keys, plain.prefixes, strict=True)
    )
    within = None if plain.range or plain.before is None else Within(plain.before, plain.after)
    entry = CatalogEntry(
        name="j", type="join", left=left, right=right, how=plain.how, within=within,
        range=plain.range, deduplicate=False,
    )  # fmt: skip
    inputs = [CatalogEntry(name=name, type="input") for name in ("a", "b")]
    made = stream_join(Job("j", (("a", "j"), ("b", "j")), (*inputs, entry)), "j", _no_function)
    assert made is not None
    return made


def _no_function(name: str) -> Callable[..., Any]:
    raise AssertionError(name)


@dataclass
class Peer:
    """A peer with a state log, which is a list of records a shard."""

    join: StreamJoin
    case: Case
    log: list[dict[int, list[Record]]] = field(default_factory=list)
    made: list[dict[str, Any]] = field(default_factory=list)
    late: list[tuple[str, int]] = field(default_factory=list)
    passed_on: int = -(2**63)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        keep = mapped(StateSettings()) if self.case.spilled else None
        shards = Shards(shard_of)
        self.state = HeldStreams(self.join, shards, self.case.page_max, keep, 4)
        for shard in range(SHARDS):
            self.state.restore(shard, [])
            for records in self.log:
                self.state.restore(shard, records.get(shard, []))
        self.state.restored()

    def take(self, kind: str, rows: list[dict[str, Any]]) -> None:
        side: Side = LEFT if kind == "left" else RIGHT
        segments: Segments = from_dicts(rows)[0] if self.case.columns[side] else rows
        looked = look_at(self.join, self.join.sides[side], segments)
        keys = self.join.sides[side].getter.of_dicts(rows).values()
        shards = np.array([shard_of(key) for key in keys])
        added = self.state.add(side, segments, looked.times, looked.rows, shards)
        self.late += [(kind, rows[index]["n"]) for index in added.late]
        for firing in gathered(int(shards[0]), added.made):
            assert isinstance(firing, Emission)
            self.sees(as_dicts(firing.segments))

    def sees(self, made: list[dict[str, Any]]) -> None:
        """Nothing is made behind the watermark that was passed on."""
        prefixes = self.case.plain.prefixes[: 1 if self.case.plain.how == "asof" else 2]
        for row in made:
            times = [row.get(f"{prefix}at") for prefix in prefixes]
            assert min(time for time in times if time is not None) >= self.passed_on
        self.made += made

    def fire(self, pages: FiringPages) -> None:
        for page in pages:
            for firing in page:
                assert isinstance(firing, Emission)
                self.sees(as_dicts(firing.segments))
            self.write()

    def write(self) -> None:
        self.log.append(self.state.take_changes())

    def restart(self, snapshot: bool) -> None:
        self.write()
        if snapshot:
            give = self.state.freeze(range(SHARDS))
            self.log = [{shard: give(shard) for shard in range(SHARDS)}]
        self.start()


def is_late(plain: Plain, time: int, watermark: int) -> bool:
    if plain.range is not None:
        return time // plain.range < watermark // plain.range
    return time < watermark


@given(cases(), st.booleans())
def test_a_join_of_streams_gives_what_a_nested_loop_gives(case: Case, snapshot: bool) -> None:
    peer = Peer(join_of(case.plain), case)
    watermark = -(2**62)
    there: dict[str, list[dict[str, Any]]] = {"left": [], "right": []}
    late: list[tuple[str, int]] = []
    for kind, what in case.steps:
        if kind == "watermark":
            watermark = max(watermark, what)
            peer.fire(peer.state.advance(what))
            peer.passed_on = max(peer.passed_on, peer.state.passed_on(what))
        elif kind == "restart":
            peer.restart(snapshot)
        elif what:
            peer.take(kind, what)
            behind = [is_late(case.plain, row["at"], watermark) for row in what]
            there[kind] += [row for row, each in zip(what, behind, strict=True) if not each]
            late += [(kind, row["n"]) for row, each in zip(what, behind, strict=True) if each]
    peer.fire(peer.state.complete(range(SHARDS), 0))
    assert peer.late == late
    assert counted(peer.made) == counted(case.plain.join(there["left"], there["right"]))
    left, right = map(len, peer.state._stored)
    assert left == 0
    assert right == 0 or case.plain.how == "asof"


@given(cases())
def test_a_watermark_lets_go_what_nobody_needs(case: Case) -> None:
    peer = Peer(join_of(case.plain), case)
    for kind, what in case.steps:
        if kind in ("left", "right") and what:
            peer.take(kind, what)
    peer.fire(peer.state.advance(10_000))
    left, right = map(len, peer.state._stored)
    assert left == 0
    assert right == 0 or (case.plain.how == "asof" and case.plain.before is None)


@given(cases())
def test_behind_the_end_of_a_job_nothing_is_emitted_again(case: Case) -> None:
    peer = Peer(join_of(case.plain), case)
    for kind, what in case.steps:
        if kind in ("left", "right") and what:
            peer.take(kind, what)
    peer.write()
    for page in itertools.islice(peer.state.complete(range(SHARDS), 0), 1):
        for firing in page:
            assert isinstance(firing, Emission)
            peer.sees(as_dicts(firing.segments))
    peer.restart(snapshot=False)
    peer.fire(peer.state.complete(range(SHARDS), 0))
    peer.restart(snapshot=True)
    once = list(peer.made)
    peer.fire(peer.state.complete(range(SHARDS), 0))
    assert peer.made == once
    rows = {
        side: [row for kind, what in case.steps if kind == side for row in what]
        for side in ("left", "right")
    }
    assert counted(peer.made) == counted(case.plain.join(rows["left"], rows["right"]))
