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
    """The whole status."""
    return object_of(
        "What became of the job; written by the operator.",
        phase={**text("Where the job is in its life."), "enum": list(PHASES)},
        reason=text("Why, in one word."),
        message=text("Why, in a sentence."),
        observedGeneration=integer("Generation of the spec that this is about."),
        jobId=text("Id of the job in the log; written before the job is submitted."),
        jobHash=text("SHA-256 of the canonical form of the job with this id."),
        restartNonce=integer("The restartNonce of the job with this id."),
        attempt=integer(
            "How often a job was submitted before this one: of this spec after failures, and with "
            "upgradePolicy KeepState of earlier specs."
        ),
        firstAttempt=integer("The attempt with which this spec began; those after it are retries."),
        upgradedFrom=object_of(
            "The old job that this one upgrades.",
            jobId=text("Its id in the log."),
            jobHash=text("Its jobHash."),
            restartNonce=integer("Its restartNonce."),
            attempt=integer("Its attempt."),
            firstAttempt=integer("Its firstAttempt."),
        ),
        submittedAt={**text("When the job was submitted."), "format": "date-time"},
        finishedAt={**text("When the job was seen to have ended."), "format": "date-time"},
        logPosition=integer("Position of the last log entry that this is about."),
        peers=object_of(
            "Peers of the job.",
            allocated=integer("Peers that work on it."),
            required=integer("Peers that it needs to start."),
        ),
        progress=object_of(
            "How far the inputs are, after the frontiers of their partitions.",
            completed=integer("Segments read that are completely processed; a lower bound."),
            partitions=integer("Partitions of the sources."),
            exhausted=integer("Partitions that are processed to their end."),
        ),
        tasks=_tasks(),
        conditions=conditions(", ".join(CONDITIONS[:-1]) + f" or {CONDITIONS[-1]}"),
    )


def _tasks() -> Schema:
    item = object_of("A task.", name=text("Its name."), peers=integer("Peers on it."))
    return {
        "description": f"Peers by task; of the first {TASKS_MAX} tasks.",
        "type": "array",
        "maxItems": TASKS_MAX,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {**item, "required": ["name"]},
    }
