"""The job files that we ship are valid, and every function that they name exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from onyx.api import peers_needed
from onyx.model.functions import function_names
from onyx.model.parsing.job import parse_manifest
from onyx.user_code.resolve import Resolver

ROOT = Path(__file__).parents[3]
JOBS = sorted([*ROOT.glob("examples/*/*.yaml"), *ROOT.glob("benchmarks/jobs/*.yaml")])

WITHOUT_FUNCTIONS = {
    "benchmarks/jobs/c.yaml",
    "benchmarks/jobs/c-columns.yaml",
    "benchmarks/jobs/grouping.yaml",
    "benchmarks/jobs/spark-window.yaml",
    "examples/http/job.yaml",
    "examples/sql/drivers.yaml",
    "examples/sql/job.yaml",
    "examples/features/combined.yaml",
    "examples/features/depot.yaml",
    "examples/features/follows.yaml",
    "examples/features/kubernetes.yaml",
    "examples/features/partitioned.yaml",
    "examples/features/streams.yaml",
    "examples/nexmark/q3-columns.yaml",
    "examples/features/tags.yaml",
    "examples/joins/job.yaml",
}
"""They read, aggregate and write, or have SQL."""


@pytest.mark.parametrize("path", JOBS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_job_that_we_ship_is_valid(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = parse_manifest(path.read_text("utf-8"), str(path))
    names = {name for _, name in function_names(job)}
    for entry in job.catalog:
        names |= {entry.options[key] for key in ("stage", "fn") if key in entry.options}
        names |= {entry.spark_stage} - {None}
    assert names or path.stem.startswith("q0") or str(path.relative_to(ROOT)) in WITHOUT_FUNCTIONS
    monkeypatch.syspath_prepend(str(path.parent))
    resolver = Resolver(sorted({name.partition(":")[0] for name in names}))
    for name in names:
        resolver.resolve(name)


def test_the_folders_of_jobs_are_where_they_are_looked_for() -> None:
    folders = {path.parent.name for path in JOBS}
    assert folders == {
        "failures",
        "features",
        "flights",
        "hello",
        "http",
        "joins",
        "jobs",
        "nexmark",
        "redrive",
        "http-requests",
        "requests",
        "state",
        "sql",
        "windows",
    }


@pytest.mark.parametrize("name", ["job.yaml", "outliers.yaml", "windows.yaml"])
def test_the_flights_jobs_fit_four_processes_of_two_peers(name: str) -> None:
    job = parse_manifest((ROOT / "examples/flights" / name).read_text("utf-8"), name)
    assert sum(peers_needed(job).values()) <= 8
