"""A user's own aggregation over columns: one call for each extent and group of a batch."""

import pyarrow as pa
import pytest
from tests.support.windows.short import WATERMARK, held, task_windows

from onyx.codec.values import decode_records, encode_records
from onyx.flow.columns.record_batch import from_dicts
from onyx.keystate.coded import Groups

SEGMENTS = [
    {"at": 1, "v": 3, "k": "a"},
    {"at": 2, "v": 5, "k": "b"},
    {"at": 11, "v": 7, "k": "a"},
    {"at": 3, "v": 9, "k": "a"},
]
KEYS = [each["k"] for each in SEGMENTS]


def made(calls, window=None, triggers=(WATERMARK,)):
    def update(window, state, record_batch):
        assert isinstance(record_batch, pa.RecordBatch)
        values = record_batch.to_pydict()["v"]
        calls.append(values)
        return values

    functions = {
        "init": lambda window: [],
        "create_state_update": update,
        "apply_state_update": lambda window, state, values: state + values,
        "super_aggregation": lambda window, one, other: one + other,
    }
    shape = {"aggregation": "m:mine", "batch_format": "arrow", **(window or {})}
    return task_windows((shape, triggers), group_by="k", functions={"m:mine": lambda: functions})


@pytest.mark.parametrize("as_columns", [True, False])
def test_rows_of_one_extent_and_group_are_one_batch(as_columns):
    calls = []
    windows = made(calls)
    given = from_dicts(SEGMENTS)[0] if as_columns else SEGMENTS
    windows.add(given, Groups.of_rows(KEYS) if as_columns else KEYS, 0)
    assert calls == [[3, 9], [5], [7]]
    assert sorted(held(windows)) == ["0-9: [3, 9]", "0-9: [5]", "10-19: [7]"]


def test_its_updates_are_recorded_and_restored():
    windows = made([])
    windows.add(from_dicts(SEGMENTS)[0], Groups.of_rows(KEYS), 0)
    restored = made([])
    for shard, records in windows.take_changes().items():
        restored.restore(shard, decode_records(encode_records(records)))
    assert sorted(held(restored)) == sorted(held(windows))


COUNTED = {"type": "segment", "threshold": (9, "elements"), "refinement": "accumulating"}


def test_a_batch_has_all_rows_of_a_group_that_triggers_count_and_do_not_fire_for():
    calls = []
    windows = made(calls, {}, [COUNTED])
    windows.add(from_dicts(SEGMENTS)[0], Groups.of_rows(KEYS), 0)
    assert calls == [[3, 9], [5], [7]]


@pytest.mark.parametrize(
    ("window", "triggers"),
    [
        ({"type": "session", "timeout_gap": (50, "elements")}, [WATERMARK]),
        ({}, [{**COUNTED, "fire_all_extents": True}]),
    ],
    ids=["session", "segment trigger"],
)
def test_where_rows_go_one_by_one_a_batch_has_one(window, triggers):
    calls = []
    windows = made(calls, window, triggers)
    windows.add(from_dicts(SEGMENTS)[0], Groups.of_rows(KEYS), 0)
    assert calls == [[3], [5], [7], [9]]


def test_dicts_without_a_common_type_are_batches_of_one_row():
    calls = []
    made(calls).add([{"at": 1, "v": 3}, {"at": 2, "v": "x"}], ["a", "a"], 0)
    assert calls == [[3], ["x"]]
