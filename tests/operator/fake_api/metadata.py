"""What an object says of itself must fit its path, its kind and what may stand in metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.operator.fake_api.errors import Cause, bad_request, conflict, invalid, modified
from tests.operator.fake_api.kinds import Kind
from tests.operator.fake_api.store import Object

ANNOTATION_BYTES_MAX = 262_144
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME = re.compile(_SUBDOMAIN)
_LABEL = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_FREE_NAMES = {"roles", "rolebindings", "clusterroles", "clusterrolebindings"}
_REFERENCE = ("apiVersion", "kind", "name", "uid")


def check_identity(kind: Kind, value: Any, namespace: str, name: str) -> None:
    """The body must agree with the path; what it leaves out is filled in.

    Raises ApiError: 400, and 422 for the wrong kind in an object of a custom kind.
    """
    if not isinstance(value, dict) or not isinstance(value.setdefault("metadata", {}), dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind})")
    if not kind.custom:
        value = {"apiVersion": kind.api_version, "kind": kind.kind, **value}
    metadata = value["metadata"]
    if "kind" not in value:
        message = f"the object provided is unrecognized (must be of type {kind.kind}): Object "
        raise bad_request(f"{message}'Kind' is missing")
    if value.get("apiVersion") != kind.api_version:
        reported = value.get("apiVersion", "")
        message = (
            f"the API version in the data ({reported}) does not match the expected API version "
        )
        raise bad_request(f"{message}({kind.api_version})")
    if value["kind"] != kind.kind and kind.custom:
        why = f'Invalid value: "{value["kind"]}": must be {kind.kind}'
        raise invalid(kind, metadata.get("name", ""), [("kind", why)])
    if value["kind"] != kind.kind:
        raise bad_request(f"{value['kind']} in version v1 cannot be handled as a {kind.kind}")
    if name and metadata.setdefault("name", name) != name:
        message = f"the name of the object ({metadata['name']}) does not match the name on the URL "
        raise bad_request(f"{message}({name})")
    if kind.namespaced and metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent")


def check_version(kind: Kind, old: Object, new: Object) -> None:
    """A change must be of the version that is there. Raises ApiError: 409, 422."""
    name, version = old["metadata"]["name"], new["metadata"].get("resourceVersion")
    if kind.custom and not version:
        why = "Invalid value: 0: must be specified for an update"
        raise invalid(kind, name, [("metadata.resourceVersion", why)])
    if version and version != old["metadata"]["resourceVersion"]:
        raise modified(kind, name)
    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
    uid = new["metadata"].get("uid", old["metadata"]["uid"])
    if uid != old["metadata"]["uid"] and kind.custom:
        why = f'Invalid value: "{uid}": field is immutable'
        raise invalid(kind, name, [("metadata.uid", why)])
    if uid != old["metadata"]["uid"]:
        raise conflict(kind, name, f"Precondition failed: UID in precondition: {uid}")


def check_metadata(kind: Kind, new: Object, old: Object | None) -> None:
    """Names, labels, annotations, owners and finalizers. Raises ApiError: 400, 422."""
    metadata = new["metadata"]
    for field in ("labels", "annotations"):
        if any(not isinstance(each, str) for each in (metadata.get(field) or {}).values()):
            message = f"{kind.kind} cannot be handled: json: cannot unmarshal into Go struct field "
            raise bad_request(f"{message}ObjectMeta.{field} of type string")
    causes = [*_name(kind, metadata), *_labels(metadata), *_annotations(metadata)]
    causes += [*_owners(metadata), *_finalizers(metadata, old), *_event(kind, new)]
    if causes:
        raise invalid(kind, metadata.get("name", ""), causes)


def _name(kind: Kind, metadata: Object) -> Iterator[Cause]:
    name = metadata.get("name", "")
    if not name:
        yield "metadata.name", "Required value: name or generateName is required"
    elif kind.plural not in _FREE_NAMES and (len(name) > 253 or not _NAME.fullmatch(name)):
        why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
        yield (
            "metadata.name",
            f"Invalid value: \"{name}\": {why}'-' or '.', and must start and end with an "
            f"alphanumeric character (e.g. 'example.com', regex is '{_SUBDOMAIN}')",
        )


def _labels(metadata: Object) -> Iterator[Cause]:
    for key, value in (metadata.get("labels") or {}).items():
        prefix, _, name = key.rpartition("/")
        if len(name) > 63 or not _LABEL.fullmatch(name) or (prefix and not _NAME.fullmatch(prefix)):
            why = "name part must consist of alphanumeric characters, '-', '_' or '.'"
            yield "metadata.labels", f'Invalid value: "{key}": {why}'
        if len(value) > 63 or (value and not _LABEL.fullmatch(value)):
            why = "a valid label must be an empty string or consist of alphanumeric characters"
            yield "metadata.labels", f'Invalid value: "{value}": {why}'


def _annotations(metadata: Object) -> Iterator[Cause]:
    annotations = metadata.get("annotations") or {}
    if sum(len(key) + len(value.encode()) for key, value in annotations.items()) > (
        ANNOTATION_BYTES_MAX
    ):
        why = f"Too long: may not be more than {ANNOTATION_BYTES_MAX} bytes"
        yield "metadata.annotations", why


def _owners(metadata: Object) -> Iterator[Cause]:
    for reference in metadata.get("ownerReferences") or ():
        for key in _REFERENCE:
            if not reference.get(key):
                yield f"metadata.ownerReferences.{key}", 'Invalid value: "": must not be empty'


def _finalizers(metadata: Object, old: Object | None) -> Iterator[Cause]:
    if not old or not old["metadata"].get("deletionTimestamp"):
        return
    before = set(old["metadata"].get("finalizers", ()))
    if added := sorted(set(metadata.get("finalizers") or ()) - before):
        yield (
            "metadata.finalizers",
            "Forbidden: no new finalizers can be added if the object is being deleted, found new "
            f"finalizers {added}",
        )


def _event(kind: Kind, new: Object) -> Iterator[Cause]:
    if kind.plural != "events":
        return
    about = new.get("involvedObject", {}).get("namespace", "")
    if (about or "default") != new["metadata"]["namespace"]:
        yield (
            "involvedObject.namespace",
            f'Invalid value: "{about}": does not match event.namespace',
        )
