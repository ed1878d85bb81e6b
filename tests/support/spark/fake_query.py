"""A query without Spark: the protocol of `onyx.spark_query`, for jobs of one chain.

`python fake_query.py` reads a request as the real process does. It runs an input of JSON lines, one
function and one output, in one process, and stages or spools what the real one would.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from onyx.base.parent import die_with
from onyx.base.path_names import staged_name
from onyx.model.job import CatalogEntry
from onyx.model.parsing.job import parse_mapping
from onyx.spark.driver.outputs import SpoolWriter
from onyx.spark.driver.request import (
    OutputResult,
    QueryFailure,
    QueryProgress,
    QueryReply,
    QueryRequest,
    TaskCounts,
)
from onyx.storage.staging.interface import STAGING
from onyx.user_code.resolve import Resolver

COMMAND = (sys.executable, __file__)
replies: BinaryIO


def main() -> None:
    """One request, lines of progress, one reply."""
    global replies
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what functions print must not spoil the reply
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=QueryRequest)
    if request.parent_pid:
        die_with(request.parent_pid)
    say(QueryProgress("starting"))
    say(answer(request))


def say(line: QueryProgress | QueryReply) -> None:
    replies.write(msgspec.json.encode(line) + b"\n")
    replies.flush()


def answer(request: QueryRequest) -> QueryReply:
    job = parse_mapping(request.manifest)
    read, work, write = (job.entry(name) for name in _chain(job.workflow))
    assert work.fn is not None
    fn = Resolver(request.modules).resolve(work.fn)
    text = Path(request.data_dir, read.options["path"]).read_text()
    people = [json.loads(line) for line in text.splitlines()]
    say(QueryProgress("running", {read.name: TaskCounts(len(people), len(people))}))
    try:
        rows = [fn(person) for person in people]
    except Exception as error:
        message = f"{work.fn} raised {type(error).__name__}: {error}"
        return QueryReply(QueryFailure(message, by_user=True, task=work.name))
    counts = {
        read.name: TaskCounts(len(people), len(people)),
        work.name: TaskCounts(len(people), len(rows)),
        write.name: TaskCounts(len(rows), 0),
    }
    return QueryReply(outputs={write.name: result(request, write, rows)}, tasks=counts)


def result(
    request: QueryRequest, write: CatalogEntry, rows: list[Mapping[str, Any]]
) -> OutputResult:
    if write.plugin != "files":
        spool = SpoolWriter(Path(request.scratch) / write.name)
        spool.write(rows)
        spool.close()
        return OutputResult(spools=(str(spool.path),))
    writer, name = f"{request.incarnation}.{request.attempt}-0", f"part-{request.attempt}.jsonl"
    folder = Path(request.data_dir, write.options["path"])
    staging = folder / STAGING / f"{request.job_id}.{write.name}" / writer
    staging.mkdir(parents=True)
    (staging / staged_name(name)).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return OutputResult(tokens=({"writer": writer, "name": name},))


def _chain(workflow: tuple[tuple[str, str], ...]) -> tuple[str, str, str]:
    (read, work), (_, write) = workflow
    return read, work, write


if __name__ == "__main__":
    main()
