"""From a manifest to a job: all problems at once, or a frozen value.

Three steps, each a module: text to plain values (`reading`, `plain`), values to drafts by the table
(`schema`, `kinds`), and rules between keys (`rules`). Only when nothing was found is the job made,
so a `Job` is valid by construction. No user code is imported: names are checked for their syntax,
and resolved by the worker that runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from onyx.errors import Problem
from onyx.model.canonical import canonical_json, job_hash, to_mapping
from onyx.model.declaration import Declaration
from onyx.model.job import Job
from onyx.model.keys.section import Draft, Entries
from onyx.model.manifest import DECLARATION, JOB_MANIFEST, SECTIONS, SPEC
from onyx.model.names import is_job_name
from onyx.model.parsing.drafts import draft_of, draft_of_text
from onyx.model.parsing.object_meta import NameRule, read_name
from onyx.model.parsing.text import MANIFEST_BYTES_MAX
from onyx.model.plain import plain
from onyx.model.report import Report, at
from onyx.model.rules import ENTRY, JOB
from onyx.model.rules.declaration import check_source
from onyx.model.rules.failures import add_edges
from onyx.model.rules.looking import good

__all__ = [
    "check_entry",
    "job_hash",
    "parse_declared",
    "parse_file",
    "parse_manifest",
    "parse_mapping",
    "to_mapping",
]

_NAMES = NameRule(
    "job",
    is_job_name,
    "lower case letters, digits and -, at most 63, first and last a letter or digit",
    "the job's own metadata is spec.metadata",
)


def parse_manifest(text: str | bytes, source: str = "manifest") -> Job:
    """The job in the text of a manifest, YAML or JSON; see `parse_file`."""
    return parse_file(text, source)[0]


def parse_file(
    text: str | bytes,
    source: str,
    upgrades: str | None = None,
    engine: str | None = None,
) -> tuple[Job, Declaration]:
    """The job in the text of a manifest, YAML or JSON, and how Kubernetes is to run it.

    Args:
        text: the whole file, at most 1 MiB.
        source: what to call it in messages, usually its path.
        upgrades: id of the old job that it upgrades; the manifest may name the same one.
        engine: what is to run it, whatever the manifest says.

    Raises:
        ManifestError: with every problem, each with its path, file and line.
    """
    read = partial(_manifest, upgrades=upgrades, engine=engine)
    draft = draft_of_text(text, source, read)
    return _build(draft), _declaration(draft)


def parse_mapping(mapping: Mapping[str, Any]) -> Job:
    """The job in a manifest that was read already: a Kubernetes object, or a Python dict.

    Raises:
        ManifestError: with every problem, each with its path.
    """
    return _build(draft_of(mapping, _object))


def parse_declared(mapping: Mapping[str, Any]) -> tuple[Declaration, Job | None]:
    """An OnyxJob: how it is to be run, and its job, or None where it refers to one by `jobRef`.

    Raises:
        ManifestError: with every problem, each with its path.
    """
    draft = draft_of(mapping, partial(_object, by_reference=True))
    declaration = _declaration(draft)
    return declaration, _build(draft) if declaration.job_ref is None else None


def check_entry(section: str, value: Any, path: str = "") -> tuple[Problem, ...]:
    """What is wrong with a single entry, or another part of a spec, on its own.

    For tools and plugins that make parts of a job. Rules that need the rest of the job are not
    checked.

    Args:
        section: key of the spec: `catalog`, `flowConditions`, ... for one entry of it, or any
            other (`workflow`) for its value.
        value: plain data in the shape of the manifest.
        path: where it stands, for the problems' paths.

    Raises:
        KeyError: a spec has no such section.
    """
    report = Report()
    read = plain(value, report)
    if section in SECTIONS:
        draft = SECTIONS[section].read(read, path, report)
        if draft is not None:
            _check_one(section, draft, path, report)
    else:
        SPEC.by_yaml[section].kind.read(read, path, report)
    return tuple(report.problems())


def _manifest(
    value: Any,
    report: Report,
    by_reference: bool = False,
    upgrades: str | None = None,
    engine: str | None = None,
) -> Draft:
    if upgrades is not None:
        _name_old_job(value, upgrades, report)
    if engine is not None:
        _choose_engine(value, engine)
    draft = JOB_MANIFEST.read(value, "", report) or {}
    name = read_name(good(draft, "metadata"), _NAMES, report)
    spec = good(draft, "spec")
    if spec is not None and check_source(spec, "spec", report):
        _check_spec(spec, "spec", report)
    elif spec is not None and not by_reference:
        report.add("spec.jobRef", "is for Kubernetes only", "use the job file that it refers to")
    raw = value.get("spec") if isinstance(value, dict) else None
    return {"name": name, "spec": spec, "raw": raw}


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


def _object(value: Any, report: Report, by_reference: bool = False) -> Draft:
    """A manifest that did not come as text, whose size nobody has looked at yet."""
    draft = _manifest(value, report, by_reference)
    if not report and len(canonical_json(draft["raw"])) > MANIFEST_BYTES_MAX:
        report.add("spec", f"takes more than {MANIFEST_BYTES_MAX} bytes (1 MiB) as JSON")
    return draft


def _check_spec(spec: Draft, path: str, report: Report) -> None:
    for key in SPEC.keys:
        if not isinstance(key.kind, Entries):
            continue
        for index, draft in enumerate(good(spec, key.field) or ()):
            if draft is not None:
                _check_one(key.yaml, draft, at(at(path, key.yaml), index), report)
    add_edges(spec)
    for rule in JOB:
        rule(spec, path, report)


def _check_one(section: str, draft: Draft, path: str, report: Report) -> None:
    for rule in ENTRY.get(section, ()):
        rule(draft, path, report)


def _build(draft: Draft) -> Job:
    job = SPEC.build(draft["spec"], name=draft["name"])
    assert isinstance(job, Job)
    return job


def _declaration(draft: Draft) -> Declaration:
    declaration = DECLARATION.build(draft["spec"])
    assert isinstance(declaration, Declaration)
    return declaration
