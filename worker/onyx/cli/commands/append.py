"""`onyx append`: hand segments to an input of a running job."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from onyx.cli.command_line import Argument, Option
from onyx.cli.options import JobArgument, JsonOption, LogPlace, TokenPlace
from onyx.cli.segment_lines import read_batches, read_segment
from onyx.client.appender import Appender, RequestFailed
from onyx.client.appending import appender
from onyx.errors import OnyxError, UserError
from onyx.flow.segment import Segment
from onyx.ledger.outcomes import NOTHING, failure_lines, in_words, plain
from onyx.reports.outcomes import segments_in_words
from onyx.requests.request import SEGMENTS_MAX, TIMEOUT_S, TIMEOUT_S_MAX, Answer, Level
from onyx.settings import Settings

BATCH_SEGMENTS = 1_000

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
    Option("--worker", "Address of a worker, host:port; without it, those that the log names."),
]


class SegmentsFailed(OnyxError):
    """Segments were taken, and have failed for good."""


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
    token: TokenPlace = TokenPlace(),
    place: LogPlace = LogPlace(),
    as_json: JsonOption = False,
) -> None:
    """Hand segments to an input of a running job, and wait until they are processed.

    The input is a task with `plugin: requests` or `http`. Segments are JSON objects, one a line.
    JOB is an id or its beginning, or a name if only one job of this name runs. The exit code is 1
    if segments have failed.
    """
    found = token.of(place.settings())
    with _appender(found, worker, job, task, place.tenancy) as open_:
        taken, outcomes = 0, NOTHING
        for number, segments in enumerate(_batches(file, segment, batch)):
            answer = _answer(open_, segments, ack, f"{id}-{number}" if id else "", timeout)
            outcomes += answer.outcomes.at_offset(taken)
            taken += len(segments)
            _show(answer, as_json)
    if not as_json:
        others = f" ({words})" if (words := in_words(outcomes)) else ""
        print(f"{segments_in_words(taken - outcomes.final_failures)} {_WORDS[ack]}{others}")
    if outcomes.final_failures:
        lines = "".join(f"\n  {each}" for each in failure_lines(outcomes))
        raise SegmentsFailed(f"{segments_in_words(outcomes.final_failures)} failed:{lines}")


def _appender(
    found: Settings, workers: list[str] | None, job: str, task: str, tenancy: str | None
) -> Appender:
    if workers:
        whose = tenancy or ""
        return Appender(workers, job, task, found.tls, client=found.client, tenancy=whose)
    return appender(found, job, task)


def _answer(
    appender: Appender, segments: list[Segment], ack: Level, id: str, timeout_s: float
) -> Answer:
    """The answer to one request; those behind it are sent also if some of its segments failed."""
    try:
        return appender.append(segments, ack, id, timeout_s)
    except RequestFailed as failed:
        return failed.answer


_WORDS = {Level.ACK: "processed", Level.JOURNAL: "journalled", Level.NONE: "accepted"}


def _show(answer: Answer, as_json: bool) -> None:
    if as_json:
        names = ("status", "segments", "values", "errors")
        shown = {name: getattr(answer, name) for name in names}
        print(json.dumps(shown | plain(answer.outcomes)))
        return
    if answer.values:
        print(json.dumps(answer.values))
    for key, why in answer.errors.items():
        print(f"no value for {key}: {why}", file=sys.stderr)


def _batches(file: Path | None, segment: str | None, batch: int) -> Iterator[list[Segment]]:
    if segment is None:
        yield from read_batches(file, batch)
    elif file is not None:
        raise UserError("give --segment or --file, not both")
    else:
        yield [read_segment(segment.encode(), "--segment")]
