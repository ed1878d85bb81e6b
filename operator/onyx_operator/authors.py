"""Who has changed or deleted an OnyxJob, as far as the operator can know.

With the webhook the user of the API server: for a change it is an annotation that the webhook
writes (`admission.review`) and users cannot; a deletion can carry no mark, so its user is
remembered here until the object is gone. Without the webhook it is the field manager that wrote the
spec last, which is what a program says of itself, and is shown as that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from onyx.replica.authors import FIELD_MANAGER, KUBERNETES, UNKNOWN, UNPROVEN, author

ANNOTATION = "onyx.dev/changed-by"
DELETED_MAX = 10_000
"""Deletions whose users are remembered."""

Body = Mapping[str, Any]


class Authors:
    """Who changes and deletes objects. Belongs to one event loop."""

    def __init__(self, marks: bool, proven: bool = False) -> None:
        """
        Args:
            marks: whether the API server asks for marks; if not, those of objects mean nothing.
            proven: whether it shows a certificate when it asks. Otherwise any pod may ask, and what
                it says of a deletion is shown as unproven. A mark needs no proof: it goes back to
                whoever asks.
        """
        self._marks = marks
        self._source = KUBERNETES if proven else UNPROVEN
        self._deleted: OrderedDict[str, str] = OrderedDict()

    def note_deletion(self, uid: str, user: str) -> None:
        """A user has asked to delete an object."""
        self._deleted[uid] = author(self._source, user)
        self._deleted.move_to_end(uid)
        if len(self._deleted) > DELETED_MAX:
            self._deleted.popitem(last=False)

    def of_change(self, body: Body) -> str:
        """Who has changed the spec of an object last."""
        if self._marks:
            return mark_of(body) or UNKNOWN
        return author(FIELD_MANAGER, max(map(_said, _writers(body)), default=("", ""))[1])

    def of_deletion(self, body: Body) -> str:
        """Who has deleted an object; unknown if this operator was not asked."""
        return self._deleted.get(body["metadata"]["uid"], UNKNOWN)


def mark_of(body: Body) -> str:
    """The mark of an object; empty if it has none."""
    return text_of(part_of(part_of(body, "metadata"), "annotations"), ANNOTATION)


def last_writer(body: Body) -> list[dict[str, Any]]:
    """The field manager that wrote the spec of an object last, in a list, without the fields."""
    found = max(_writers(body), key=_said, default=None)
    return [] if found is None else [{**found, "fieldsV1": {"f:spec": {}}}]


def part_of(body: Body, key: str) -> Body:
    """What an object has under a key, if that is an object too; else an empty one."""
    found = body.get(key)
    return found if isinstance(found, Mapping) else {}


def text_of(body: Body, key: str) -> str:
    """The text under a key; empty if there is none."""
    found = body.get(key)
    return found if isinstance(found, str) else ""


def _writers(body: Body) -> list[Body]:
    managers = part_of(body, "metadata").get("managedFields")
    return [
        each
        for each in (managers if isinstance(managers, list) else ())
        if isinstance(each, Mapping)
        and not each.get("subresource")
        and "f:spec" in part_of(each, "fieldsV1")
    ]


def _said(entry: Body) -> tuple[str, str]:
    return text_of(entry, "time"), text_of(entry, "manager")
