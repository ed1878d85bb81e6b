"""Rules of an OnyxJob's spec: the job itself, or a reference to it, and never both."""

from __future__ import annotations

from onyx.model.keys.section import Draft
from onyx.model.manifest import SPEC
from onyx.model.report import Report, at


def check_source(spec: Draft, path: str, report: Report) -> bool:
    """Exactly one of the keys of a job and `jobRef`. True when the job stands here.

    A key with its default value says nothing: the API server fills these in.
    """
    if "job_ref" not in spec:
        _check_required(spec, path, report)
        return True
    for key in SPEC.keys:
        if key.field in spec and spec[key.field] not in (key.default, _listed(key.default)):
            report.add(at(path, key.yaml), "is given together with jobRef", "give one of them")
    return False


def _check_required(spec: Draft, path: str, report: Report) -> None:
    for key in SPEC.keys:
        if key.required and key.field not in spec:
            report.add(at(path, key.yaml), "is missing", f"give {key.kind.describe()}")


def _listed(default: object) -> object:
    """A default as a draft has it."""
    return list(default) if isinstance(default, tuple) else default
