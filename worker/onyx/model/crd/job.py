"""The custom resource definition of OnyxJob, derived from the fields of `Job` and `Declaration`.

The API server then refuses most mistakes without a webhook: unknown keys are pruned or refused,
types, bounds and choices hold, and `required_for` and `allowed_for` of keys become CEL rules, where
a key has a type that CEL knows.
Rules over the graph cost too much in CEL and stay with the engine's parser, which the operator runs
anyway. Pod settings are not inlined (that is what makes other operators' CRDs 600 KB large).
"""

from __future__ import annotations

from typing import Any

from onyx.model.crd import status as crd_status
from onyx.model.crd.parts import column, resource, root, validations
from onyx.model.keys.key import Key
from onyx.model.keys.kinds import Schema
from onyx.model.keys.section import Section, SectionEntries, SectionEntry
from onyx.model.manifest import API_VERSION, JOB_KIND, OBJECT_SPEC
from onyx.model.names import JOB_NAME

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
_SOURCE_RULES = (
    ("has(self.catalog) != has(self.jobRef)", "give either catalog, or jobRef"),
    ("!has(self.workflow) || has(self.catalog)", "workflow is given without catalog"),
)
_EXTRA_RULES = {"": _SOURCE_RULES, "catalog": _PEER_RULES}
_SAME_CLUSTER = ("self == oldSelf", "a job cannot move to another cluster: create another job")


def definition() -> dict[str, Any]:
    """The whole resource, ready to be written as YAML."""
    name_rule = (
        f"self.metadata.name.matches('^{JOB_NAME}$')",
        "the name of a job has lower case letters, digits and -, at most 63",
    )
    spec = _with_rules(OBJECT_SPEC, SectionEntry(OBJECT_SPEC).schema(), "")
    spec["properties"]["clusterRef"]["x-kubernetes-validations"] = validations([_SAME_CLUSTER])
    schema = root("A job of Onyx, as plain data.", spec, crd_status.schema(), name_rule)
    version = {
        "subresources": {"status": {}},
        "additionalPrinterColumns": _columns(),
        "selectableFields": [{"jsonPath": ".status.phase"}],
        "schema": {"openAPIV3Schema": schema},
    }
    return resource(JOB_KIND, "oj", API_VERSION, version)


def _with_rules(section: Section, schema: Schema, yaml_key: str) -> Schema:
    """Add the CEL rules of a section, and of the sections in it."""
    rules = [*_type_rules(section), *_EXTRA_RULES.get(yaml_key, ())]
    if rules:
        schema["x-kubernetes-validations"] = validations(rules)
    for key in section.keys:
        if isinstance(key.kind, SectionEntries):
            property_schema = schema["properties"][key.yaml]
            _with_rules(key.kind.section, property_schema["items"], key.yaml)
    return schema


def _type_rules(section: Section) -> list[tuple[str, str]]:
    rules = []
    # What has no type gets one by the parser.
    typed = "" if any(_is_mandatory_type(key) for key in section.keys) else "!has(self.type) || "
    for key in section.keys:
        if not _visible_to_cel(key):
            continue
        if key.required_for and not key.filled:
            types = _listed(key.required_for)
            given = " || ".join(f"has(self.{each})" for each in _alternatives(key))
            rules.append(
                (
                    f"{typed}!(self.type in {types}) || {given}",
                    f"{' or '.join(_alternatives(key))} is needed for type "
                    f"{', '.join(key.required_for)}",
                )
            )
        if key.allowed_for:
            types = _listed(key.allowed_for)
            rules.append(
                (
                    f"{typed}!has(self.{key.yaml}) || self.type in {types}",
                    f"{key.yaml} is only for type {', '.join(key.allowed_for)}",
                )
            )
    return rules


def _is_mandatory_type(key: Key) -> bool:
    return key.yaml == "type" and key.is_mandatory


def _alternatives(key: Key) -> tuple[str, ...]:
    """The key and what may be given instead."""
    return (key.yaml, *key.unless)


def _visible_to_cel(key: Key) -> bool:
    return "type" in key.kind.schema()


def _listed(words: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"


def _columns() -> list[dict[str, Any]]:
    return [
        column("Phase", "string", ".status.phase"),
        column("Peers", "integer", ".status.peers.allocated"),
        column("Progress", "integer", ".status.progress.completed"),
        column("Lag", "string", ".status.lag.text"),
        column("Reason", "string", ".status.reason"),
        column("Cluster", "string", ".spec.clusterRef"),
        column("Age", "date", ".metadata.creationTimestamp"),
        column("Rate", "integer", ".status.lag.segmentsPerSecond", priority=1),
        column("Engine", "string", ".spec.engine", priority=1),
        column("Job", "string", ".status.jobId", priority=1),
        column("Message", "string", ".status.message", priority=1),
    ]
