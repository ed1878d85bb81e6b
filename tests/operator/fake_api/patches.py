"""Merge patch, JSON patch and strategic merge patch, as functions from an object to another."""

from __future__ import annotations

from typing import Any

import jsonpatch
from tests.operator.fake_api.errors import ApiError, bad_request
from tests.operator.fake_api.values import clone

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "conditions": "type",
    "ownerReferences": "uid",
}
"""Lists of built-in kinds that are merged by a key; those of Service ports are left out."""


def merge_patch(value: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return clone(patch)
    result = dict(value) if isinstance(value, dict) else {}
    for key, new in patch.items():
        if new is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), new)
    return result


def json_patch(value: Any, operations: Any) -> Any:
    """RFC 6902. Raises ApiError: 422 for a test that fails or a path that is not there."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    try:
        return jsonpatch.apply_patch(value, operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise ApiError(422, "Invalid", message) from error


def strategic_merge_patch(value: Any, patch: Any, field: str = "") -> Any:
    """Like a merge patch, but lists of objects with a known key are merged by it."""
    if isinstance(patch, dict):
        result = dict(value) if isinstance(value, dict) else {}
        for key, new in patch.items():
            if key == "$patch":
                continue
            if new is None:
                result.pop(key, None)
            else:
                result[key] = strategic_merge_patch(result.get(key), new, key)
        return result
    if isinstance(patch, list) and field == "finalizers":
        return [*(value or []), *(each for each in patch if each not in (value or []))]
    if isinstance(patch, list) and field in MERGE_KEYS:
        return _merge_lists(value or [], patch, MERGE_KEYS[field])
    return clone(patch)


def _merge_lists(value: list[Any], patch: list[Any], key: str) -> list[Any]:
    by_key = {each.get(key): each for each in value}
    for each in patch:
        if each.get("$patch") == "delete":
            by_key.pop(each.get(key), None)
        else:
            by_key[each.get(key)] = strategic_merge_patch(by_key.get(each.get(key)), each)
    return list(by_key.values())
