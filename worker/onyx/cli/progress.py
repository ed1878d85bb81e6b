"""How far a running job is: read from the workers' metrics endpoints, shown as a table.

The addresses come from the replica, where each peer announces its endpoint, so this works for any
worker of the cluster. Counters of a worker that has died are kept: what it did was done.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections import defaultdict
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from rich.table import Table

from onyx.model.job import Job
from onyx.model.workflow import topological_order
from onyx.replica.state import Replica
from onyx.telemetry.processes import metrics_path

SCRAPE_TIMEOUT_S = 2.0

Key = tuple[str, str]
"""(task, metric)."""

_METRICS = {
    "onyx_task_segments_in_total": "in",
    "onyx_task_segments_out_total": "out",
    "onyx_source_offset": "completed",
    "onyx_task_retries_total": "retried",
    "onyx_task_errors_total": "errors",
}

_PAGE = metrics_path(_METRICS)


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Totals of one task over all its peers, and its present speed."""

    task: str
    segments_in: int
    segments_out: int
    completed: int
    retried: int
    errors: int
    segments_per_s: float


class Progress:
    """Collects the figures of one job; `sample` before asking for rows."""

    def __init__(self, job: Job) -> None:
        self._job = job.name
        self._tasks = topological_order(job.workflow)
        self._inputs = {entry.name for entry in job.catalog if entry.type == "input"}
        self._started_s = time.monotonic()
        self._seen: dict[str, dict[Key, float]] = {}
        self._before: dict[str, float] = {}
        self._at_s = time.monotonic()
        self._speed: dict[str, float] = {}

    def sample(self, replica: Replica) -> None:
        """Ask every worker that has announced an endpoint."""
        addresses = {
            str(site["metrics"]) for site in replica.peer_sites.values() if "metrics" in site
        }
        for address in sorted(addresses):
            found = self._scrape(address)
            if found:
                self._seen[address] = found
        now_s = time.monotonic()
        elapsed_s, self._at_s = max(now_s - self._at_s, 1e-3), now_s
        for task in self._tasks:
            total = self._total(task, "in") or self._total(task, "out")
            self._speed[task] = (total - self._before.get(task, 0.0)) / elapsed_s
            self._before[task] = total

    def rows(self, average: bool = False) -> list[TaskProgress]:
        """With the speed of the last interval, or of the whole time."""
        elapsed_s = self._at_s - self._started_s
        return [
            TaskProgress(
                task,
                segments_in=int(self._total(task, "in")),
                segments_out=int(self._total(task, "out")),
                completed=int(self._total(task, "completed")),
                retried=int(self._total(task, "retried")),
                errors=int(self._total(task, "errors")),
                segments_per_s=(
                    self._before.get(task, 0.0) / elapsed_s
                    if average and elapsed_s > 0
                    else self._speed.get(task, 0.0)
                ),
            )
            for task in self._tasks
        ]

    def line(self) -> str:
        """How far the inputs are, in a few words for a log."""
        inputs = [row for row in self.rows() if row.task in self._inputs]
        completed = sum(row.completed for row in inputs)
        read, speed = sum(row.segments_out for row in inputs), sum(r.segments_per_s for r in inputs)
        return f"{read:,} segments read, {completed:,} completed, {speed:,.0f}/s"

    def table(self, title: str, average: bool = False) -> Table:
        """What a person watches. Only inputs complete and retry segments."""
        table = Table("task", title=title, title_justify="left")
        for heading in ("in", "out", "completed", "retried", "segments/s"):
            table.add_column(heading, justify="right")
        for row in self.rows(average):
            source = row.task in self._inputs
            table.add_row(
                row.task,
                f"{row.segments_in:,}",
                f"{row.segments_out:,}",
                f"{row.completed:,}" if source else "",
                f"{row.retried:,}" if source else "",
                f"{row.segments_per_s:,.0f}",
            )
        return table

    def _total(self, task: str, metric: str) -> float:
        return sum(values.get((task, metric), 0.0) for values in self._seen.values())

    def _scrape(self, address: str) -> dict[Key, float]:
        try:
            url = f"http://{address}{_PAGE}"
            with urllib.request.urlopen(url, timeout=SCRAPE_TIMEOUT_S) as answer:
                text = answer.read().decode()
        except (OSError, urllib.error.URLError):
            return {}
        values: dict[Key, float] = defaultdict(float)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = _METRICS.get(sample.name)
                if name is not None and sample.labels.get("job") == self._job:
                    values[sample.labels["task"], name] += sample.value
        return dict(values)
