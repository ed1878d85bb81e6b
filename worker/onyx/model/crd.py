"""The custom resource definition of OnyxJob, from the information model.

The API server then refuses most mistakes without a webhook: unknown keys are pruned or refused,
types, bounds and choices hold, and the table's "required for" and "allowed for" become CEL rules.
Rules over the graph cost too much in CEL and stay with the engine's parser, which the operator runs
anyway. Pod settings are not inlined (that is what makes other operators' CRDs 600 KB large).
"""

from __future__ import annotations

from typing import Any

import yaml

from onyx.model import crd_status
from onyx.model.information import API_VERSION, KIND, SPEC
from onyx.model.kinds import Schema
from onyx.model.names import JOB_NAME
from onyx.model.schema import Entries, Entry, Key, Section

GROUP, VERSION = API_VERSION.split("/")
PLURAL = "onyxjobs"

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
            "status": crd_status.schema(),
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
