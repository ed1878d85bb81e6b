"""The schema of an OnyxJob's status: what the operator writes and `kubectl get oj` shows."""

from __future__ import annotations

from onyx.model.kinds import Schema

PHASES = ("Pending", "Submitted", "Running", "Completed", "Killed", "Failed", "Invalid")


def _object(description: str, **properties: Schema) -> Schema:
    return {"description": description, "type": "object", "properties": properties}


def _text(description: str) -> Schema:
    return {"description": description, "type": "string"}


def _integer(description: str) -> Schema:
    return {"description": description, "type": "integer", "format": "int64"}


def schema() -> Schema:
    """The whole status."""
    return _object(
        "What became of the job; written by the operator.",
        phase={**_text("Where the job is in its life."), "enum": list(PHASES)},
        reason=_text("Why, in one word."),
        message=_text("Why, in a sentence."),
        observedGeneration=_integer("Generation of the spec that this is about."),
        jobId=_text("Id of the job in the log."),
        jobHash=_text("SHA-256 of the job's canonical form."),
        logPosition=_integer("Position of the last log entry that this is about."),
        peers=_object(
            "Peers of the job.",
            allocated=_integer("Peers that work on it."),
            required=_integer("Peers that it needs to start."),
        ),
        progress=_object(
            "Segments of the inputs.",
            completed=_integer("Completely processed."),
            pending=_integer("In progress."),
            retried=_integer("Replayed."),
        ),
        tasks=_tasks(),
        conditions=_conditions(),
    )


def _tasks() -> Schema:
    item = _object("A task.", name=_text("Its name."), peers=_integer("Peers on it."))
    return {
        "description": "Peers by task.",
        "type": "array",
        "maxItems": 256,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {**item, "required": ["name"]},
    }


def _conditions() -> Schema:
    item = _object(
        "One aspect of the job's state.",
        type=_text("Validated, Submitted, Allocated, Running or Completed."),
        status={**_text("Whether it holds."), "enum": ["True", "False", "Unknown"]},
        reason=_text("Why, in one word."),
        message=_text("Why, in a sentence."),
        lastTransitionTime={**_text("When it last changed."), "format": "date-time"},
        observedGeneration=_integer("Generation of the spec that this is about."),
    )
    return {
        "description": "Aspects of the job's state, in Kubernetes' usual form.",
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {**item, "required": ["type", "status"]},
    }
