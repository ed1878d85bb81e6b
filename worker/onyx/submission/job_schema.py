"""The JSON Schema of a job file, from which an editor completes keys and explains them.

It is made of the fields of `Job` and of the options of the plugins, as the CRD is. It says what a
file may hold and not what a job means: rules between keys stay with the parser, so a file that an
editor takes may still be refused by `onyx validate`, and none that is valid is marked.

Rejected: a schema in the repository, which would be another version than the Onyx that is
installed; and the schema of the CRD, which knows no options of plugins and takes unknown keys.
"""

from __future__ import annotations

from typing import Any

import msgspec

from onyx.base.on_demand import loaded
from onyx.model.keys.kinds import Schema
from onyx.model.keys.section import SectionEntry
from onyx.model.manifest import API_VERSION, JOB_KIND, OBJECT_SPEC
from onyx.model.names import JOB_NAME
from onyx.model.plugins import NAMES, PLUGINS

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_OF_KUBERNETES = "x-kubernetes-"
_OPEN = "x-kubernetes-preserve-unknown-fields"
_REF = "#/$defs/{name}"


def job_schema() -> Schema:
    """The schema, with the text of each key as its description."""
    spec = _of_a_file(SectionEntry(OBJECT_SPEC).schema())
    definitions: dict[str, Schema] = {}
    entry = spec["properties"]["catalog"]["items"]
    entry["allOf"] = [_options_of(name, definitions) for name in NAMES]
    metadata = {"name": {"type": "string", "pattern": f"^{JOB_NAME}$"}}
    return {
        "$schema": DRAFT,
        "title": "A job of Onyx",
        "type": "object",
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": JOB_KIND},
            "metadata": {"type": "object", "properties": metadata},
            "spec": spec,
        },
        "required": ["spec"],
        "additionalProperties": False,
        "$defs": definitions,
    }


def _of_a_file(schema: Any) -> Any:
    """The schema of a part of a custom resource, without what only Kubernetes knows; a mapping
    takes the keys that it lists and no other."""
    if isinstance(schema, list):
        return [_of_a_file(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _of_a_file(value)
        for key, value in schema.items()
        if not key.startswith(_OF_KUBERNETES)
    }
    if isinstance(schema.get("properties"), dict) and _OPEN not in schema:
        kept.setdefault("additionalProperties", False)
    return kept


def _options_of(plugin: str, definitions: dict[str, Schema]) -> Schema:
    """What the options of a plugin are, in either direction, because a file need not say which.
    Others are taken too: those that `params` names are the function's."""
    properties: dict[str, list[Schema]] = {}
    for row in PLUGINS:
        if row.name != plugin:
            continue
        (made,), parts = msgspec.json.schema_components([loaded(row.options)], ref_template=_REF)
        definitions.update(parts)
        own = definitions.pop(made["$ref"].rpartition("/")[2])
        for key, value in own["properties"].items():
            if value not in properties.setdefault(key, []):
                properties[key].append(value)
    options = {
        key: values[0] if len(values) == 1 else {"anyOf": values}
        for key, values in properties.items()
    }
    return {
        "if": {"properties": {"plugin": {"const": plugin}}, "required": ["plugin"]},
        "then": {"properties": {"options": {"properties": options}}},
    }
