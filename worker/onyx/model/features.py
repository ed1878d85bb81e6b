"""What parses but cannot be run by this version: said before the job is submitted.

The information model is complete before the engine is. A job that uses what does not exist yet is
refused as a whole, with all reasons, rather than run without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from onyx.errors import Problem
from onyx.model.job import Job
from onyx.model.names import yaml_key

_LATER = "this version cannot run it yet"


def unsupported(job: Job) -> tuple[Problem, ...]:
    """Everything in `job` that this version's runtime refuses; empty when it can run."""
    return tuple(_found(job))


def _found(job: Job) -> Iterator[Problem]:
    if job.guarantee == "exactly-once":
        yield Problem("spec.guarantee", f"is exactly-once, but {_LATER}", "use at-least-once")
    for index, _ in enumerate(job.windows):
        yield Problem(f"spec.windows[{index}]", f"is a window, but {_LATER}", "remove it")
    for index, _ in enumerate(job.triggers):
        yield Problem(f"spec.triggers[{index}]", f"is a trigger, but {_LATER}", "remove it")
    for index, entry in enumerate(job.catalog):
        if entry.type == "reduce":
            yield Problem(f"spec.catalog[{index}].type", f"is reduce, but {_LATER}", "remove it")
        for attribute in ("assign_watermark_fn", "watermark_key"):
            if getattr(entry, attribute) is not None:
                yield Problem(
                    f"spec.catalog[{index}].{yaml_key(attribute)}",
                    f"assigns watermarks, but {_LATER}",
                    "remove it",
                )
