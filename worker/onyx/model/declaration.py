"""How an OnyxJob's owner wants it to be run: what stands in the manifest beside the job itself.

The operator reads it; `onyx run` and `onyx submit` check it and warn that it has no effect. It is
no part of the job: neither in its hash nor stored for the peers, so that suspending a job does not
create another one.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from onyx.model import names
from onyx.model.keys.key import Key
from onyx.model.keys.kinds import Integer
from onyx.model.keys.kubernetes import Matching

DesiredState = Literal["Running", "Suspended", "Stopped"]
UpgradePolicy = Literal["Drain", "KeepState"]
CLUSTER_NAME_DEFAULT = "onyx"
RETRIES_MAX = 1_000
SECONDS_MAX = 31_536_000
"""One year."""

_OBJECT = Matching(
    "the name of a Kubernetes object", r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", "lower case, digits, - ."
)


class FailurePolicy(msgspec.Struct, frozen=True):
    """What happens after a failing task has killed the job."""

    retries: Annotated[int, Integer(0, RETRIES_MAX, "times")] = 0
    """How often the job is submitted again, under a new id: from the beginning or, with
    upgradePolicy KeepState, with the state of the previous attempt."""
    backoff_seconds: Annotated[int, Integer(0, SECONDS_MAX, "seconds")] = 10
    """Delay before the job is submitted again."""


class JobRef(msgspec.Struct, frozen=True):
    """A job file in a ConfigMap, for jobs that are too large for a Kubernetes object."""

    config_map: Annotated[str, _OBJECT]
    """ConfigMap in the namespace of the job. A changed job needs a new name here."""
    key: Annotated[str, Matching("a key of a ConfigMap", "[-._a-zA-Z0-9]+")] = "job.yaml"
    """Key of the ConfigMap whose value is the job file."""


class Declaration(msgspec.Struct, frozen=True):
    """How the operator runs the job on Kubernetes. `onyx run` and `onyx submit` warn that these
    keys have no effect."""

    desired_state: DesiredState = "Running"
    """`Suspended`: the job has no peers, and keeps its progress and state. `Stopped`: the job reads
    nothing new, completes its in-flight segments and ends; it cannot be resumed."""
    restart_nonce: Annotated[int, Integer(0)] = 0
    """A new number runs the job again from the beginning, under a new id."""
    upgrade_policy: Annotated[
        UpgradePolicy,
        Key(
            restriction="KeepState is neither for guarantee at-most-once nor, over inputs with an "
            "end, for engine spark."
        ),
    ] = "Drain"
    """What happens when the spec is edited. `Drain`: the old job completes its in-flight segments
    and ends, and the new job starts from the beginning. `KeepState`: the new job upgrades the old
    one, whose state is carried over, as with `onyx submit --upgrade`; so does a retry."""
    ttl_seconds_after_finished: Annotated[int | None, Integer(0, SECONDS_MAX, "seconds")] = None
    """Time after which the object of a finished job is deleted; by default it stays."""
    failure_policy: FailurePolicy = FailurePolicy()
    """What happens after a failing task has killed the job."""
    cluster_ref: Annotated[
        str,
        Matching("the name of a cluster", names.CLUSTER_NAME),
        Key(restriction="Cannot be changed."),
    ] = CLUSTER_NAME_DEFAULT
    """OnyxCluster in the same namespace whose workers run the job."""
    job_ref: Annotated[JobRef | None, Key(restriction="Not together with keys of the job.")] = None
    """A job file in a ConfigMap, in place of the keys of the job."""
