"""The schema of an OnyxJob's status: what the operator writes and `kubectl get oj` shows."""

from __future__ import annotations

from onyx.model.crd_parts import conditions, integer, object_of, text
from onyx.model.kinds import Schema

PHASES = ("Pending", "Submitted", "Running", "Completed", "Killed", "Failed", "Invalid")


def schema() -> Schema:
    """The whole status."""
    return object_of(
        "What became of the job; written by the operator.",
        phase={**text("Where the job is in its life."), "enum": list(PHASES)},
        reason=text("Why, in one word."),
        message=text("Why, in a sentence."),
        observedGeneration=integer("Generation of the spec that this is about."),
        jobId=text("Id of the job in the log."),
        jobHash=text("SHA-256 of the job's canonical form."),
        logPosition=integer("Position of the last log entry that this is about."),
        peers=object_of(
            "Peers of the job.",
            allocated=integer("Peers that work on it."),
            required=integer("Peers that it needs to start."),
        ),
        progress=object_of(
            "Segments of the inputs.",
            completed=integer("Completely processed."),
            pending=integer("In progress."),
            retried=integer("Replayed."),
        ),
        tasks=_tasks(),
        conditions=conditions("Validated, Submitted, Allocated, Running or Completed"),
    )


def _tasks() -> Schema:
    item = object_of("A task.", name=text("Its name."), peers=integer("Peers on it."))
    return {
        "description": "Peers by task.",
        "type": "array",
        "maxItems": 256,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {**item, "required": ["name"]},
    }
