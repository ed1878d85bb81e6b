"""Parts that the definitions of all our custom resources are made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from onyx.model.keys.kinds import Schema
from onyx.model.manifest import FORMER_VERSIONS

Rule = tuple[str, str]
"""An expression of CEL, and what to say when it does not hold."""

_HEAD = "# Generated from worker/onyx/model by `python -m onyx.model.generate`; do not edit.\n"


def resource(
    kind: str, short_name: str, api_version: str, version: dict[str, Any]
) -> dict[str, Any]:
    """A custom resource definition of one schema.

    Objects that are stored under a former version are read under the one of now, whose keys are the
    same, and are stored under that when they are written next. Without the former one in it the API
    server would refuse the definition while there are such objects.

    Args:
        kind: such as OnyxJob; the other names follow from it.
        version: schema, subresources and columns.
    """
    group, name = api_version.split("/")
    plural = f"{kind.lower()}s"
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": [short_name],
        "categories": ["onyx"],
    }
    old = {
        "deprecated": True,
        "deprecationWarning": f"write {api_version} in place of this apiVersion",
    }
    versions = [{"name": name, "served": True, "storage": True, **version}]
    versions += [
        {"name": former.split("/")[1], "served": True, "storage": False, **old, **version}
        for former in FORMER_VERSIONS
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": versions},
    }


def root(description: str, spec: Schema, status: Schema, *rules: Rule) -> Schema:
    """The schema of a whole object; `rules` may look at its metadata.name."""
    return {
        "description": description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        "x-kubernetes-validations": validations(rules),
    }


def validations(rules: Iterable[Rule]) -> list[dict[str, str]]:
    """CEL rules in the form of a CRD."""
    return [{"rule": rule, "message": message} for rule, message in rules]


def column(name: str, kind: str, path: str, priority: int = 0) -> dict[str, Any]:
    """What `kubectl get` shows; with priority 1 only in `-o wide`."""
    shown = {"name": name, "type": kind, "jsonPath": path}
    return shown | ({"priority": priority} if priority else {})


def written(definition: dict[str, Any]) -> str:
    """The text of the file in `crds/`."""
    return _HEAD + yaml.dump(definition, Dumper=_Dumper, sort_keys=False, width=100)


class _Dumper(yaml.SafeDumper):
    """Block style without anchors, which some readers of CRDs do not take."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def object_of(description: str, **properties: Schema) -> Schema:
    """The schema of a mapping with these keys."""
    return {"description": description, "type": "object", "properties": properties}


def text(description: str) -> Schema:
    """The schema of a text."""
    return {"description": description, "type": "string"}


def integer(description: str) -> Schema:
    """The schema of an integer of 64 bits."""
    return {"description": description, "type": "integer", "format": "int64"}


def conditions(types: str) -> Schema:
    """The schema of the conditions of a status; `types` lists their names in words."""
    item = object_of(
        "A condition.",
        type=text(f"{types}."),
        status={**text("Whether it holds."), "enum": ["True", "False", "Unknown"]},
        reason=text("Reason, in one word."),
        message=text("Reason, in a sentence."),
        lastTransitionTime={**text("Time of the last change of status."), "format": "date-time"},
        observedGeneration=integer("Generation of the spec that this describes."),
    )
    return {
        "description": "Conditions, in the usual form of Kubernetes.",
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {**item, "required": ["type", "status"]},
    }
