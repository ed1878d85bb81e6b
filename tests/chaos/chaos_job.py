"""The job under chaos: functions, and a source that a test opens step by step.

Imported by the workers. The gate is a file with the number of records that may be read of each
partition, so that faults hit a job that cannot have ended yet, without any timing.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from onyx.plugins.protocol import ColumnsReader, Cursor, Input, PluginContext, Reader
from onyx.plugins.registry import build_input


def gated_files(context: PluginContext) -> GatedFiles:
    """The `files` input behind the gate in option `gate`."""
    options = dict(context.options)
    gate = Path(options.pop("gate"))
    return GatedFiles(build_input("files", replace(context, options=options)), gate)


class GatedFiles(Input):
    cooperative = False

    def __init__(self, files: Input, gate: Path) -> None:
        self._files = files
        self._gate = gate

    def partitions(self):
        return self._files.partitions()

    def open(self, partition: str, cursor: Cursor) -> GatedReader:
        return GatedReader(self._files.open(partition, cursor), self._gate, cursor.position)

    def close(self) -> None:
        self._files.close()


class GatedReader(Reader):
    def __init__(self, reader: Reader, gate: Path, position: int) -> None:
        self._reader = reader
        self._gate = gate
        self._position = position
        self._limit = 0

    def read(self, segments_max: int):
        return self._through(self._reader.read, segments_max)

    def _through(self, read, segments_max: int):
        if self._position >= self._limit:
            self._limit = int(self._gate.read_text())
        wanted = min(segments_max, self._limit - self._position)
        segments = read(wanted) if wanted > 0 else []
        self._position += (
            segments.num_rows if isinstance(segments, pa.RecordBatch) else len(segments)
        )
        return segments

    def exhausted(self) -> bool:
        return self._reader.exhausted()

    def cursor(self, position: int) -> Cursor:
        return self._reader.cursor(position)

    def close(self) -> None:
        self._reader.close()


class GatedColumnsReader(GatedReader, ColumnsReader):
    def read_columns(self, segments_max: int):
        return self._through(self._reader.read_columns, segments_max)


def parse(pause_s, segment):
    """A record from its line; raises ValueError for a bad one. Slow: it rests now and then."""
    if segment["number"] % 100 == 0:
        time.sleep(pause_s)
    record = json.loads(segment["line"])
    return {"value": record["value"], "file": segment["file"], "number": segment["number"]}


def is_bad(event, line, error, all_new):
    return isinstance(error, ValueError)


def as_bad(event, line, error):
    return {"file": line["file"], "number": line["number"], "value": line["line"]}


def is_even(event, line, record, all_new):
    return record["value"] % 2 == 0


def is_round(event, line, record, all_new):
    return record["value"] % 10 == 0
