"""Group keys that a sender has found stay with their segments, or are left out."""

import numpy as np
import pyarrow as pa

from onyx.flow.batch import Batch, concatenate
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.codes import KeyCodes, KeyList

SEGMENTS = [{"k": "a"}, {"k": "b"}, {"k": "a"}, {"k": "c"}]


def of_dicts(first=0, last=4):
    return Batch(SEGMENTS[first:last], keys=KeyList([each["k"] for each in SEGMENTS[first:last]]))


def of_columns():
    columns = Columns(pa.RecordBatch.from_pylist(SEGMENTS))
    return Batch(columns, keys=KeyCodes.of_column(columns, "k"))


def keys_of(batch):
    if isinstance(batch.keys, KeyCodes):
        return [batch.keys.raws[code] for code in batch.keys.codes]
    return batch.keys and batch.keys.raws


def test_some_segments_of_a_batch_have_their_keys():
    for batch in (of_dicts(), of_columns()):
        assert keys_of(batch.take(np.array([1, 2]))) == ["b", "a"]
        assert keys_of(batch.slice(2, 4)) == ["a", "c"]


def test_of_some_rows_of_columns_no_other_keys_are_left():
    assert of_columns().take(np.array([2, 0])).keys.raws == ["a"]


def test_joined_batches_of_dicts_have_the_keys_of_all():
    assert keys_of(concatenate([of_dicts(0, 1), of_dicts(1, 4)])) == ["a", "b", "a", "c"]


def test_joined_batches_have_no_keys_if_one_of_them_has_none():
    without = Batch(SEGMENTS)
    for batches in ([of_dicts(), without], [without, of_dicts()], [of_dicts(), of_columns()]):
        assert concatenate(batches).keys is None


def test_joined_batches_of_columns_have_no_keys():
    assert concatenate([of_columns(), of_columns()]).keys is None
