"""How an OnyxJob's owner wants it to be run: what stands in the manifest beside the job itself.

Read by the Kubernetes operator; `onyx run` and `onyx submit` check it and ignore it. None of it is
part of the job: it is neither in the job's hash nor stored for the peers, so that suspending a job
does not make another one of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DesiredState = Literal["Running", "Suspended", "Stopped"]
UpgradePolicy = Literal["Drain", "Resume"]
CLUSTER_NAME_DEFAULT = "onyx"


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """What happens to a job that a failing task has killed."""

    retries: int = 0
    backoff_seconds: int = 10


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job file in a ConfigMap, for jobs that are too large for an object of Kubernetes."""

    config_map: str
    key: str = "job.yaml"


@dataclass(frozen=True, slots=True)
class Declaration:
    """Valid by construction, with a `Job` or, in place of it, `job_ref`."""

    desired_state: DesiredState = "Running"
    restart_nonce: int = 0
    ttl_seconds_after_finished: int | None = None
    failure_policy: FailurePolicy = FailurePolicy()
    cluster_ref: str = CLUSTER_NAME_DEFAULT
    job_ref: JobRef | None = None
    upgrade_policy: UpgradePolicy = "Drain"
