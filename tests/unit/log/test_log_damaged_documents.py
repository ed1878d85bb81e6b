"""Documents and chunks beside the log in whose place somebody has put something else, or half of
it: what a job needs is an error that names it; what is only for people hides nothing else."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.support.log.memory_log import MemoryLog

from onyx.client import deaths, reports
from onyx.errors import StateError, UserError
from onyx.history import collection
from onyx.ids import GroupId, JobId, Position, TaskName
from onyx.log import documents
from onyx.log.documents import completed_position
from onyx.model.parsing.job import parse_manifest
from onyx.model.parsing.mapping import stored_job
from onyx.peer import loss_reports
from onyx.replica import canonical
from onyx.replica.state import Partitions, Replica
from onyx.reports import codes
from onyx.reports.outcomes import OutcomeReport, TaskTotals
from onyx.settings import HistorySettings
from onyx.spark.driver.committed import committed
from onyx.task.recovery.old_job import names_of
from onyx.task.source.frontier import FrontierStore

JOB, TASK = JobId("job-1"), TaskName("in")
DAMAGED = [
    b"", b"{", b'{"position": 5', b'{"attempt":"a","outputs":{}', b'{"foreign": {"shape": [1]}}',
    b"[7]", b"null", b'{"job": "\xff"}', b"\xff\xfe", b"[" * 5_000,
]  # fmt: skip
MANIFEST = """
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: j}
spec:
  workflow: [[in, out]]
  catalog:
    - {name: in, type: input, plugin: generator}
    - {name: out, type: output, plugin: blackhole}
"""
damaged = pytest.mark.parametrize("data", DAMAGED)
ZOOKEEPER = "restore the data of the log"


def frontier(log: Any, data: bytes) -> None:
    log.put_document(documents.frontier(JOB, 3), data, None)
    FrontierStore(SimpleNamespace(log=log), JOB, 3).load()  # type: ignore[arg-type]


def committed_query(log: Any, data: bytes) -> None:
    log.put_document(documents.committed_query(JOB), data, None)
    committed(log, JOB)


def committed_query_in_a_chunk(log: Any, data: bytes) -> None:
    log.put_document(documents.committed_query(JOB), log.put_chunk(data).encode(), None)
    committed(log, JOB)


def names_of_partitions(log: Any, data: bytes) -> None:
    names_of(log, JOB, TASK, Partitions(0, 1, log.put_chunk(data)))


NEEDED: dict[str, Callable[[Any, bytes], None]] = {
    "document frontier/job-1/3": frontier,
    "document query/job-1": committed_query,
    "document query/job-1 ": committed_query_in_a_chunk,
    "task in: chunk": names_of_partitions,
}


@damaged
@pytest.mark.parametrize("named", NEEDED)
def test_what_a_job_needs_is_an_error_that_names_it(named: str, data: bytes) -> None:
    with pytest.raises(StateError, match=f"job job-1.*{named}.* is damaged.*{ZOOKEEPER}"):
        NEEDED[named](MemoryLog().client(), data)


@damaged
def test_a_manifest_that_is_none_is_an_error_that_names_its_job(data: bytes) -> None:
    with pytest.raises(UserError) as caught:
        stored_job(data, JOB)
    assert "manifest of job job-1 is damaged" in str(caught.value) or "spec" in str(caught.value)


@damaged
def test_a_replica_that_is_none_is_an_error(data: bytes) -> None:
    with pytest.raises(UserError, match="replica: "):
        canonical.decode(data)


@damaged
def test_reports_for_people_that_cannot_be_read_hide_no_others(data: bytes) -> None:
    log = MemoryLog().client()
    log.put_document(documents.outcome(JOB, GroupId("g1")), data, None)
    whole = OutcomeReport(GroupId("g2"), working=False, tasks={TASK: TaskTotals(late=3)})
    log.put_document(documents.outcome(JOB, GroupId("g2")), msgspec.json.encode(whole), None)
    log.put_document(documents.deaths("host"), data, None)
    log.put_document(documents.frontier(JOB, 0), data, None)
    lines = reports.outcomes(log, Replica(), parse_manifest(MANIFEST), JOB)
    assert lines == ("about 3 segments of in came late and counted in no window",)
    assert deaths.read_deaths(log) == []
    assert completed_position(log, JOB, 0) is None
    assert codes.began_with(data) == {}
    assert loss_reports.pending(SimpleNamespace(losses=lambda: data)) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"", b"{", b"[7]", b'"\xff"'])
def test_why_a_job_was_killed_may_be_unreadable(data: bytes) -> None:
    log = MemoryLog().client()
    log.put_document(documents.exception(JOB), data, None)
    report = reports.exception(log, JOB)
    assert report is not None
    assert "cannot be read" in report["detail"]


@damaged
def test_a_collector_goes_on_without_marks_and_notes_that_it_cannot_read(
    caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    log, removed = MemoryLog().client(), list[str]()
    log.put_document(collection.MARKS, data, None)
    for _ in range(2):
        found = collection.noted_marks(log, Position(5), 1_000, HistorySettings())
    assert [mark.position for mark in found] == [5]

    log.put_document(documents.left_files(JOB), data, None)
    log.put_document(
        documents.left_files(JobId("job-2")), b'[{"path": "/p", "name": "job-2.in"}]', None
    )
    collection.sweep_documents(
        log, Replica, lambda job: None, lambda path, name: not removed.append(name)
    )
    assert removed == ["job-2.in"]
    assert "what job job-1 has left stays where it is" in caplog.text
    assert log.list_documents("files") == []
