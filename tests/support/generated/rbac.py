"""Rights as plain data: what requests need, and what rendered roles grant.

A right is exact: a namespace (empty for the whole cluster), a group, a resource with its
subresource, a verb, a name (empty for all objects). Wildcards are not understood, because a role of
ours has none.
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
    name: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}.{self.group}".rstrip(".") + where

    def wider(self) -> set[Right]:
        """This right, and those that contain it: for all objects, for the whole cluster."""
        return {
            self._replace(namespace=namespace, name=name)
            for namespace in (self.namespace, "")
            for name in (self.name, "")
        }


def right_of(target: Target, verb: str = "") -> Right:
    """The right that a request needs, or would need with another verb."""
    resource = "/".join(part for part in (target.resource, target.subresource) if part)
    verb = verb or target.verb
    # The API server does not know the name of what is to be created.
    name = "" if verb == "create" else target.name
    # A Role grants what is about its own namespace itself.
    itself = target.name if target.resource == "namespaces" else ""
    return Right(target.namespace or itself, target.group, resource, verb, name)


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
        Right(namespace, group, resource, verb, name)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", ("",))
    }


def covers(rights: Collection[Right], wanted: Right) -> bool:
    """Is this right among those, or one that contains it?"""
    return not wanted.wider().isdisjoint(rights)


def missing(rights: Collection[Right], wanted: Iterable[Right]) -> list[str]:
    """What is wanted and not granted, to be read."""
    return sorted(str(each) for each in wanted if not covers(rights, each))


def unused(rights: Iterable[Right], wanted: set[Right]) -> list[str]:
    """What is granted and was never wanted, to be read."""
    used = {wider for each in wanted for wider in each.wider()}
    return sorted(str(each) for each in rights if each not in used)
