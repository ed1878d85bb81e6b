"""Rows of joins in files that are mapped into memory: the kernel has in memory what is in use.

A file is removed from its folder as soon as it is mapped, and is gone when nobody has its rows. It
is a cache of the state log, and is not synced.
"""

from __future__ import annotations

import os
import tempfile

import pyarrow as pa

from onyx.flow.arrays import Indices
from onyx.operators.stream_join.keyed_rows import KeyedRows
from onyx.operators.stream_join.stored import Keep
from onyx.settings import StateSettings
from onyx.state.local.scratch import scratch_folder


def mapped(settings: StateSettings) -> Keep:
    """What moves rows into a file of their own.

    Raises:
        SettingsError: nothing can be written to the scratch folder.
    """
    folder = scratch_folder(settings)

    def keep(rows: KeyedRows, by_time: Indices) -> tuple[KeyedRows, Indices]:
        handle, name = tempfile.mkstemp(dir=folder)
        os.close(handle)
        try:
            batch = _written(name, rows, by_time)
        finally:
            os.unlink(name)
        return _rows_of(batch)

    return keep


def _written(name: str, rows: KeyedRows, by_time: Indices) -> pa.RecordBatch:
    segments = pa.StructArray.from_arrays(rows.segments.columns, fields=list(rows.segments.schema))
    numbers = (rows.hashes, rows.times, rows.shards, rows.where, by_time)
    arrays = [*map(pa.array, numbers), segments, *rows.keys]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(map(str, range(len(arrays)))))
    with pa.OSFile(name, "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_file(pa.memory_map(name)).get_batch(0)


def _rows_of(batch: pa.RecordBatch) -> tuple[KeyedRows, Indices]:
    hashes, times, shards, where, by_time, segments, *keys = batch.columns
    numbers = hashes.to_numpy(), times.to_numpy(), shards.to_numpy(), where.to_numpy()
    rows = KeyedRows(*numbers, tuple(keys), pa.RecordBatch.from_struct_array(segments))
    return rows, by_time.to_numpy()
