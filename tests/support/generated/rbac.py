"""Rights as plain data: what requests need, and what rendered roles grant.

A right is exact: a namespace (empty for the whole cluster), a group, a resource with its
subresource, a verb. Wildcards are not understood, because a role of ours has none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from tests.operator.fake_api.http import Recorded
from tests.operator.fake_api.paths import Target

Object = Mapping[str, Any]


class Right(NamedTuple):
    namespace: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}.{self.group}".rstrip(".") + where


def right_of(target: Target, verb: str = "") -> Right:
    """The right that a request needs, or would need with another verb."""
    resource = "/".join(part for part in (target.resource, target.subresource) if part)
    return Right(target.namespace, target.group, resource, verb or target.verb)


def needed(requests: Iterable[Recorded]) -> set[Right]:
    """The rights without which these requests would have been refused."""
    found = set()
    for request in requests:
        found.add(right_of(request.target))
        if request.created:
            found.add(right_of(request.target, "create"))
    return found


def granted(objects: Iterable[Object], account: tuple[str, str]) -> set[Right]:
    """The rights of a service account, given as (namespace, name), by roles and their bindings."""
    known = list(objects)
    rules = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each[
            "rules"
        ]
        for each in known
        if each["kind"] in ("Role", "ClusterRole")
    }
    found: set[Right] = set()
    for binding in known:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        if account not in [(s.get("namespace"), s["name"]) for s in binding["subjects"]]:
            continue
        namespace = binding["metadata"].get("namespace", "")
        role = binding["roleRef"]
        where = namespace if role["kind"] == "Role" else ""
        for rule in rules[role["kind"], where, role["name"]]:
            found |= _rights(rule, namespace)
    return found


def _rights(rule: Mapping[str, Any], namespace: str) -> set[Right]:
    return {
        Right(namespace, group, resource, verb)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def covers(rights: Collection[Right], wanted: Right) -> bool:
    """Is this right among those, or among those for the whole cluster?"""
    return wanted in rights or wanted._replace(namespace="") in rights


def missing(rights: Collection[Right], wanted: Iterable[Right]) -> list[str]:
    """What is wanted and not granted, to be read."""
    return sorted(str(each) for each in wanted if not covers(rights, each))


def unused(rights: Iterable[Right], wanted: set[Right]) -> list[str]:
    """What is granted and was never wanted, to be read."""
    everywhere = {each._replace(namespace="") for each in wanted}
    return sorted(
        str(each) for each in rights if each not in (wanted if each.namespace else everywhere)
    )
