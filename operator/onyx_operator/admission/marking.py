"""The mark of an OnyxJob: who has changed its spec last. Pure but for noted deletions, and total.

The API server asks `/mark-onyxjobs` before it stores an object, with the user whose request it is.
A change of the spec is marked with this user. Every other change leaves the mark as it was, so what
a user writes there is gone. Whatever does not fit is let through without a mark, because judging
objects is the task of the other questions.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from onyx.model.manifest import JOB_KIND
from onyx.replica.authors import KUBERNETES, author
from onyx_operator.admission.review import REVIEW_VERSION, request_of
from onyx_operator.authors import ANNOTATION, Authors, Body, mark_of, part_of, text_of

_AT = f"/metadata/annotations/{ANNOTATION.replace('/', '~1')}"


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
