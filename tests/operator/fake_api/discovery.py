"""The pages by which clients learn what is served: /api, /apis, one page a version, /version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.operator.fake_api.kinds import Kind

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def page(path: str, kinds: Iterable[Kind]) -> dict[str, Any] | None:
    """The discovery page at this path; None if there is none."""
    known = sorted(kinds, key=lambda kind: (kind.group, kind.plural))
    parts = path.strip("/").split("/")
    match parts:
        case ["version"]:
            return {"major": "1", "minor": "36", "gitVersion": "v1.36.0-fake"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = sorted({(kind.group, kind.version) for kind in known if kind.group})
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(group, version) for group, version in groups],
            }
        case ["apis", group]:
            versions = [kind.version for kind in known if kind.group == group]
            if versions:
                return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions[0])}
        case ["api", "v1"]:
            return _resources("v1", [kind for kind in known if not kind.group])
        case ["apis", group, version]:
            found = [kind for kind in known if (kind.group, kind.version) == (group, version)]
            if found:
                return _resources(f"{group}/{version}", found)
    return None


def _group(group: str, version: str) -> dict[str, Any]:
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def _resources(group_version: str, kinds: list[Kind]) -> dict[str, Any]:
    listed: list[dict[str, Any]] = []
    for kind in kinds:
        own = {"name": kind.plural, "namespaced": kind.namespaced, "kind": kind.kind}
        listed.append(
            {
                **own,
                "singularName": kind.kind.lower(),
                "verbs": VERBS,
                "shortNames": list(kind.short_names),
                "categories": list(kind.categories),
            }
        )
        listed += [
            {
                **own,
                "name": f"{kind.plural}/{each}",
                "singularName": "",
                "verbs": ["get", "patch", "update"],
                **(
                    {"group": "autoscaling", "version": "v1", "kind": "Scale"}
                    if each == "scale"
                    else {}
                ),
            }
            for each in kind.subresources
        ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": listed,
    }
