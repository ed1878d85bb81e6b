"""The custom resource definition of OnyxJob, from the information model.

The API server then refuses most mistakes without a webhook: unknown keys are pruned or refused,
types, bounds and choices hold, and the table's "required for" and "allowed for" become CEL rules.
Rules over the graph cost too much in CEL and stay with the engine's parser, which the operator runs
anyway. Pod settings are not inlined (that is what makes other operators' CRDs 600 KB large).
"""

from __future__ import annotations

from typing import Any

import yaml

from onyx.model.information import API_VERSION, KIND, SPEC
from onyx.model.kinds import Schema
from onyx.model.names import JOB_NAME
from onyx.model.schema import Entries, Entry, Key, Section

GROUP, VERSION = API_VERSION.split("/")
PLURAL = "onyxjobs"
PHASES = ("Pending", "Submitted", "Running", "Completed", "Killed", "Failed", "Invalid")

_PEER_RULES = (
    (
        "!has(self.nPeers) || (!has(self.minPeers) && !has(self.maxPeers))",
        "nPeers cannot be given together with minPeers or maxPeers",
    ),
    (
        "!has(self.minPeers) || !has(self.maxPeers) || self.minPeers <= self.maxPeers",
        "minPeers must not be above maxPeers",
    ),
)
_EXTRA_RULES = {"catalog": _PEER_RULES}


def definition() -> dict[str, Any]:
    """The whole resource, ready to be written as YAML."""
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": ["oj"],
        "categories": ["onyx"],
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": _columns(),
        "schema": {"openAPIV3Schema": _root()},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def text() -> str:
    """`crds/onyxjob.yaml`."""
    head = "# Generated from worker/onyx/model by `python -m onyx.model.generate`; do not edit.\n"
    return head + yaml.dump(definition(), Dumper=_Dumper, sort_keys=False, width=100)


class _Dumper(yaml.SafeDumper):
    """Block style without anchors, which some readers of CRDs do not take."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _root() -> Schema:
    return {
        "description": "A job of Onyx, as plain data.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _with_rules(SPEC, Entry(SPEC).schema(), ""),
            "status": _status(),
        },
        "x-kubernetes-validations": [
            {
                "rule": f"self.metadata.name.matches('^{JOB_NAME}$')",
                "message": "the name of a job has lower case letters, digits and -, at most 63",
            }
        ],
    }


def _with_rules(section: Section, schema: Schema, yaml_key: str) -> Schema:
    """Add the CEL rules of a section, and of the sections in it."""
    rules = [*_type_rules(section), *_EXTRA_RULES.get(yaml_key, ())]
    if rules:
        schema["x-kubernetes-validations"] = [
            {"rule": rule, "message": message} for rule, message in rules
        ]
    for key in section.keys:
        if isinstance(key.kind, Entries):
            property_schema = schema["properties"][key.yaml]
            _with_rules(key.kind.section, property_schema["items"], key.yaml)
    return schema


def _type_rules(section: Section) -> list[tuple[str, str]]:
    rules = []
    for key in section.keys:
        if not _visible_to_cel(key):
            continue
        if key.required_for:
            types = _listed(key.required_for)
            rules.append(
                (
                    f"!(self.type in {types}) || has(self.{key.yaml})",
                    f"{key.yaml} is needed for type {', '.join(key.required_for)}",
                )
            )
        if key.allowed_for:
            types = _listed(key.allowed_for)
            rules.append(
                (
                    f"!has(self.{key.yaml}) || self.type in {types}",
                    f"{key.yaml} is only for type {', '.join(key.allowed_for)}",
                )
            )
    return rules


def _visible_to_cel(key: Key) -> bool:
    return "type" in key.kind.schema()


def _listed(words: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"


def _columns() -> list[dict[str, Any]]:
    return [
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Peers", "type": "integer", "jsonPath": ".status.peers.allocated"},
        {"name": "Completed", "type": "integer", "jsonPath": ".status.progress.completed"},
        {"name": "Retried", "type": "integer", "jsonPath": ".status.progress.retried"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Job", "type": "string", "jsonPath": ".status.jobId", "priority": 1},
        {"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1},
    ]


def _object(description: str, **properties: Schema) -> Schema:
    return {"description": description, "type": "object", "properties": properties}


def _text(description: str) -> Schema:
    return {"description": description, "type": "string"}


def _integer(description: str) -> Schema:
    return {"description": description, "type": "integer", "format": "int64"}


def _status() -> Schema:
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
