"""Submissions by what differs between tasks, for tests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from onyx.replica.commands import SubmitJob
from onyx.replica.spec import JobSpec, TaskSpec


def submit_job(id: str = "j", tasks: str | Iterable[str] = "a", **more: Any) -> SubmitJob:
    """See `job_spec`."""
    return SubmitJob(id=id, spec=job_spec(tasks, **more))


def job_spec(
    tasks: str | Iterable[str],
    *,
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
    windowed: Iterable[str] = (),
    exempt_tasks: Iterable[str] = (),
    task_saturation: Mapping[str, float | None] | None = None,
    min_required_peers: Mapping[str, int] | None = None,
    flux_policies: Mapping[str, str] | None = None,
    required_tags: Mapping[str, Iterable[str]] | None = None,
    task_percentages: Mapping[str, int] | None = None,
    saturation: float | None = None,
    task_scheduler: str = "balanced",
    **more: Any,
) -> JobSpec:
    """`more` are other fields of `JobSpec`; a limit of None or infinity is none."""
    names = tasks.split() if isinstance(tasks, str) else tuple(tasks)
    return JobSpec(
        tasks=tuple(
            TaskSpec(
                name=name,
                input=name in inputs,
                output=name in outputs,
                windowed=name in windowed,
                min_peers=(min_required_peers or {}).get(name, 1),
                max_peers=limit((task_saturation or {}).get(name)),
                percentage=(task_percentages or {}).get(name),
                flux_policy=(flux_policies or {}).get(name),
                required_tags=tuple((required_tags or {}).get(name, ())),
                acker_exempt=name in exempt_tasks,
            )
            for name in names
        ),
        task_scheduler=task_scheduler,
        max_peers=limit(saturation),
        **more,
    )


def limit(number: float | None) -> int | None:
    """A number of peers without limit is None."""
    return None if number is None or math.isinf(float(number)) else int(number)
