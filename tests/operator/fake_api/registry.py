"""What happens to an object when it is created, changed and deleted: the server's own rules.

Pure of HTTP: the server calls these methods with plain objects. Each write takes the same way: a
change of the old object is proposed, made fit (pruned, defaulted, fields that belong to the server
put back), checked, and stored unless it changes nothing or is a dry run.
"""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.operator.fake_api import apply, garbage
from tests.operator.fake_api.errors import (
    ApiError,
    already_exists,
    bad_request,
    conflict,
    invalid,
    modified,
    not_found,
)
from tests.operator.fake_api.kinds import BUILT_IN, Kind, kind_of_crd
from tests.operator.fake_api.schema import schema_of
from tests.operator.fake_api.store import Object, Store

Change = Callable[[Object], Object]
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_FREE_NAMES = {"roles", "rolebindings", "clusterroles", "clusterrolebindings"}
_KEPT = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_OWN_KEYS = {"apiVersion", "kind", "metadata", "status"}


@dataclass(frozen=True)
class Write:
    """How a write is to be done."""

    manager: str = "unknown"
    dry_run: bool = False
    strict: bool = False
    """Refuse unknown fields instead of dropping them."""


def timestamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Registry:
    """All kinds and their objects."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.store = Store()
        self.kinds: dict[tuple[str, str], Kind] = {kind.key: kind for kind in BUILT_IN}
        self._clock = clock
        for name in ("default", "kube-system"):
            body = {"metadata": {"name": name}}
            self.create(self.kinds["", "namespaces"], "", body, Write())

    def create(self, kind: Kind, namespace: str, body: Object, how: Write) -> Object:
        """Create an object. Raises ApiError: 400, 404 (no such namespace), 409, 422."""
        value = copy.deepcopy(body)
        _check_identity(kind, value, namespace, "")
        metadata = value["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        self._check_name(kind, metadata.get("name", ""))
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        with self.store.lock:
            self._check_namespace(kind, namespace)
            if self.store.get(kind, namespace, metadata["name"]):
                raise already_exists(kind, metadata["name"])
            for key in (*_KEPT, "managedFields"):
                metadata.pop(key, None)
            if kind.status:
                value.pop("status", None)
            metadata |= {
                "uid": str(uuid.uuid4()),
                "creationTimestamp": timestamp(self._clock()),
            }
            if kind.generation:
                metadata["generation"] = 1
            value = self._fit(kind, value, None, how)
            return self._store(kind, apply.updated(kind, None, value, how.manager, ""), how)

    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        subresource: str,
        change: Change,
        how: Write,
        *,
        applied: bool = False,
    ) -> Object:
        """Change an object (or its status). Raises ApiError: 400, 404, 409, 422.

        `applied`: the change is an apply and has told by itself who owns what.
        """
        with self.store.lock:
            old = self.get(kind, namespace, name)
            new = change(copy.deepcopy(old))
            _check_identity(kind, new, namespace, name)
            self._check_version(kind, old, new)
            new = self._fit(kind, _confined(kind, old, new, subresource), old, how)
            if not applied:
                new = apply.updated(kind, old, new, how.manager, subresource)
            if new == old:
                return old
            if kind.generation and _content(kind, new) != _content(kind, old):
                new["metadata"]["generation"] += 1
            if self._is_done(new):
                return new if how.dry_run else self._remove(kind, new)
            return self._store(kind, new, how)

    def apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        subresource: str,
        body: Object,
        force: bool,
        how: Write,
    ) -> tuple[Object, bool]:
        """Server-side apply; returns the object and whether it was created."""

        def change(old: Object) -> Object:
            return apply.apply(
                kind, old, body, manager=how.manager, force=force, subresource=subresource
            )

        with self.store.lock:
            if self.store.get(kind, namespace, name) or subresource:
                where = (kind, namespace, name, subresource)
                return self.update(*where, change, how, applied=True), False
            _check_identity(kind, body, namespace, name)
            new = copy.deepcopy(body)
            new["metadata"]["name"] = name
            created = self.create(kind, namespace, new, Write(how.manager, True, how.strict))
            del created["metadata"]["managedFields"]
            owners = {(how.manager, "Apply", ""): set(apply.leaves(body, kind.schema))}
            return self._store(kind, apply.with_owners(kind, created, owners), how), True

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        how: Write = Write(),
        *,
        propagation: str = "Background",
        uid: str = "",
        version: str = "",
    ) -> tuple[Object, bool]:
        """Delete an object; returns it and whether it is gone (False: finalizers hold it)."""
        with self.store.lock:
            old = self.get(kind, namespace, name)
            metadata = old["metadata"]
            if uid and uid != metadata["uid"]:
                raise conflict(kind, name, f"Precondition failed: UID in precondition: {uid}")
            if version and version != metadata["resourceVersion"]:
                raise modified(kind, name)
            if how.dry_run:
                return old, not metadata.get("finalizers")
            if propagation == "Orphan":
                garbage.orphan(self, metadata["uid"])
            if propagation == "Foreground":
                garbage.collect(self, metadata["uid"])
            if not metadata.get("finalizers"):
                return self._remove(kind, old), True
            if metadata.get("deletionTimestamp"):
                return old, False
            new = copy.deepcopy(old)
            new["metadata"] |= {
                "deletionTimestamp": timestamp(self._clock()),
                "deletionGracePeriodSeconds": 0,
            }
            if kind.generation:
                new["metadata"]["generation"] += 1
            return self.store.put(kind, new), False

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Raises ApiError (404)."""
        found = self.store.get(kind, namespace if kind.namespaced else "", name)
        if found is None:
            raise not_found(kind, name)
        return found

    def _fit(self, kind: Kind, new: Object, old: Object | None, how: Write) -> Object:
        new = {"apiVersion": kind.api_version, "kind": kind.kind, **new}
        metadata = new["metadata"]
        if kind.namespaced:
            metadata.setdefault("namespace", (old or {}).get("metadata", {}).get("namespace"))
        if old:
            for key in _KEPT:
                metadata.pop(key, None)
                if key in old["metadata"]:
                    metadata[key] = old["metadata"][key]
        for key in ("finalizers", "ownerReferences", "labels", "annotations", "managedFields"):
            if not metadata.get(key, True):
                del metadata[key]
        self._check_finalizers(kind, new, old)
        if kind.custom:
            self._check_schema(kind, new, old, how)
        return new

    def _check_schema(self, kind: Kind, new: Object, old: Object | None, how: Write) -> None:
        schema = schema_of(kind.schema)
        unknown = schema.prune(new)
        if unknown and how.strict:
            fields = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise bad_request(f"{kind.kind} in version {kind.version!r}: strict decoding: {fields}")
        schema.default(new)
        if causes := schema.causes(new, old):
            raise invalid(kind, new["metadata"]["name"], causes)

    def _check_finalizers(self, kind: Kind, new: Object, old: Object | None) -> None:
        if not old or not old["metadata"].get("deletionTimestamp"):
            return
        before = set(old["metadata"].get("finalizers", ()))
        if added := set(new["metadata"].get("finalizers", ())) - before:
            why = (
                "Forbidden: no new finalizers can be added if the object is being deleted, "
                f"found new finalizers {sorted(added)}"
            )
            raise invalid(kind, new["metadata"]["name"], [("metadata.finalizers", why)])

    def _check_version(self, kind: Kind, old: Object, new: Object) -> None:
        name, version = old["metadata"]["name"], new["metadata"].get("resourceVersion")
        if kind.custom and not version:
            why = "Invalid value: 0: must be specified for an update"
            raise invalid(kind, name, [("metadata.resourceVersion", why)])
        if version and version != old["metadata"]["resourceVersion"]:
            raise modified(kind, name)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new["metadata"].get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise conflict(kind, name, "Precondition failed: UID in precondition differs")

    def _check_name(self, kind: Kind, name: str) -> None:
        if not name:
            why = "Required value: name or generateName is required"
            raise invalid(kind, "", [("metadata.name", why)])
        if kind.plural not in _FREE_NAMES and (len(name) > 253 or not _NAME.fullmatch(name)):
            why = f"Invalid value: {name!r}: a lowercase RFC 1123 subdomain must consist of ..."
            raise invalid(kind, name, [("metadata.name", why)])

    def _check_namespace(self, kind: Kind, namespace: str) -> None:
        if not kind.namespaced:
            return
        namespaces = self.kinds["", "namespaces"]
        found = self.store.get(namespaces, "", namespace)
        if not found:
            raise not_found(namespaces, namespace)
        if found["metadata"].get("deletionTimestamp"):
            message = f"unable to create new content in namespace {namespace} because it is being "
            raise ApiError(403, "Forbidden", message + "terminated")

    def _is_done(self, value: Object) -> bool:
        metadata = value["metadata"]
        return "deletionTimestamp" in metadata and not metadata.get("finalizers")

    def _store(self, kind: Kind, value: Object, how: Write) -> Object:
        if how.dry_run:
            return value
        stored = self.store.put(kind, value)
        if kind.plural == "customresourcedefinitions":
            self._serve(kind, stored)
        if garbage.is_abandoned(self, stored):
            self._remove(kind, stored)
        return stored

    def _remove(self, kind: Kind, value: Object) -> Object:
        last = self.store.remove(kind, value)
        if kind.plural == "customresourcedefinitions":
            self.kinds.pop(kind_of_crd(value).key, None)
        if kind.plural == "namespaces":
            garbage.empty_namespace(self, value["metadata"]["name"])
        garbage.collect(self, value["metadata"]["uid"])
        return last

    def _serve(self, kind: Kind, crd: Object) -> None:
        """Serve the kind of a CRD from now on, and say so in its status."""
        custom = kind_of_crd(crd)
        self.kinds[custom.key] = custom
        if crd.get("status"):
            return
        conditions = [
            {
                "type": each,
                "status": "True",
                "reason": "InitialNamesAccepted",
                "lastTransitionTime": timestamp(self._clock()),
                "message": "the initial names have been accepted",
            }
            for each in ("NamesAccepted", "Established")
        ]
        status = {
            "conditions": conditions,
            "acceptedNames": crd["spec"]["names"],
            "storedVersions": [custom.version],
        }
        self.store.put(kind, {**copy.deepcopy(crd), "status": status})


def _check_identity(kind: Kind, value: Any, namespace: str, name: str) -> None:
    """What the body says of itself must agree with the path."""
    if not isinstance(value, dict) or not isinstance(value.setdefault("metadata", {}), dict):
        raise bad_request("the object provided is not an object of Kubernetes")
    told = (value.get("apiVersion", kind.api_version), value.get("kind", kind.kind))
    if told != (kind.api_version, kind.kind):
        raise bad_request(
            f"the API version and kind in the data ({told[0]}, {told[1]}) do not match the "
            f"expected ones ({kind.api_version}, {kind.kind})"
        )
    metadata = value["metadata"]
    if name and metadata.setdefault("name", name) != name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({name})"
        )
    if kind.namespaced and metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent")


def _content(kind: Kind, value: Object) -> Object:
    """What the generation counts the changes of."""
    ignored = _OWN_KEYS if kind.status else _OWN_KEYS - {"status"}
    return {key: each for key, each in value.items() if key not in ignored}


def _confined(kind: Kind, old: Object, new: Object, subresource: str) -> Object:
    """The change without what this subresource cannot change."""
    if subresource == "status":
        metadata = {**old["metadata"]}
        if "managedFields" in new["metadata"]:
            metadata["managedFields"] = new["metadata"]["managedFields"]
        kept = {**copy.deepcopy(old), "metadata": copy.deepcopy(metadata)}
        kept.pop("status", None)
        return {**kept, **({"status": new["status"]} if "status" in new else {})}
    if kind.status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = copy.deepcopy(old["status"])
    return new
