"""What parses but does not run yet."""

from __future__ import annotations

from dataclasses import replace

from onyx.model.features import unsupported
from onyx.model.job import CatalogEntry, Job, Trigger, Window

READ = CatalogEntry("read", "input", 10, plugin="generator")
WRITE = CatalogEntry("write", "output", 10, plugin="stdout")
PLAIN = Job("plain", (("read", "write"),), (READ, WRITE))


def paths(job: Job) -> list[str]:
    return [problem.path for problem in unsupported(job)]


def test_a_plain_job_runs() -> None:
    assert unsupported(PLAIN) == ()
    assert unsupported(replace(PLAIN, guarantee="at-most-once")) == ()
    for scheduler in ("balanced", "percentage", "colocated"):
        assert unsupported(replace(PLAIN, task_scheduler=scheduler)) == ()


def test_what_cannot_run_yet_is_told_by_its_path() -> None:
    job = replace(
        PLAIN,
        guarantee="exactly-once",
        windows=(Window("w", "write", "global", "count"),),
        triggers=(Trigger("w", "segment"),),
        catalog=(
            replace(READ, assign_watermark_fn="app:time"),
            replace(READ, name="again", watermark_key="at"),
            CatalogEntry("sums", "reduce", 10),
            WRITE,
        ),
    )
    assert paths(job) == [
        "spec.guarantee",
        "spec.windows[0]",
        "spec.triggers[0]",
        "spec.catalog[0].assignWatermarkFn",
        "spec.catalog[1].watermarkKey",
        "spec.catalog[2].type",
    ]


def test_a_reason_says_what_to_do() -> None:
    (problem,) = unsupported(replace(PLAIN, guarantee="exactly-once"))
    assert str(problem) == (
        "spec.guarantee: is exactly-once, but this version cannot run it yet (use at-least-once)"
    )
