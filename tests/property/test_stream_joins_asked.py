"""Questions about a join give the rows that a plain loop finds to be of use: in both formats, on
whatever pages, of peers and of state logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.examples import examples
from tests.support.stream_joins import HeldStreams

from onyx.client.states.kinds import JoinState
from onyx.codec.values import decode_records, encode_records
from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import from_dicts
from onyx.flow.groups.keys import SHARDS, key_bytes
from onyx.keystate.extents import ALL, Extent
from onyx.keystate.groups import Shards
from onyx.keystate.selection import EVERYTHING, Answer, Selection, merge, place_of
from onyx.model.job import CatalogEntry, Job, JoinSide, Within
from onyx.operators.stream_join.definition import StreamJoin, stream_join
from onyx.operators.stream_join.looking import look_at
from onyx.operators.stream_join.operator import SIDES
from onyx.operators.stream_join.spans import LEFT, RIGHT, US_A_MS, Side

KEYS = (st.integers(-1, 2), st.text("ab", max_size=2), st.booleans())
Rows = list[dict[str, Any]]


@dataclass
class Case:
    """A join with what it has got, and how far event time is."""

    state: JoinState
    rows: tuple[Rows, Rows]
    batch: int
    columns: bool
    watermark: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kinds = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))
    names = [[f"{side}{n}" for n in range(len(kinds))] for side in ("l", "r")]
    sides = [
        JoinSide(task, tuple(keys) if len(keys) > 1 else keys[0], "at")
        for task, keys in zip(("a", "b"), names, strict=True)
    ]
    within = Within(draw(st.integers(0, 4)), draw(st.integers(0, 4)))
    entry = CatalogEntry(
        name="j", type="join", left=sides[0], right=sides[1], within=within, deduplicate=False,
        how=draw(st.sampled_from(["inner", "outer"])),
    )  # fmt: skip
    inputs = [CatalogEntry(name=name, type="input") for name in ("a", "b")]
    job = Job("j", (("a", "j"), ("b", "j")), (*inputs, entry), guarantee="exactly-once")
    rows = tuple(
        draw(
            st.lists(
                st.fixed_dictionaries(
                    {**dict(zip(keys, kinds, strict=True)), "at": st.integers(0, 9)}
                ),
                max_size=10,
            )
        )
        for keys in names
    )
    found = tuple([row | {"n": n} for n, row in enumerate(side)] for side in rows)
    watermark = draw(st.integers(0, 14))
    return Case(
        JoinState(job, entry), found, draw(st.integers(1, 4)), draw(st.booleans()), watermark
    )


def join_of(case: Case) -> StreamJoin:
    join = stream_join(case.state.job, "j", _no_function)
    assert join is not None
    return join


def _no_files() -> Any:
    raise AssertionError("it has none")


def _no_function(name: str) -> Callable[..., Any]:
    raise AssertionError(name)


def held(case: Case) -> HeldStreams:
    """A peer with all rows."""
    join = join_of(case)
    state = HeldStreams(join, Shards(lambda group: 0), page_max=10)
    for shard in range(SHARDS):
        state.restore(shard, [])
    state.restored()
    for side, rows in zip(SIDES, case.rows, strict=True):
        for start in range(0, len(rows), case.batch):
            some = rows[start : start + case.batch]
            segments: Segments = from_dicts(some)[0] if case.columns else some
            looked = look_at(join, join.sides[side], segments)
            shards = np.array([case.state.shards(group_of(case, side, row))[0] for row in some])
            state.add(side, segments, looked.times, looked.rows, shards)
    for _ in state.advance(case.watermark):
        pass
    return state


def group_of(case: Case, side: Side, row: dict[str, Any]) -> Any:
    join = join_of(case)
    values = [row[each] for each in join.sides[side].keys]
    names = join.sides[LEFT].keys
    return values[0] if len(names) == 1 else dict(zip(names, values, strict=True))


def by_loop(case: Case) -> list[Extent]:
    """All extents, in order."""
    found: dict[tuple[bytes, int], Extent] = {}
    spans = join_of(case).spans
    for side, word in ((LEFT, "left"), (RIGHT, "right")):
        gone = spans.gone_before(side, np.array([case.watermark * US_A_MS]))[0]
        for row in case.rows[side]:
            if row["at"] * US_A_MS >= gone:
                group, time = group_of(case, side, row), row["at"]
                empty = Extent(group, time, time, {"left": [], "right": []})
                found.setdefault((key_bytes(group), time), empty).state[word].append(row)
    return sorted(found.values(), key=lambda each: place_of(each).order)


def alike(extents: list[Extent]) -> list[Any]:
    """Rows of a side at one time come in no order."""
    return [
        (
            key_bytes(each.group),
            each.lower,
            each.upper,
            *(sorted(each.state[side], key=lambda row: row["n"]) for side in ("left", "right")),
        )
        for each in extents
    ]


@given(cases(), st.integers(1, 4))
@settings(max_examples=examples(60), deadline=None)
def test_pages_have_each_row_that_is_of_use_once(case: Case, size: int) -> None:
    state, asked, seen = held(case), EVERYTHING, list[Extent]()
    while page := state.query("j", asked, size):
        seen += page
        asked = replace(asked, after=place_of(page[-1]))
    assert alike(seen) == alike(by_loop(case))


@given(cases(), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_what_is_asked_for_is_what_a_loop_finds(case: Case, data: st.DataObject) -> None:
    ways = [Selection(time_from=2, time_to=data.draw(st.integers(0, 9)))]
    for side in SIDES:
        groups = [group_of(case, side, row) for row in case.rows[side]]
        ways += [Selection(key=each) for each in groups]
        ways += [Selection(prefix=each) for each in groups if type(each) in (str, dict)]
        ways += [Selection(key_from=each) for each in groups if type(each) in (int, str)]
    state = held(case)
    for asked in ways:
        meant = [each for each in by_loop(case) if _is_meant(each, asked)]
        assert alike(state.query("j", asked)) == alike(meant)


def _is_meant(extent: Extent, asked: Selection) -> bool:
    if not asked.has_extent(extent.lower, extent.upper):
        return False
    if asked.key is not ALL:
        return key_bytes(asked.key) == key_bytes(extent.group)
    return asked.has_group(extent.group)


@given(cases())
@settings(max_examples=examples(30), deadline=None)
def test_a_state_log_tells_what_the_peer_tells(case: Case) -> None:
    state = held(case)
    empty, whole = case.state.empty(_no_function, _no_files), state.freeze(range(SHARDS))
    changes = state.take_changes()
    for records in (whole, lambda shard: changes.get(shard, [])):
        answers = []
        for shard in range(SHARDS):
            one = empty()
            one.restore(shard, decode_records(encode_records(records(shard))))
            answers.append(Answer(one.query(EVERYTHING, 100), False))
        assert alike(list(merge(answers, 100).extents)) == alike(state.query("j", EVERYTHING))
