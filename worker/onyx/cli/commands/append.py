"""`onyx append`: hand segments to an input of a running job."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
from msgspec import Meta

from onyx.cli.command_line import Argument, Option
from onyx.cli.options import JobArgument, JsonOption, TenancyOption, ZooKeeperOption
from onyx.client.appender import Appender
from onyx.client.appending import appender
from onyx.errors import UserError
from onyx.flow.segment import Segment
from onyx.processes.surroundings import settings
from onyx.requests.request import SEGMENTS_MAX, TIMEOUT_S, TIMEOUT_S_MAX, Answer, Level
from onyx.structs import UNREADABLE

BATCH_SEGMENTS = 1_000
_decoder = msgspec.json.Decoder(dict[str, Any])

TaskArgument = Annotated[
    str, Argument("The input; not needed if the job has one that takes requests.")
]
FileOption = Annotated[
    Path | None, Option("--file", "JSON Lines to read; standard input without it.")
]
SegmentOption = Annotated[str | None, Option("--segment", "One segment, as a JSON object.")]
AckOption = Annotated[
    Level,
    Option(
        "--ack",
        "When to go on: `ack`, all that follows is durable in all outputs; `journal`, the "
        "segments are durable; `none`, a worker has them.",
    ),
]
IdOption = Annotated[
    str,
    Option(
        "--id",
        "Segments are taken once under one id; several requests are ID-0, ID-1, ...",
    ),
]
BatchOption = Annotated[
    int, Meta(ge=1, le=SEGMENTS_MAX), Option("--batch", "Segments in one request.")
]
TimeoutOption = Annotated[
    float,
    Meta(ge=0.001, le=TIMEOUT_S_MAX),
    Option("--timeout", "Seconds to try each request."),
]
WorkerOption = Annotated[
    list[str] | None,
    Option("--worker", "Address of a worker, host:port; without it, ZooKeeper's."),
]


def append(
    job: JobArgument,
    task: TaskArgument = "",
    file: FileOption = None,
    segment: SegmentOption = None,
    ack: AckOption = Level.ACK,
    id: IdOption = "",
    batch: BatchOption = BATCH_SEGMENTS,
    timeout: TimeoutOption = TIMEOUT_S,
    worker: WorkerOption = None,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hand segments to an input of a running job, and wait until they are processed.

    The input is a task with `plugin: requests`. Segments are JSON objects, one a line. JOB is an
    id, or a name if only one job of this name runs.
    """
    found = settings(zookeeper, tenancy)
    with Appender(worker, job, task, found.tls) if worker else appender(found, job, task) as open_:
        taken = 0
        for number, segments in enumerate(_batches(file, segment, batch)):
            answer = open_.append(segments, ack, f"{id}-{number}" if id else "", timeout)
            taken += len(segments)
            _show(answer, as_json)
    if not as_json:
        print(f"{taken:,} segments {_WORDS[ack]}")


_WORDS = {Level.ACK: "processed", Level.JOURNAL: "journalled", Level.NONE: "accepted"}


def _show(answer: Answer, as_json: bool) -> None:
    if as_json:
        names = ("status", "segments", "values", "errors")
        print(json.dumps({name: getattr(answer, name) for name in names}))
        return
    if answer.values:
        print(json.dumps(answer.values))
    for key, why in answer.errors.items():
        print(f"no value for {key}: {why}", file=sys.stderr)


def _batches(file: Path | None, segment: str | None, batch: int) -> Iterator[list[Segment]]:
    if segment is not None:
        if file is not None:
            raise UserError("give --segment or --file, not both")
        yield [_segment(segment.encode(), "--segment")]
        return
    if file is None:
        yield from _read(sys.stdin.buffer, "standard input", batch)
        return
    try:
        with file.open("rb") as opened:
            yield from _read(opened, str(file), batch)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from error


def _read(lines: BinaryIO, name: str, batch: int) -> Iterator[list[Segment]]:
    numbered = enumerate(lines, 1)
    found = (_segment(line, f"{name}, line {number}") for number, line in numbered if line.strip())
    while segments := list(islice(found, batch)):
        yield segments


def _segment(text: bytes, where: str) -> Segment:
    try:
        return _decoder.decode(text)
    except UNREADABLE as error:
        raise UserError(f"{where} is no JSON object: {error}") from error
