"""What happens to an object when it is created, changed and deleted: the server's own rules.

Pure of HTTP: the server calls these methods with plain objects. Each write takes the same way: a
change of the old object is proposed, made fit (pruned, defaulted, fields that belong to the server
put back), checked, and stored unless it changes nothing or is a dry run.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import yaml
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
from tests.operator.fake_api.metadata import check_identity, check_metadata, check_version
from tests.operator.fake_api.schema import schema_of
from tests.operator.fake_api.store import Object, Store
from tests.operator.fake_api.typed import check_typed
from tests.operator.fake_api.values import clone

Change = Callable[[Object], Object]
_KEPT = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_OWN_KEYS = {"apiVersion", "kind", "metadata", "status"}
_BUILT_IN_SCHEMAS = yaml.safe_load((Path(__file__).parent / "built_in.yaml").read_text())


@dataclass(frozen=True)
class Write:
    """How a write is to be done."""

    manager: str = "unknown"
    dry_run: bool = False
    strict: bool = False
    """Refuse unknown fields instead of dropping them."""
    applied: bool = False
    """Is it an apply? Then it says by itself who owns what, and nulls in it are values."""


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
        value = clone(body)
        check_identity(kind, value, namespace, "")
        metadata = value["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        if metadata.get("resourceVersion"):
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        with self.store.lock:
            self._check_namespace(kind, namespace)
            check_metadata(kind, value, None)
            if there := self.store.get(kind, namespace, metadata["name"]):
                is_being_deleted = "deletionTimestamp" in there["metadata"]
                raise already_exists(kind, metadata["name"], is_being_deleted=is_being_deleted)
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
            if not how.applied:
                value = apply.updated(kind, None, value, how.manager, "")
            return self._store(kind, value, how)

    def update(
        self, kind: Kind, namespace: str, name: str, subresource: str, change: Change, how: Write
    ) -> Object:
        """Change an object (or its status). Raises ApiError: 400, 404, 409, 422."""
        with self.store.lock:
            old = self.get(kind, namespace, name)
            new = change(clone(old))
            check_identity(kind, new, namespace, name)
            if subresource == "status":
                new["metadata"]["uid"] = old["metadata"]["uid"]
            check_version(kind, old, new)
            new = self._fit(kind, _confined(kind, old, new, subresource), old, how)
            if not how.applied:
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

        check_identity(kind, body, namespace, name)
        if "managedFields" in body["metadata"]:
            raise bad_request("metadata.managedFields must be nil")
        check_typed(kind, namespace, body)

        def change(old: Object) -> Object:
            return apply.apply(
                kind, old, body, manager=how.manager, force=force, subresource=subresource
            )

        how = replace(how, applied=True)
        with self.store.lock:
            if self.store.get(kind, namespace, name) or subresource:
                return self.update(kind, namespace, name, subresource, change, how), False
            created = self.create(kind, namespace, body, replace(how, dry_run=True))
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
            new = clone(old)
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
        if old:
            check_metadata(kind, new, old)
        if kind.schema or kind.kind in _BUILT_IN_SCHEMAS:
            self._check_schema(kind, new, old, how)
        return new

    def _check_schema(self, kind: Kind, new: Object, old: Object | None, how: Write) -> None:
        schema = schema_of(kind.schema or _BUILT_IN_SCHEMAS[kind.kind])
        unknown = schema.prune(new)
        if unknown and how.strict:
            fields = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise bad_request(f"{kind.kind} cannot be handled: strict decoding error: {fields}")
        schema.default(new, keep_nulls=how.applied)
        if causes := schema.causes(new, old):
            raise invalid(kind, new["metadata"]["name"], causes)

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
        self.store.put(kind, {**clone(crd), "status": status})


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
        kept = {**clone(old), "metadata": clone(metadata)}
        kept.pop("status", None)
        return {**kept, **({"status": new["status"]} if "status" in new else {})}
    if kind.status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = clone(old["status"])
    return new
