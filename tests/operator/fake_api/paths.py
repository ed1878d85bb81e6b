"""Paths: of requests to what they ask for, and of fields within objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_OF_NAMESPACES = {"status", "finalize"}


@dataclass(frozen=True)
class Target:
    """What a request is about, in the words of RBAC; empty where it says nothing."""

    verb: str
    group: str
    version: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def target_of(method: str, path: str, *, watch: bool) -> Target | None:
    """What this request is about; None for a path that names no resource."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    resource, name, subresource = (*rest, "", "")[:3]
    return Target(
        _verb(method, name, watch=watch), group, version, resource, subresource, namespace, name
    )


def _verb(method: str, name: str, *, watch: bool) -> str:
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    if method in VERBS:
        return VERBS[method]
    return "get" if name else "watch" if watch else "list"


def value_at(value: Any, path: str) -> Any:
    """The value at a path such as `.spec.replicas`; None where there is none."""
    for part in path.strip(".").split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value


def put_at(value: dict[str, Any], path: str, new: Any) -> None:
    """Set the value at a path such as `.spec.replicas`, making the objects on the way."""
    *parents, last = path.strip(".").split(".")
    for part in parents:
        value = value.setdefault(part, {})
    value[last] = new
