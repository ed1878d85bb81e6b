"""Refusals of the API server, as the `Status` objects that clients know.

One exception carries code, reason and message; the HTTP layer turns it into a response. The texts
follow the real server where clients or users read them; tests compare code and reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.operator.fake_api.kinds import Kind

Cause = tuple[str, str]
"""A field's path, and what is wrong with it."""
_REASONS = {
    "Required value": "FieldValueRequired",
    "Unsupported value": "FieldValueNotSupported",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
    "Duplicate value": "FieldValueDuplicate",
    "Forbidden": "FieldValueForbidden",
}


class ApiError(Exception):
    """A request is refused: `code` is the HTTP code, `reason` the word that clients compare."""

    def __init__(
        self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = dict(details or {})

    def status(self) -> dict[str, Any]:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "code": self.code,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        return status


def _about(kind: Kind, name: str) -> dict[str, Any]:
    return {"name": name, "group": kind.group, "kind": kind.plural}


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def not_found(kind: Kind, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{kind.qualified} "{name}" not found', _about(kind, name))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def forbidden(verb: str, resource: str, group: str, namespace: str) -> ApiError:
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    message = f'{resource} is forbidden: cannot {verb} resource "{resource}" in API group "{group}"'
    return ApiError(403, "Forbidden", f"{message} {where}")


def already_exists(kind: Kind, name: str, *, is_being_deleted: bool = False) -> ApiError:
    message = f'{kind.qualified} "{name}" already exists'
    if is_being_deleted:
        message = f"object is being deleted: {message}"
    return ApiError(409, "AlreadyExists", message, _about(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, _about(kind, name))


def modified(kind: Kind, name: str) -> ApiError:
    why = (
        "the object has been modified; please apply your changes to the latest version "
        "and try again"
    )
    return conflict(kind, name, why)


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiError:
    listed = [{"reason": _reason(text), "message": text, "field": field} for field, text in causes]
    texts = [f"{field}: {text}" for field, text in causes]
    about = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    reported = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = {**_about(kind, name), "kind": kind.kind, "causes": listed}
    return ApiError(422, "Invalid", f'{about} "{name}" is invalid: {reported}', details)


def _reason(text: str) -> str:
    if "in body must be of type" in text:
        return "FieldValueTypeInvalid"
    return _REASONS.get(text.partition(":")[0], "FieldValueInvalid")


def gone(message: str = "too old resource version") -> ApiError:
    return ApiError(410, "Expired", message)
