"""The job files that we ship are valid, and every function that they name exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from onyx.model.functions import function_names
from onyx.model.parse import parse_manifest
from onyx.resolve import Resolver

ROOT = Path(__file__).parents[3]
JOBS = {
    "examples/flights/job.yaml": "flights",
    "examples/hello/job.yaml": "hello",
    "benchmarks/jobs/a.yaml": "bench_tasks",
    "benchmarks/jobs/a-routed.yaml": "bench_tasks",
    "benchmarks/jobs/latency.yaml": "bench_probe",
    "benchmarks/jobs/memory.yaml": "bench_probe",
    "benchmarks/jobs/trivial.yaml": "bench_probe",
}


@pytest.mark.parametrize(("path", "module"), JOBS.items())
def test_a_job_that_we_ship_is_valid(
    path: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = parse_manifest((ROOT / path).read_text("utf-8"), path)
    monkeypatch.syspath_prepend(str((ROOT / path).parent))
    resolver = Resolver((module,))
    for entry in job.catalog:
        if "stage" in entry.options:
            resolver.resolve(entry.options["stage"])
    names = {name for _, name in function_names(job)}
    assert names
    for name in names:
        resolver.resolve(name)


def test_every_job_file_is_tested() -> None:
    found = [*ROOT.glob("examples/*/job.yaml"), *ROOT.glob("benchmarks/jobs/*.yaml")]
    assert {str(path.relative_to(ROOT)) for path in found} == set(JOBS)


def test_the_flights_job_fits_four_processes_of_two_peers() -> None:
    job = parse_manifest((ROOT / "examples/flights/job.yaml").read_text("utf-8"), "job.yaml")
    assert sum(entry.min_peers or entry.n_peers or 1 for entry in job.catalog) <= 8
