"""What `onyx run` says of a job, and when it asks how the job is."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table
from tests.support.log.replica_log import ReplicaLog

from onyx.cli import following
from onyx.cli.following import JobTimedOut, LiveTable, follow, is_ready
from onyx.client.statuses import JobStatus
from onyx.client.submissions import Submission
from onyx.ids import JobId, Position
from onyx.model.job import CatalogEntry, Job
from onyx.settings import Settings

JOB = JobId("j")
LONG = Job(
    "long",
    (("read", "write"),),
    (CatalogEntry("read", "input", 1), CatalogEntry("write", "output", 1)),
)


def test_a_job_is_ready_when_all_workers_have_joined_and_its_peers_can_receive() -> None:
    log = ReplicaLog().join("a", peers=1)
    assert not is_ready(log.new, JOB, peers=2), "it is not there"
    log.submit(tasks="read write")
    assert not is_ready(log.new, JOB, peers=2), "a worker is missing"
    log.join("b", peers=1)
    assert not is_ready(log.new, JOB, peers=2), "nobody is ready"
    log.ready()
    assert is_ready(log.new, JOB, peers=2)
    assert not is_ready(log.new, JOB, peers=3), "another worker has just started"


class Cluster:
    """Counts how often it is asked how its job is, which never ends."""

    failure = None

    def __init__(self) -> None:
        self.asked = 0

    def submit(self, job: Job) -> Any:
        return Submission(JOB, Position(0))

    def replica(self) -> Any:
        return ReplicaLog().new

    def follow(self, look: Any, failed: Any) -> Any:
        return nullcontext()

    def status_at(self, replica: Any, job: JobId) -> JobStatus:
        self.asked += 1
        return JobStatus(job, "long", "running", Position(1), 3)

    def completed_positions(self, *_: Any) -> dict[str, int]:
        return {}

    def totals(self, *_: Any) -> dict[str, Any]:
        return {}

    def kill(self, job: JobId) -> None:
        """Nobody waits."""


def test_where_nobody_watches_the_cluster_is_asked_as_often_as_a_line_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(following, "SAMPLE_INTERVAL_S", 0.25 / 1024)
    monkeypatch.setattr(following, "PLAIN_INTERVAL_S", 1 / 1024)
    cluster: Any = Cluster()
    with pytest.raises(JobTimedOut):
        follow(cluster, cluster, LONG, as_json=False, timeout_s=5 / 1024)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" (")[0] for line in lines] == ["long running"] * 5
    assert cluster.asked == 5


def test_what_an_interrupted_job_leaves_behind_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(following, "_watch", interrupted)
    (tmp_path / "part-write--j--0-0123456789ab-000000.jsonl").write_text("{}\n{}\n")
    write = CatalogEntry("write", "output", plugin="files", options={"path": str(tmp_path)})
    job = Job("long", LONG.workflow, (LONG.catalog[0], write))
    cluster: Any = Cluster()
    with pytest.raises(KeyboardInterrupt):
        follow(cluster, cluster, job, as_json=False, timeout_s=None, there=Settings())
    assert capsys.readouterr().err == f"2 rows in {tmp_path}; --replace begins anew\n"


def test_in_a_notebook_the_figures_are_drawn_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, Any]] = []
    handle = SimpleNamespace(update=lambda table: shown.append(("update", table)))

    def display(table: Any, display_id: bool) -> Any:
        shown.append(("new" if display_id else "", table))
        return handle

    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    drawing = LiveTable(Console(force_jupyter=True))
    assert drawing.is_there
    first, second, late = Table("first"), Table("second"), Table("late")
    drawing.draw(first)
    drawing.draw(second)
    drawing.close()
    drawing.draw(late)
    assert shown == [("new", first), ("update", second)]


def test_where_nobody_looks_nothing_is_drawn() -> None:
    drawing = LiveTable(Console(file=StringIO()))
    drawing.draw(Table("first"))
    assert not drawing.is_there
    assert drawing.console.file.getvalue() == ""  # type: ignore[attr-defined]
