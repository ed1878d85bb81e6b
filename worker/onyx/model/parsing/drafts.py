"""What manifests of all kinds share: from values to a draft, or to all problems as one error; and
the metadata of an object of Kubernetes, of which only the name concerns us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from onyx.errors import ManifestError
from onyx.model.keys.section import Draft
from onyx.model.plain import plain
from onyx.model.report import INVALID, Report, at, nearest, show

Check = Callable[[Any, Report], Draft]
"""Makes a draft of plain values; a draft with problems is never used."""
_OBJECT_META = (
    "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp",
    "finalizers", "generateName", "generation", "labels", "managedFields", "name", "namespace",
    "ownerReferences", "resourceVersion", "selfLink", "uid",
)  # fmt: skip
"""What Kubernetes knows under metadata."""


def draft_of(value: Any, check: Check) -> Draft:
    """The draft of a manifest that was read already: a Kubernetes object, or a Python dict.

    Raises:
        ManifestError: with every problem, each with its path.
    """
    report = Report()
    draft: Draft = {}
    with report.until_full():
        draft = check(plain(value, report), report)
    if report:
        raise ManifestError(report.problems())
    return draft


class NameRule(msgspec.Struct, frozen=True):
    """What the objects of one kind may be called."""

    kind: str
    fits: Callable[[str], bool]
    alphabet: str
    """What a name is made of, in words."""
    hint: str = ""
    """Said of a key of metadata that Kubernetes does not know."""


def read_name(
    metadata: dict[str, Any] | None, rule: NameRule, report: Report, default: str = ""
) -> Any:
    """The object's name, or a default; INVALID, or None, when there is none that can be used."""
    if metadata is None:
        return None
    for key in metadata:
        if key not in _OBJECT_META:
            hint = nearest(key, _OBJECT_META) or rule.hint
            report.add(at("metadata", key), "is not a key that Kubernetes knows here", hint)
    name = metadata.get("name", default or INVALID)
    if name is INVALID and "name" not in metadata:
        report.add("metadata.name", "is missing", f"give the {rule.kind} a name")
    elif not isinstance(name, str) or not rule.fits(name):
        message = f"{show(name)} is not a name for a {rule.kind}"
        report.add("metadata.name", message, rule.alphabet)
    return name
