"""From a manifest that was read already to a job: plain values to a draft by the table of keys,
with what is left out filled in, then the rules between keys, then the value. What is stored beside
the log is such a manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any

from onyx.base.structs import stored
from onyx.model.canonical import canonical_json
from onyx.model.job import Job
from onyx.model.keys.section import Draft, SectionEntries
from onyx.model.manifest import JOB_MANIFEST, SPEC
from onyx.model.names import is_job_name
from onyx.model.parsing.drafts import NameRule, draft_of, read_name
from onyx.model.parsing.filling import fill
from onyx.model.plain import MANIFEST_BYTES_MAX
from onyx.model.report import INVALID, Report, at, show
from onyx.model.rules import ENTRY, JOB
from onyx.model.rules.looking import good

DRAFTS_MAX = 8
"""Stored jobs that are remembered as checked."""
_NAMES = NameRule(
    "job",
    is_job_name,
    "lower case letters, digits and -, at most 63, first and last a letter or digit",
    "the job's own metadata is spec.metadata",
)


def parse_mapping(mapping: Mapping[str, Any]) -> Job:
    """The job in a manifest that was read already: a Kubernetes object, or a Python dict.

    Raises:
        ManifestError: with every problem, each with its path.
    """
    return job_of(draft_of(mapping, draft_of_object))


def stored_job(data: bytes, job: str) -> Job:
    """The job in a manifest as it was stored.

    Args:
        job: its id, or other words for it.

    Raises:
        StateError: the bytes are no manifest.
        ManifestError: as `parse_mapping`.
    """
    # A copy: what is in options belongs to whoever has the job.
    return job_of(deepcopy(_stored_draft(data, job)))


@lru_cache(DRAFTS_MAX)
def _stored_draft(data: bytes, job: str) -> Draft:
    """Each peer reads the job of its task at each new allocation, and to check it takes nearly all
    of the time."""
    remedy = "submit the job again"
    mapping = stored(data, dict[str, Any], f"the manifest of job {job}", remedy)
    return draft_of(mapping, draft_of_object)


def job_of(draft: Draft) -> Job:
    """The job of a draft without problems."""
    job = SPEC.build(draft["spec"], name=draft["name"])
    assert isinstance(job, Job)
    return job


def draft_of_manifest(
    value: Any,
    report: Report,
    by_reference: bool = False,
    upgrades: str | None = None,
    engine: str | None = None,
    default_name: str = "",
) -> Draft:
    """The draft of a manifest; whatever is wrong is reported.

    Args:
        by_reference: whether the spec may refer to a job file.
        upgrades: id of the old job that it upgrades.
        engine: what is to run it, whatever the manifest says.
        default_name: of a job without a name.
    """
    if value is not INVALID and not isinstance(value, dict):
        hint = "a job begins with spec: (onyx init writes one)"
        report.unreadable("", f"is {show(value)}, and no job file", hint)
        return {}
    if upgrades is not None:
        _name_old_job(value, upgrades, report)
    if engine is not None:
        _choose_engine(value, engine)
    draft = JOB_MANIFEST.read(value, "", report) or {}
    metadata = good({"metadata": {}, **draft}, "metadata")
    name = read_name(metadata, _NAMES, report, default_name)
    spec = good(draft, "spec")
    if spec is not None and _has_job(spec, "spec", report):
        fill(spec, "spec", report)
        _check_required(spec, "spec", report)
        _check_spec(spec, "spec", report)
    elif spec is not None and not by_reference:
        report.add("spec.jobRef", "is for Kubernetes only", "use the job file that it refers to")
    raw = value.get("spec") if isinstance(value, dict) else None
    return {"name": name, "spec": spec, "raw": raw}


def _has_job(spec: Draft, path: str, report: Report) -> bool:
    """Exactly one of the keys of a job and `jobRef`. True when the job stands here.

    A key with its default value says nothing: the API server fills these in.
    """
    if "job_ref" not in spec:
        return True
    for key in SPEC.keys:
        if key.field in spec and spec[key.field] not in (key.default, _listed(key.default)):
            report.add(at(path, key.yaml), "is given together with jobRef", "give one of them")
    return False


def _check_required(spec: Draft, path: str, report: Report) -> None:
    for key in SPEC.keys:
        if key.is_mandatory and key.field not in spec:
            report.add(at(path, key.yaml), "is missing", f"give {key.kind.describe()}")


def _listed(default: object) -> object:
    """A default as a draft has it."""
    return list(default) if isinstance(default, tuple) else default


def _choose_engine(value: Any, engine: str) -> None:
    """Put the engine into the manifest, before rules look at it. Settings of Spark stay unread
    where peers run the job with all of its windows."""
    spec = value.get("spec") if isinstance(value, dict) else None
    if isinstance(spec, dict):
        spec["engine"] = engine
        windows = spec.get("windows")
        mine = windows if isinstance(windows, list) else []
        if "spark" not in (engine, *(w.get("engine") for w in mine if isinstance(w, dict))):
            spec.pop("spark", None)


def _name_old_job(value: Any, old: str, report: Report) -> None:
    """Put the old job's id into the manifest, before a rule misses it."""
    spec = value.get("spec") if isinstance(value, dict) else None
    upgrade = spec.setdefault("upgrade", {}) if isinstance(spec, dict) else None
    named = upgrade.setdefault("from", old) if isinstance(upgrade, dict) else old
    if named != old:
        what = f"is {named!r}, but the job is submitted to upgrade {old!r}"
        report.add("spec.upgrade.from", what, "leave it out, or give the same id to --upgrade")


def draft_of_object(value: Any, report: Report, by_reference: bool = False) -> Draft:
    """A manifest that did not come as text, whose size nobody has looked at yet."""
    draft = draft_of_manifest(value, report, by_reference)
    if not report and len(canonical_json(draft["raw"])) > MANIFEST_BYTES_MAX:
        report.add("spec", f"takes more than {MANIFEST_BYTES_MAX} bytes (1 MiB) as JSON")
    return draft


def _check_spec(spec: Draft, path: str, report: Report) -> None:
    for key in SPEC.keys:
        if not isinstance(key.kind, SectionEntries):
            continue
        for index, draft in enumerate(good(spec, key.field) or ()):
            if draft is not None:
                check_one(key.yaml, draft, at(at(path, key.yaml), index), report)
    for rule in JOB:
        rule(spec, path, report)


def check_one(section: str, draft: Draft, path: str, report: Report) -> None:
    """The rules of one entry of a section."""
    for rule in ENTRY.get(section, ()):
        rule(draft, path, report)
