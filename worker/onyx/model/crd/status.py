"""The schema of an OnyxJob's status: what the operator writes and `kubectl get oj` shows."""

from __future__ import annotations

from onyx.model.crd.parts import conditions, integer, object_of, text
from onyx.model.keys.kinds import Schema

PHASES = (
    "Pending", "Submitted", "Waiting", "Running", "Suspended", "Draining", "Completed", "Stopped",
    "Killed", "Failed", "Invalid", "Unknown",
)  # fmt: skip
CONDITIONS = (
    "Validated",
    "ClusterReady",
    "Submitted",
    "Allocated",
    "Running",
    "Advancing",
    "Completed",
    "Failed",
)
TASKS_MAX = 200


def schema() -> Schema:
    """The schema of the whole status of an OnyxJob."""
    return object_of(
        "State of the job; written by the operator.",
        phase={**text("Phase of the job."), "enum": list(PHASES)},
        reason=text("Reason, in one word."),
        message=text("Reason, in a sentence."),
        observedGeneration=integer("Generation of the spec that this describes."),
        jobId=text("Id of the job in the log; written before the job is submitted."),
        jobHash=text("SHA-256 of the canonical form of the job with this id."),
        restartNonce=integer("The restartNonce of the job with this id."),
        attempt=integer(
            "Number of earlier submissions: of this spec after failures and, with upgradePolicy "
            "KeepState, of earlier specs."
        ),
        firstAttempt=integer("First attempt of this spec; later ones are retries."),
        upgradedFrom=object_of(
            "The old job that this one upgrades.",
            jobId=text("Its id in the log."),
            jobHash=text("Its jobHash."),
            restartNonce=integer("Its restartNonce."),
            attempt=integer("Its attempt."),
            firstAttempt=integer("Its firstAttempt."),
        ),
        savepoint=text("Place of the savepoint with which the job has begun."),
        submittedAt={**text("Time at which the job was submitted."), "format": "date-time"},
        finishedAt={
            **text("Time at which the operator saw that the job had ended."),
            "format": "date-time",
        },
        logPosition=integer("Position of the last log entry that this takes into account."),
        peers=object_of(
            "Peers of the job.",
            allocated=integer("Peers that work on the job."),
            required=integer("Peers that the job needs to start."),
        ),
        progress=object_of(
            "Progress of the inputs, by the frontiers of their partitions.",
            completed=integer("Segments that are completely processed; a lower bound."),
            partitions=integer("Partitions of the sources."),
            exhausted=integer("Partitions that are completely processed."),
        ),
        lag=_lag(),
        requests=_requests(),
        tasks=_tasks(),
        conditions=conditions(", ".join(CONDITIONS[:-1]) + f" or {CONDITIONS[-1]}"),
    )


def _lag() -> Schema:
    return object_of(
        "How far behind the job is, as its workers measure it; missing while not all of them "
        "answer. Renewed when a figure has changed by a tenth, twice a minute at most, and "
        "when the job has caught up.",
        text=text("Segments behind, or bytes where segments are not known, and seconds."),
        segments=integer("Segments that are there and not processed."),
        bytes=integer("Bytes that are there and not processed."),
        seconds=integer("Age of the oldest segment that is not processed."),
        segmentsPerSecond=integer("Segments a second that inputs read."),
        latencyMilliseconds=integer(
            "Within this time 99 % of the segments of a minute were processed, with all that "
            "follows from them."
        ),
        measuredAt={**text("Time of this measurement."), "format": "date-time"},
    )


def _requests() -> Schema:
    item = object_of(
        "An input.",
        task=text("Name of the task."),
        http=text("URL to which clients send requests."),
        grpc=text("Address to which clients send requests over gRPC."),
        tenancy=text("Tenancy that a client names beside the address."),
    )
    what = "Inputs that take requests, and where clients in the cluster find them."
    return _by_key(what, "task", item)


def _tasks() -> Schema:
    item = object_of(
        "A task.", name=text("Name of the task."), peers=integer("Peers that work on it.")
    )
    return _by_key(f"Peers of each task; only the first {TASKS_MAX} tasks.", "name", item)


def _by_key(description: str, key: str, item: Schema) -> Schema:
    return {
        "description": description,
        "type": "array",
        "maxItems": TASKS_MAX,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        "items": {**item, "required": [key]},
    }
