"""Keys of a catalog entry that may change while its job runs, without a new allocation.

They say how fast a task works and how much it keeps in flight, and nothing of what comes out. A
value is an integer, and 0 stands for a key that is left out: no key has a smaller one that means
anything else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from onyx.base.structs import fields
from onyx.ids import TaskName
from onyx.model.canonical import canonical_json
from onyx.model.job import CatalogEntry, Job
from onyx.model.limits import NOTHING_DECLARED
from onyx.model.names import yaml_key

FIELDS = (
    "batch_size", "batch_timeout", "max_pending", "pending_timeout", "checkpoint_segments",
    "segments_per_second_max",
)  # fmt: skip
KEYS: Mapping[str, str] = {yaml_key(name): name for name in FIELDS}
"""The fields by their keys in a manifest."""
Values = Mapping[str, int]
"""Values by keys; 0 for the default."""

_DEFAULTS: Mapping[str, Any] = {
    each.name: each.default for each in fields(CatalogEntry) if each.name in FIELDS
}


def declared(job: Job) -> dict[TaskName, dict[str, int]]:
    """What a manifest gives of these keys, by task. Spark splits its work by itself: there they
    belong to the job as all others do."""
    if job.engine == "spark":
        return {}
    found = {TaskName(entry.name): _given(entry) for entry in job.catalog}
    return {task: values for task, values in found.items() if values}


def fingerprint(job: Job) -> str:
    """Text that is equal for jobs whose manifests give these keys the same values."""
    given = declared(job)
    if not given:
        return NOTHING_DECLARED
    return hashlib.sha256(canonical_json(given)).hexdigest()[:32]


def without(job: Job) -> Job:
    """The job with none of these keys: equal for manifests that differ in nothing else."""
    if job.engine == "spark":
        return job
    return replace(job, catalog=tuple(replace(each, **_DEFAULTS) for each in job.catalog))


def with_options(job: Job, options: Mapping[TaskName, Values], complete: bool) -> Job:
    """The job as it runs with values that were set.

    Args:
        complete: they are all that hold, whatever the manifest gives.
    """
    if complete:
        job = without(job)
    if not options:
        return job
    return replace(
        job, catalog=tuple(_with(each, options.get(TaskName(each.name))) for each in job.catalog)
    )


def differences(before: Job, now: Job) -> dict[str, dict[str, int | None]]:
    """The keys that have other values now, by task; None for a key that is left out."""
    found = {
        entry.name: {
            key: getattr(now.entry(entry.name), name)
            for key, name in KEYS.items()
            if getattr(now.entry(entry.name), name) != getattr(entry, name)
        }
        for entry in before.catalog
    }
    return {task: values for task, values in found.items() if values}


def _given(entry: CatalogEntry) -> dict[str, int]:
    values = {key: getattr(entry, name) for key, name in KEYS.items()}
    return {key: value for key, value in values.items() if value != _DEFAULTS[KEYS[key]]}


def _with(entry: CatalogEntry, values: Values | None) -> CatalogEntry:
    if not values:
        return entry
    known = {KEYS[key]: value for key, value in values.items() if key in KEYS}
    changed: dict[str, Any] = {name: value or _DEFAULTS[name] for name, value in known.items()}
    return replace(entry, **changed)
