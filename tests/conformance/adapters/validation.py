"""Cases of `validation.json`: which jobs, entries and bundles are valid.

Our model unites the two eras. The 0.9 column holds, except for a job that uses a key which only
0.10 and later have and we have too (0.9 refuses it merely because it does not know it). Such a job
leaves unsaid what goes without saying there: state is exactly-once, so that repeats need not be
reported, and a trigger without a refinement leaves the state as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from tests.conformance import manifests

from onyx.errors import ManifestError, Problem
from onyx.model.bundle import CheckOptions, add_task, check_entry
from onyx.model.manifest import SECTIONS
from onyx.model.parsing.job import parse_mapping
from onyx.plugins.options import Options, check_options

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_LATER_KEYS = {
    key.origin for section in SECTIONS.values() for key in section.keys if key.era == "0.10+"
}


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    """None when we answer as the case says."""
    return _OPERATIONS[case["op"]](case)


def _job(case: dict[str, Any]) -> str | None:
    later = _is_later(case["job"])
    column = "expected_0.10plus" if later else "expected_0.9"
    manifest = manifests.manifest(case["job"])
    try:
        parse_mapping(_with_defaults(manifest) if later else manifest)
    except ManifestError as error:
        return _verdict(case[column]["valid"], error.problems)
    return _verdict(case[column]["valid"], ())


def _with_defaults(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    triggers = [
        {"refinement": "accumulating", **each} if isinstance(each, dict) else each
        for each in spec.get("triggers", ())
    ]
    return {**manifest, "spec": {"guarantee": "exactly-once", **spec, "triggers": triggers}}


def _is_later(job: Mapping[str, Any]) -> bool:
    entries = [
        entry
        for section in manifests.SECTIONS
        for entry in job.get(section, ())
        if isinstance(entry, dict)
    ]
    if any(entry.get("onyx/type") == "reduce" for entry in entries):
        return True
    return any(key in _LATER_KEYS for entry in entries for key in entry)


def _task_map(case: dict[str, Any]) -> str | None:
    entry = manifests.entry("catalog", case["task_map"])
    return _verdict(case["expected_valid"], check_entry("catalog", entry))


def _analyze(case: dict[str, Any]) -> str | None:
    if case["schema"] == "workflow":
        problems = check_entry("workflow", case["value"])
    else:
        section = _section(case["schema"])
        problems = check_entry(manifests.camel(section), manifests.entry(section, case["value"]))
    wanted = "".join(
        f"[{step}]" if isinstance(step, int) else manifests.camel(step.rpartition("/")[2])
        for step in case["expected_error"]["path"]
    )
    paths = [problem.path for problem in problems]
    return None if wanted in paths else f"no problem at {wanted}, but at {paths}"


def _section(schema: str) -> str:
    """The section of a schema: `task-map`, or the name of one entry, or of the section."""
    names = {"task-map": "catalog", **{each.removesuffix("s"): each for each in manifests.SECTIONS}}
    return names.get(schema, schema)


def _add_task(case: dict[str, Any]) -> str | None:
    bundle = manifests.spec(case["bundle_task"])
    bundle["task"] = manifests.entry("catalog", case["bundle_task"]["task-map"])
    del bundle["taskMap"]
    extra, options = case["extra_schema"], {}
    if extra is not None:
        section = "catalog" if extra["section"] == "task-map" else extra["section"]
        options = {section: _declared(extra["required"])}
    try:
        after = add_task({"taskScheduler": "balanced", "workflow": []}, bundle, options)
    except ManifestError as error:
        return _verdict(case["expected_valid"], error.problems)
    wrong = _verdict(case["expected_valid"], ())
    wanted = {k: v for k, v in manifests.spec(case["job_after"] or {}).items() if v != []}
    got = {key: value for key, value in after.items() if value != []}
    return wrong or (None if got == wanted else f"got {got}")


def _restricted_namespace(case: dict[str, Any]) -> str | None:
    required = {key: kind for key, kind in case["schema"].items() if kind == "string"}
    namespace = next(iter(required)).rpartition("/")[0]
    options = {
        key.rpartition("/")[2]: manifests.text(value)
        for key, value in case["value"].items()
        if key.rpartition("/")[0] == namespace
    }
    return _verdict(case["expected_valid"], tuple(_declared(required)(options)))


def _declared(required: Mapping[str, str]) -> CheckOptions:
    """Checks options of which all in `required` must be there, as text."""
    names = [key.rpartition("/")[2] for key in required]
    fields = [
        (f"option_{number}", _Text, msgspec.field(name=name)) for number, name in enumerate(names)
    ]
    kind = msgspec.defstruct("Declared", fields, bases=(Options,), frozen=True)
    return lambda options: check_options(options, kind)[1]


def _verdict(valid: bool, problems: tuple[Problem, ...]) -> str | None:
    if valid == (not problems):
        return None
    if valid:
        return f"should be valid, but: {'; '.join(str(each) for each in problems)}"
    return "should be invalid, but is valid"


_OPERATIONS: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "validate-job": _job,
    "task-map": _task_map,
    "analyze": _analyze,
    "add-task": _add_task,
    "restricted-namespace": _restricted_namespace,
}
