"""Tables: how `kubectl get` asks for objects, columns by the CRD's `additionalPrinterColumns`."""

from __future__ import annotations

from typing import Any

from tests.operator.fake_api.kinds import Kind
from tests.operator.fake_api.paths import value_at

_NAME = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def table(kind: Kind, items: list[dict[str, Any]], metadata: dict[str, Any]) -> dict[str, Any]:
    """Simple paths only (`.status.phase`); the age is the creation time, not a duration."""
    columns = kind.columns or (_AGE,)
    definitions = [
        {
            "name": column["name"],
            "type": column["type"],
            "format": column.get("format", ""),
            "description": column.get("description", ""),
            "priority": column.get("priority", 0),
        }
        for column in columns
    ]
    rows = [
        {
            "cells": [
                item["metadata"]["name"],
                *(value_at(item, column["jsonPath"]) for column in columns),
            ],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": item["metadata"],
            },
        }
        for item in items
    ]
    kept = {key: each for key, each in metadata.items() if key in ("resourceVersion", "continue")}
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": kept,
        "columnDefinitions": [_NAME, *definitions],
        "rows": rows,
    }
