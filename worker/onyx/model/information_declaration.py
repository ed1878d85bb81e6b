"""The table of the keys that stand beside the job in an OnyxJob; see `declaration`."""

from __future__ import annotations

from functools import partial

from onyx.model import names
from onyx.model.declaration import (
    CLUSTER_NAME_DEFAULT,
    Declaration,
    FailurePolicy,
    JobRef,
)
from onyx.model.keys.kinds import Choice, Count
from onyx.model.keys.kubernetes import Matching
from onyx.model.keys.section import Entry, Key, Section

RETRIES_MAX = 1_000
SECONDS_MAX = 31_536_000
"""One year."""

_key = partial(Key, era="ours")
_OBJECT = Matching(
    "the name of a Kubernetes object", r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", "lower case, digits, - ."
)

FAILURE_POLICY = Section(
    "failure policy",
    "What happens to a job that a failing task has killed.",
    (
        _key(
            "retries", Count(0, RETRIES_MAX, "times"),
            "How often the job is submitted again under a new id: from its beginning, or with "
            "upgradePolicy Resume from the state of the attempt before.",
            default=0,
        ),
        _key(
            "backoff_seconds", Count(0, SECONDS_MAX, "seconds"),
            "Wait before it is submitted again.",
            default=10,
        ),
    ),
    FailurePolicy,
)  # fmt: skip

JOB_REF = Section(
    "job reference",
    "Where a job file is that does not stand in the object.",
    (
        _key(
            "config_map", _OBJECT,
            "ConfigMap in the namespace of the job; give it a new name for a changed job.",
            required=True,
        ),
        _key(
            "key", Matching("a key of a ConfigMap", r"[-._a-zA-Z0-9]+"),
            "Key whose value is the job file, as `onyx run` takes it.",
            default="job.yaml",
        ),
    ),
    JobRef,
)  # fmt: skip

DECLARATION = Section(
    "declaration",
    "How Kubernetes' operator runs the job. Other commands check these keys and ignore them.",
    (
        _key(
            "desired_state", Choice(("Running", "Suspended", "Stopped")),
            "Suspended takes its peers from the job and keeps all it has done. Stopped lets it "
            "read nothing new and complete what is pending; it cannot be resumed after that.",
            default="Running",
        ),
        _key(
            "restart_nonce", Count(0),
            "Another number runs the job again from its beginning, under a new id.",
            default=0,
        ),
        _key(
            "upgrade_policy", Choice(("Drain", "Resume")),
            "What becomes of a job whose spec is edited. Drain lets it complete what it has begun, "
            "and the new one begins from the beginning. Resume ends it, and the new one goes on "
            "from its state, as `onyx submit --resume` does; so does a retry.",
            default="Drain",
            restriction="Resume is not for guarantee at-most-once.",
        ),
        _key(
            "ttl_seconds_after_finished", Count(0, SECONDS_MAX, "seconds"),
            "Time after which an object whose job has ended is deleted; never without it.",
        ),
        _key(
            "failure_policy", Entry(FAILURE_POLICY),
            "What happens when a failing task has killed the job.",
            default=FailurePolicy(),
        ),
        _key(
            "cluster_ref", Matching("the name of a cluster", names.CLUSTER_NAME),
            "OnyxCluster in the same namespace whose workers run the job.",
            default=CLUSTER_NAME_DEFAULT,
            restriction="Cannot be changed.",
        ),
        _key(
            "job_ref", Entry(JOB_REF),
            "A job file in a ConfigMap instead of the keys of the job.",
            restriction="Not together with keys of the job.",
        ),
    ),
    Declaration,
)  # fmt: skip
