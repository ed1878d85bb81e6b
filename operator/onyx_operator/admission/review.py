"""From an AdmissionReview to its answer: the object is judged, or marked. Total, and pure but for
deletions that are noted.

*Judged*: only what changes a spec is. An object that is stored already, made when nobody looked or
by older rules, must still take labels and lose finalizers, or it could never be deleted.

*Marked*: the API server asks `/mark-onyxjobs` before it stores an OnyxJob, with the user whose
request it is. A change of the spec is marked with this user. Every other change leaves the mark as
it was, so what a user writes there is gone. Whatever does not fit is let through without a mark.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import field
from msgspec.structs import replace

from onyx.errors import Problem, UserError
from onyx.model.manifest import API_VERSION, JOB_KIND
from onyx.replica.authors import KUBERNETES, author
from onyx_operator.admission.validators import RULES, Verdict, judge
from onyx_operator.authors import ANNOTATION, Authors, Body, mark_of, part_of, text_of

REVIEW_VERSION = "admission.k8s.io/v1"
MESSAGE_CHARACTERS_MAX = 16_000
WARNING_CHARACTERS_MAX = 250
WARNINGS_MAX = 16

Object = Mapping[str, Any]
_AT = f"/metadata/annotations/{ANNOTATION.replace('/', '~1')}"


class MalformedReview(UserError):
    """What was sent is no AdmissionReview that we know."""


class Review(msgspec.Struct, frozen=True):
    """What is known of a review when the object has been judged by itself."""

    uid: str
    verdict: Verdict = field(default_factory=Verdict)
    body: Object | None = None
    """The object, if there is a spec to be judged, with its name and namespace."""

    def and_also(self, further: Verdict) -> Review:
        """This review with more that was found."""
        verdict = Verdict(
            (*self.verdict.problems, *further.problems), (*self.verdict.warnings, *further.warnings)
        )
        return replace(self, verdict=verdict)


def judged(review: Any) -> Review:
    """The verdict on the object of an AdmissionReview by itself.

    Raises:
        MalformedReview: it is not one; the message says why.
    """
    request = request_of(review)
    body, old = request.get("object"), request.get("oldObject")
    if not _concerns(request, body, old):
        return Review(request["uid"])
    assert isinstance(body, Mapping)
    named = _named(body, request)
    verdict = judge(str(body["kind"]), named, old if isinstance(old, Mapping) else None)
    return Review(request["uid"], verdict, named)


def answer(review: Review) -> dict[str, Any]:
    """The AdmissionReview with our response."""
    body = review.body
    what = "" if body is None else f"{body['kind']} {body['metadata'].get('name')}"
    return _answer(review.uid, review.verdict, what)


def request_of(review: Any) -> Object:
    """The request of an AdmissionReview. Raises MalformedReview."""
    if not isinstance(review, Mapping) or review.get("kind") != "AdmissionReview":
        raise MalformedReview("this is no AdmissionReview")
    if review.get("apiVersion") != REVIEW_VERSION:
        raise MalformedReview(f"this AdmissionReview is not {REVIEW_VERSION}")
    request = review.get("request")
    if not isinstance(request, Mapping) or not isinstance(request.get("uid"), str):
        raise MalformedReview("this AdmissionReview has no request with a uid")
    return request


def _concerns(request: Object, body: Any, old: Any) -> bool:
    """Whether there is a spec to be judged."""
    if request.get("operation") not in ("CREATE", "UPDATE") or request.get("subResource"):
        return False
    if not isinstance(body, Mapping) or str(body.get("kind")) not in RULES:
        return False
    if body.get("apiVersion") != API_VERSION:
        return False
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping) and metadata.get("deletionTimestamp"):
        return False
    return not isinstance(old, Mapping) or old.get("spec") != body.get("spec")


def _named(body: Object, request: Object) -> Object:
    """The object with its namespace and a name, which the API server may be yet to generate."""
    metadata = body.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, Mapping) else {}
    if isinstance(request.get("namespace"), str):
        metadata.setdefault("namespace", request["namespace"])
    if "name" in metadata or not isinstance(metadata.get("generateName"), str):
        return {**body, "metadata": metadata}
    name = request.get("name") or f"{metadata['generateName']}00000"
    return {**body, "metadata": {**metadata, "name": name}}


def _answer(uid: str, verdict: Verdict, what: str) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": uid, "allowed": not verdict.problems}
    if verdict.problems:
        message = _message(what, verdict.problems)
        response["status"] = {"code": 422, "reason": "Invalid", "message": message}
    if verdict.warnings:
        shown = verdict.warnings[:WARNINGS_MAX]
        response["warnings"] = [str(each)[:WARNING_CHARACTERS_MAX] for each in shown]
    return {"apiVersion": REVIEW_VERSION, "kind": "AdmissionReview", "response": response}


def _message(what: str, problems: Sequence[Problem]) -> str:
    """All problems, a line each."""
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = "\n".join(f"- {problem}" for problem in problems)
    return f"{what} has {count}:\n{lines}"[:MESSAGE_CHARACTERS_MAX]


def marked(review: Any, authors: Authors) -> dict[str, Any]:
    """The AdmissionReview with our response; deletions are noted.

    Raises:
        MalformedReview: it is not one; the message says why.
    """
    request = request_of(review)
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    user = text_of(part_of(request, "userInfo"), "username")
    body, old = part_of(request, "object"), part_of(request, "oldObject")
    if request.get("operation") == "DELETE":
        uid = text_of(part_of(old, "metadata"), "uid")
        if uid and not request.get("dryRun"):
            authors.note_deletion(uid, user)
    elif body.get("kind") == JOB_KIND and not request.get("subResource"):
        changes = not old or old.get("spec") != body.get("spec")
        patch = _patch(body, author(KUBERNETES, user) if changes else mark_of(old))
        if patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    return {"apiVersion": REVIEW_VERSION, "kind": "AdmissionReview", "response": response}


def _patch(body: Body, mark: str) -> list[dict[str, Any]]:
    """What makes the mark of an object this one; nothing if it is."""
    if mark_of(body) == mark:
        return []
    if not mark:
        return [{"op": "remove", "path": _AT}]
    if not isinstance(part_of(body, "metadata").get("annotations"), Mapping):
        return [{"op": "add", "path": "/metadata/annotations", "value": {ANNOTATION: mark}}]
    return [{"op": "add", "path": _AT, "value": mark}]
