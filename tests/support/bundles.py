"""Bundles of jobs in a log in memory, whose reports come from the task itself that has failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support.console_world import GROUPS, ConsoleWorld
from tests.support.jobs.bench import Bench

from onyx.bundle.bundle_file import JobBundle, read, write
from onyx.bundle.gathering import JobGathering
from onyx.ids import GroupId, JobId
from onyx.log import documents
from onyx.replica.commands import KillJob
from onyx.reports.measures import Measures, WorkerDiagnostics, WorkerMeasures
from onyx.settings import Settings

Functions = Mapping[str, Callable[..., Any]]
LINE = (
    '{"time": "now", "level": "error", "logger": "onyx.jobs", "event": "task work has failed: no '
    'number: 4111-1111", "why": "no number: 4111-1111", "job": "broken", "what": "task-failed"}'
)


class Workers:
    """What workers answer: the first one does, all others are silent."""

    silent = dict.fromkeys(GROUPS[1:2], "no answer in time: 5 s")

    def read(self, **_: Any) -> Measures:
        return Measures((WorkerMeasures(GROUPS[0], 1),), dict(self.silent))

    def diagnostics(self, *_: Any) -> Any:
        said = WorkerDiagnostics((LINE, LINE.replace("onyx.jobs", "shop")), "onyx_up 1\n")
        return {GroupId(GROUPS[0]): said}, dict(self.silent)


def failed_world(
    spec: dict[str, Any], functions: Functions, settings: Settings | None = None
) -> ConsoleWorld:
    """A cluster whose job `broken` has failed as it does on a bench."""
    bench = Bench(spec, functions, **({} if settings is None else {"settings": settings}))
    bench.settle()
    (report,) = bench.exceptions
    world = ConsoleWorld()
    world.join(*GROUPS[:2], peers=4)
    job = world.submit(
        "shop", id="broken", **{"flowConditions": [], **spec, "catalog": _plain(spec)}
    )
    report = {**report, "job": job}
    batch = report.pop("batch", None)
    world.document(documents.exception(job), report)
    if batch is not None:
        world.document(documents.failed_batch(job), batch)
    world.document(documents.frontier(job, 0), {"position": 2, "cursor": "4111-1111"})
    world.put(KillJob(job=job, why="task work failed"))
    return world


def _plain(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The catalog without the segments, which are of the test and not of the manifest."""
    read, *others = spec["catalog"]
    return [{**read, "options": {"segments": [], "partitions": 1}}, *others]


def bundled(world: ConsoleWorld, path: Path, values: bool = True, job: str = "broken") -> JobBundle:
    """The bundle of a job of a world, written and read."""
    workers: Any = Workers()
    gathering = JobGathering(
        world.client, workers, "shop", JobId(job), values, lambda: world.now_ms
    )
    write(path, gathering.lines())
    return read(path)
