"""The windowed job under chaos: a source behind a gate, and what its windows emit.

Imported by the workers. Every segment is computed from its number, so anybody can say what the
windows must come to.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from chaos_job import GatedColumnsReader, GatedReader
from msgspec.structs import replace

from onyx.plugins.protocol import ColumnsReader, Cursor, Input, PluginContext, Reader
from onyx.plugins.registry import build_input

KEYS = 1_000
DISORDER_MS = 500


def gated_generator(context: PluginContext) -> GatedGenerator:
    """The `generator` input behind the gate in option `gate`: numbers that may be read of each
    partition."""
    options = dict(context.options)
    gate = Path(options.pop("gate"))
    return GatedGenerator(build_input("generator", replace(context, options=options)), gate)


class GatedGenerator(Input):
    cooperative = False

    def __init__(self, inner: Input, gate: Path) -> None:
        self._inner = inner
        self._gate = gate

    def partitions(self):
        return self._inner.partitions()

    def open(self, partition: str, cursor: Cursor) -> Reader:
        reader = self._inner.open(partition, cursor)
        kind = GatedColumnsReader if isinstance(reader, ColumnsReader) else GatedReader
        return kind(reader, self._gate, cursor.position)

    def close(self) -> None:
        self._inner.close()


def measured(number: int):
    """A measurement of one of many keys, at most `DISORDER_MS` out of order."""
    late_ms = number * 7919 % (DISORDER_MS + 1)
    return {"key": number * 2_654_435_761 % KEYS, "v": number % 97, "time": number - late_ms}


def measured_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same measurements, of a column of numbers."""
    numbers = batch["n"].to_numpy()
    late_ms = numbers * 7919 % (DISORDER_MS + 1)
    keys = numbers * 2_654_435_761 % KEYS
    return pa.record_batch({"key": keys, "v": numbers % 97, "time": numbers - late_ms})


def same(segment):
    return segment


def emit_sum(event, window, trigger, state_event, state):
    key, lower = state_event["group_key"], state_event["lower_bound"]
    return {"window": window.id, "key": key, "from": lower, "sum": state}


def emit_count(event, window, trigger, state_event, state):
    return {"window": window.id, "key": state_event["group_key"], "from": 0, "sum": state}


def totals(segments):
    """A Spark stage: how often each number came."""
    return segments.groupBy("v", "time").count()


def totals_renamed(segments):
    return totals(segments)
