"""Records of small chunks are joined before they are restored: the same is there, sooner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.codes import KeyCodes
from onyx.flow.groups.keys import shard_of
from onyx.keystate.coded import GroupKeys
from onyx.keystate.groups import hashable_keys
from onyx.keystate.records import (
    ClearExtent,
    DeleteGroups,
    Record,
    SetArrays,
    SetSessionArrays,
    SetStates,
    WatermarkReached,
)
from onyx.model.job import CatalogEntry, Job, Trigger, Window
from onyx.windows.arrays.joined_records import joined
from onyx.windows.compile import compile_windows
from onyx.windows.task_windows import TaskWindows

MINUTE_MS = 60_000
TYPES: dict[str, dict[str, Any]] = {
    "fixed": {"type": "fixed", "range": (1, "minutes")},
    "sliding": {"type": "sliding", "range": (2, "minutes"), "slide": (1, "minutes")},
    "session": {"type": "session", "timeout_gap": (10, "seconds")},
}


def windows(kind: str, columns: bool) -> TaskWindows:
    entry = CatalogEntry(
        "sum", "reduce", 1, group_by_key="k", flux_policy="recover",
        batch_format="arrow" if columns else "dicts",
    )  # fmt: skip
    job = Job(
        "flights",
        (("read", "sum"),),
        (CatalogEntry("read", "input", 1, watermark_key="at"), entry),
        windows=(Window("w", "sum", aggregation=("sum", "v"), window_key="at", **TYPES[kind]),),
        triggers=(Trigger("w", id="t", type="watermark", refinement="discarding"),),
    )
    compiled = compile_windows(job, "sum", lambda name: len)
    assert compiled is not None
    return TaskWindows(compiled, shard_of)


ROWS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 5 * MINUTE_MS), st.integers(-9, 9)), max_size=4
)


@pytest.mark.parametrize("text", [False, True], ids=["ints", "text"])
@pytest.mark.parametrize("columns", [False, True], ids=["dicts", "columns"])
@pytest.mark.parametrize("kind", TYPES)
@given(st.lists(st.tuples(ROWS, st.integers(0, 6 * MINUTE_MS)), max_size=12))
@settings(max_examples=examples(12))
def test_what_is_restored_together_is_what_is_restored_record_by_record(
    kind: str, columns: bool, text: bool, chunks: Sequence[tuple[list[tuple[int, int, int]], int]]
) -> None:
    its, keys = windows(kind, columns), GroupKeys()
    log: dict[int, list[Record]] = {}
    for rows, watermark in chunks:
        given = [
            {"k": f"key {k % 3}" + "x" * k if text else k, "at": at, "v": v} for k, at, v in rows
        ]
        if given and columns:
            batch = Columns(pa.RecordBatch.from_pylist(given))
            its.add(batch, keys.of(KeyCodes.of_column(batch, "k")), 0)
        elif given:
            its.add(given, hashable_keys([each["k"] for each in given]), 0)
        list(its.advance(watermark))
        for shard, records in its.take_changes().items():
            log.setdefault(shard, []).extend(records)
    together, alone = windows(kind, columns), windows(kind, columns)
    for shard, records in log.items():
        together.restore(shard, records)
        for each in records:
            alone.restore(shard, [each])
    assert shown(together) == shown(alone) == shown(its)


def shown(its: TaskWindows) -> list[str]:
    return sorted(map(repr, its.query("w")))


def arrays(extent: int, **states: int) -> SetArrays:
    lengths = np.array([len(each) for each in states], "<u4").tobytes()
    values = np.array(list(states.values()), "<i8").tobytes()
    return SetArrays("w", extent, "text", [lengths, "".join(states).encode()], ["<i8"], [values])


def test_the_last_state_of_a_group_counts_whatever_comes_between_of_others() -> None:
    reached = WatermarkReached("w", 5)
    records = [
        arrays(1, a=1, bb=2), reached, arrays(2, a=9), DeleteGroups("v", 1, ["a"]),
        arrays(1, a=3, c=4),
    ]  # fmt: skip
    assert list(joined(records)) == [
        reached, DeleteGroups("v", 1, ["a"]), arrays(1, bb=2, a=3, c=4), arrays(2, a=9)
    ]  # fmt: skip


@pytest.mark.parametrize("between", [ClearExtent("w", 1), DeleteGroups("w", 1, ["a"])])
def test_what_an_extent_loses_it_loses_in_its_turn(between: Record) -> None:
    records = [arrays(1, a=1), arrays(1, b=1), between, arrays(1, a=2)]
    assert list(joined(records)) == [arrays(1, a=1, b=1), between, arrays(1, a=2)]


def test_states_of_other_types_are_not_joined() -> None:
    floats = SetArrays("w", 1, "ints", [bytes(8)], ["<f8"], [bytes(8)])
    records = [arrays(1, a=1), floats, SetStates("w", 1, ["a"], [1]), SetStates("w", 1, ["a"], [2])]
    assert list(joined(records)) == [*records[:2], SetStates("w", 1, ["a", "a"], [1, 2])]


def test_a_group_whose_sessions_are_gone_has_none() -> None:
    def sessions(*counts: int, fired: dict[str, bytes]) -> SetSessionArrays:
        groups = np.arange(len(counts)).astype("<i8").tobytes()
        column = np.arange(sum(counts)).astype("<i8").tobytes()
        return SetSessionArrays(
            "w", "ints", [groups], np.array(counts, "<i4").tobytes(), [column, column], ["<i8"],
            [column], fired,
        )  # fmt: skip

    one = sessions(2, 1, fired={"t": b"\1\0\1"})
    (found,) = joined([one, sessions(0, fired={})])
    assert isinstance(found, SetSessionArrays)
    assert np.frombuffer(found.groups[0], "<i8").tolist() == [1, 0]
    assert np.frombuffer(found.counts, "<i4").tolist() == [1, 0]
    assert np.frombuffer(found.bounds[0], "<i8").tolist() == [2]
    assert found.fired == {"t": b"\1"}
