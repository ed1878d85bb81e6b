"""Rules of `spec.engine`, and of that of a window: what its choice gives a meaning, and what it
takes away.

Keys that only say how peers share the work stay allowed on Spark, so that the same manifest runs on
either engine. What Spark cannot express is found by its compiler, which `onyx.submission` asks.

With `engine: spark` on a window, Spark aggregates groups, and peers decide which extents fire. So
what looks at single segments, or computes in Python, stays on peers; it is refused here with its
key rather than run otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

from onyx.model import names
from onyx.model.keys.section import Draft
from onyx.model.kinds import AGGREGATIONS, TRIGGERS, WINDOWS, aggregation_name
from onyx.model.plugins import may_be_endless
from onyx.model.report import Report, at, show
from onyx.model.rules.looking import entries, good
from onyx.model.secrets import secrets_in
from onyx.model.spark_settings import malformed

_OF_PEERS = {
    "checkpoint_segments": "each micro-batch and each query is one commit: remove it",
    "segments_per_second_max": "a query reads all that there is, and a micro-batch what has come; "
    "remove it, or run the job on peers",
    "first_failures_max": "partitions of a query know nothing of each other, and its counts come "
    "at the end; remove it (a run of which all failed ends with 1), or run the job on peers",
    "when_idle": "a micro-batch begins when something has come, and a query over bounded inputs "
    "fires all windows at its end; remove it, or run the job on peers",
}
"""Keys whose author relies on what Spark does not do, with what to do about it."""
_BOUNDED = "is not for engine: spark over inputs with an end, whose query is one commit"


def check_settings(spec: Draft, path: str, report: Report) -> None:
    """Spark can read the settings that it gets."""
    section = good(spec, "spark")
    conf = None if section is None else good(section, "spark_conf")
    given = [(at(at(path, "spark"), "sparkConf"), conf)]
    for problem in secrets_in({"sparkConf": conf}) if isinstance(conf, Mapping) else ():
        report.add(at(at(path, "spark"), problem.path), problem.message, problem.hint)
    for draft, where in entries(spec, "catalog", path, "catalog"):
        options = good(draft, "options") or {}
        given.append((at(at(where, "options"), "sparkConf"), options.get("sparkConf")))
    for where, settings in given:
        for problem in malformed(where, settings) if isinstance(settings, Mapping) else ():
            report.add(problem.path, problem.message, problem.hint)


def check_engine(spec: Draft, path: str, report: Report) -> None:
    """A query of Spark does not do what only peers do, and one with an end continues no job."""
    if good(spec, "engine") != "spark":
        return
    if "max_drift" in spec:
        hint = "a query reads all that there is, and a micro-batch what has come, of all inputs at "
        hint += "once; remove it, or run the job on peers"
        report.add(at(path, "maxDrift"), "is not for engine: spark", hint)
    for draft, where in entries(spec, "catalog", path, "catalog"):
        for field, hint in _OF_PEERS.items():
            if good(draft, field) not in (None, False):
                report.add(at(where, names.yaml_key(field)), "is not for engine: spark", hint)
        if good(good(draft, "join") or {}, "state") is not None:
            hint = "the fragments of a query run one after the other: run the job on peers"
            report.add(at(at(where, "join"), "state"), "is not for engine: spark", hint)
    if not _may_be_endless(spec):
        if good(spec, "upgrade") is not None:
            hint = "remove it; kill the old job and submit this one, which reads all of its inputs"
            report.add(at(path, "upgrade"), _BOUNDED, hint)
        if good(spec, "upgrade_policy") == "KeepState":
            what = f"KeepState {_BOUNDED}"
            report.add(at(path, "upgradePolicy"), what, "choose another policy")


def _may_be_endless(spec: Draft) -> bool:
    """Whether an input may have no end; one that cannot be read is not blamed here."""
    return None in (good(spec, "catalog") or (None,)) or any(
        good(draft, "type") == "input"
        and may_be_endless(good(draft, "plugin") or "", good(draft, "options") or {})
        for draft, _ in entries(spec, "catalog", "", "catalog")
    )


_PEERS = "or use engine: peers for the window"
_BY_WATERMARK = [each.name for each in TRIGGERS.values() if each.looks_at == "watermarks"]
_TAKEN = [each.name for each in TRIGGERS.values() if each.looks_at == "clock"] + _BY_WATERMARK


def check_windows(spec: Draft, path: str, report: Report) -> None:
    """What a window by Spark, its triggers and its job ask of each other."""
    by_spark: dict[str, Draft] = {}
    for draft, where in entries(spec, "windows", path, "windows"):
        if good(draft, "engine") == "spark":
            _check_job(spec, where, report)
            _check_window(draft, where, _assigned(spec, path), report)
            by_spark[good(draft, "id") or ""] = draft
    looking: dict[str, str] = {}
    for draft, where in entries(spec, "triggers", path, "triggers"):
        window = by_spark.get(good(draft, "window_id") or "")
        if window is not None:
            _check_trigger(draft, where, good(window, "type"), _assigned(spec, path), report)
            _check_single(draft, where, looking, report)


def _check_job(spec: Draft, path: str, report: Report) -> None:
    if good(spec, "guarantee") == "at-most-once":
        what = "is spark under guarantee at-most-once, whose windows are in memory only"
        report.add(at(path, "engine"), what, f"choose another guarantee, {_PEERS}")
    if good(spec, "engine") == "spark":
        return  # the key has no effect
    if good(spec, "upgrade") is not None:
        what = "is spark in a job that upgrades another one, whose files Spark cannot take over"
        report.add(at(path, "engine"), what, f"remove upgrade, {_PEERS}")
    if good(spec, "upgrade_policy") == "KeepState":
        what = "is spark, but upgradePolicy is KeepState, and its state cannot be carried over"
        report.add(at(path, "engine"), what, f"choose another policy, {_PEERS}")


def _check_window(draft: Draft, path: str, assigned: bool, report: Report) -> None:
    name = aggregation_name(good(draft, "aggregation"))
    kind = AGGREGATIONS.get(name)
    if name and kind is None:
        what = f"is {show(name)} with engine spark, and its states are made and merged in Python"
        report.add(at(path, "aggregation"), what, f"take {', '.join(AGGREGATIONS)}, {_PEERS}")
    first = good(draft, "init")
    if kind is not None and kind.takes_init and first is not None and not _is_number(first):
        what = "is no number, and Spark compares numbers"
        report.add(at(path, "init"), what, f"give a number, {_PEERS}")
    if good(draft, "allowed_lateness") is None:
        return
    window_type = good(draft, "type")
    if window_type is not None and not WINDOWS[window_type].known:
        what = "is for sessions with engine spark, and what is late depends on sessions in files"
        report.add(at(path, "allowedLateness"), what, f"leave it out, {_PEERS}")
    elif not assigned:
        what = "with engine spark needs watermarks of inputs: without, each segment is one"
        hint = f"give an input watermarkKey or assignWatermarkFn, {_PEERS}"
        report.add(at(path, "allowedLateness"), what, hint)


def _check_trigger(
    draft: Draft, path: str, window_type: str | None, assigned: bool, report: Report
) -> None:
    kind, refinement = good(draft, "type"), good(draft, "refinement")
    if kind is not None and kind not in _TAKEN:
        what = f"is {show(kind)}, which looks at each segment, and the window has engine spark"
        report.add(at(path, "type"), what, f"take {', '.join(_TAKEN)}, {_PEERS}")
    elif kind in _BY_WATERMARK and not assigned and not _ends_only(draft, window_type):
        what = f"is {kind}, but no input assigns watermarks, so each segment would be one"
        hint = f"give an input watermarkKey or assignWatermarkFn, {_PEERS}"
        report.add(at(path, "type"), what, hint)
    if good(draft, "fire_at_end") == "changed":
        what = "is changed, but with engine spark nothing notes which groups have fired"
        report.add(at(path, "fireAtEnd"), what, f"take always or never, {_PEERS}")
    if refinement is not None and refinement not in names.REFINEMENTS:
        what = f"is {show(refinement)}, which changes states in Python, with engine spark"
        report.add(at(path, "refinement"), what, f"take accumulating or discarding, {_PEERS}")


def _ends_only(draft: Draft, window_type: str | None) -> bool:
    """Whether the trigger fires with the end of the job alone, as there is no other end."""
    kind = TRIGGERS.get(good(draft, "type") or "")
    plain = kind is not None and kind.settled and not good(draft, "fire_all_extents")
    return plain and window_type is not None and WINDOWS[window_type].single


def _check_single(draft: Draft, path: str, looking: dict[str, str], report: Report) -> None:
    """Groups that wait for a watermark are noted once a window."""
    if good(draft, "type") not in _BY_WATERMARK:
        return
    first = looking.setdefault(good(draft, "window_id") or "", path)
    if first != path:
        what = f"is the second trigger by watermarks of a window with engine spark, after {first}"
        report.add(at(path, "type"), what, f"keep one of them, {_PEERS}")


def _assigned(spec: Draft, path: str) -> bool:
    """Whether an input assigns watermarks, or may: one that cannot be read is not blamed here."""
    if None in (good(spec, "catalog") or (None,)):
        return True
    return any(
        "assign_watermark_fn" in draft or "watermark_key" in draft
        for draft, _ in entries(spec, "catalog", path, "catalog")
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
