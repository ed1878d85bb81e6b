"""Rules against keys that would do nothing: somebody who gives one expects something of it.

A key is refused where nothing reads it, with the reason and with what gives it an effect. Triggers
of the user's own may read any key of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

from onyx.model import names
from onyx.model.keys.section import Draft
from onyx.model.kinds import AGGREGATIONS, TRIGGERS, WINDOWS, aggregation_name
from onyx.model.plugins import takes_requests
from onyx.model.report import Report, at, listed
from onyx.model.rules.looking import entries, good, is_grouped, task_names, tasks_with_state, whole

_OF_TRIGGERS: Mapping[str, tuple[str, ...]] = {
    "state_context": (),
    **{kind.key: (kind.name,) for kind in TRIGGERS.values()},
}
"""Triggers of Onyx that read a key."""
_OF_TRACKING = (
    "max_pending", "pending_timeout", "input_retry_timeout", "retry_mode", "checkpoint_segments",
)  # fmt: skip
_OF_ACKERS = (
    "acker_percentage", "ackers", "acker_exempt_input_tasks", "acker_exempt_output_tasks",
    "acker_exempt_tasks",
)  # fmt: skip


def check_condition(draft: Draft, path: str, report: Report) -> None:
    """What is sent nowhere has no keys to remove, and is not made of an exception."""
    nowhere = good(draft, "to") == "none" and "predicate_errors_to" not in draft
    for field in ("exclude_keys", "post_transform") if nowhere else ():
        if good(draft, field):
            _refuse(
                report, path, field, "has no effect with to: none, which sends nothing",
                "remove it, or name children in to",
            )  # fmt: skip


def check_trigger(draft: Draft, path: str, report: Report) -> None:
    """A trigger of Onyx reads only the keys of its type."""
    kind = good(draft, "type")
    if kind is not None and kind not in TRIGGERS and "fire_at_end" in draft:
        _refuse(
            report, path, "fire_at_end", f"has no effect on {kind}, whose functions say what fires",
            "remove it: trigger_fire is asked with event_type job-completed",
        )  # fmt: skip
    if kind not in TRIGGERS:
        return
    if TRIGGERS[kind].fires_all and "fire_all_extents" in draft:
        _refuse(
            report, path, "fire_all_extents",
            f"has no effect on a {kind} trigger, which fires all extents", "remove it",
        )  # fmt: skip
    for field, kinds in _OF_TRIGGERS.items():
        if good(draft, field) is not None and kind not in kinds:
            readers = [*kinds, "your own"]
            _refuse(
                report, path, field, f"has no effect on a {kind} trigger",
                f"it is for triggers of type {listed(readers)}: remove it",
            )  # fmt: skip


def check_window(draft: Draft, path: str, report: Report) -> None:
    """An aggregation of Onyx has its own initial state, and only extents of one length are aligned.
    Extents are kept with their state, always."""
    name = aggregation_name(good(draft, "aggregation"))
    begins = name in AGGREGATIONS and not AGGREGATIONS[name].takes_init
    if begins and draft.get("init") is not None:
        taking = [kind.name for kind in AGGREGATIONS.values() if kind.takes_init]
        readers = listed([*taking, "your own"])
        _refuse(
            report, path, "init", f"has no effect on {name}, which begins by itself",
            f"it is for aggregations {readers}: remove it",
        )  # fmt: skip
    kind = good(draft, "type")
    if kind is not None and not WINDOWS[kind].aligned and "min_value" in draft:
        _refuse(
            report, path, "min_value", f"has no effect on a {kind} window",
            "it is for fixed and sliding windows, whose extents are aligned to it: remove it",
        )  # fmt: skip
    kept = good(draft, "storage_strategy") or ()
    if "extents" in kept and "incremental" not in kept:
        _refuse(
            report, path, "storage_strategy", "has extents, which stores the same as incremental",
            "give [incremental] or [ordered-log], or leave it out",
        )  # fmt: skip


def check_windowed_tasks(spec: Draft, path: str, report: Report) -> None:
    """Repeats are looked for by windows; a state that is not split is one peer's."""
    if "windows" in spec and not whole(spec, "windows"):
        return
    windowed = {good(draft, "task") for draft, _ in entries(spec, "windows", path, "windows")}
    if not windowed <= task_names(spec):
        return
    stateful = tasks_with_state(spec, path)
    for draft, where in entries(spec, "catalog", path, "catalog"):
        if good(draft, "name") not in stateful:
            for field in ("uniqueness_key", "deduplicate"):
                if good(draft, field) is not None:
                    _refuse(
                        report, where, field, "has no effect on a task without windows or state",
                        "remove it: only they look for repeated segments",
                    )  # fmt: skip
        elif not is_grouped(draft) and "processor" not in draft:
            for field in ("min_peers", "n_peers"):
                if (good(draft, field) or 1) > 1:
                    _refuse(
                        report, where, field,
                        "is above 1, but without groups one peer holds all windows of a task, and "
                        "the others would be idle",
                        "add groupByKey or groupByFn, or leave it out",
                    )  # fmt: skip


def check_shares(spec: Draft, path: str, report: Report) -> None:
    """Only the percentage scheduler reads the shares of tasks."""
    if good(spec, "task_scheduler") == "percentage":
        return
    for draft, where in entries(spec, "catalog", path, "catalog"):
        if good(draft, "percentage") is not None:
            _refuse(
                report, where, "percentage", "has no effect under this task scheduler",
                "add taskScheduler: percentage, or remove it",
            )  # fmt: skip


def check_local_only(spec: Draft, path: str, report: Report) -> None:
    """Only the colocated scheduler has each task in each process of the job."""
    if good(spec, "local_only") is not None and good(spec, "task_scheduler") != "colocated":
        _refuse(
            report, path, "local_only", "has no effect under this task scheduler",
            "add taskScheduler: colocated, or remove it",
        )  # fmt: skip


def check_tracking(spec: Draft, path: str, report: Report) -> None:
    """At most once, nothing is accounted for and nothing replayed."""
    nothing = good(spec, "guarantee") == "at-most-once"
    for field in _OF_ACKERS if nothing else ():
        if good(spec, field) is not None:
            _refuse(report, path, field, _NOT_TRACKED, "remove it")
    for draft, where in entries(spec, "catalog", path, "catalog"):
        if not nothing and good(draft, "guarantee") != "at-most-once":
            continue
        for field in _OF_TRACKING:
            if good(draft, field) is not None:
                _refuse(report, where, field, _NOT_TRACKED, "remove it")


def check_ack_returns(spec: Draft, path: str, report: Report) -> None:
    """Values go back to whoever sent a request, with the acks."""
    if not good(spec, "ack_returns"):
        return
    if good(spec, "engine") == "spark":
        why = "is not for engine: spark, where nothing travels back along the segments"
        _refuse(report, path, "ack_returns", why, "run the job on peers")
    elif good(spec, "guarantee") == "at-most-once":
        why = "is not for guarantee: at-most-once, where nobody hears what became of a segment"
        _refuse(report, path, "ack_returns", why, "choose at-least-once or exactly-once")
    elif not any(
        takes_requests(good(draft, "type") or "", good(draft, "plugin"))
        for draft, _ in entries(spec, "catalog", path, "catalog")
    ):
        why = "has no effect without an input that takes requests"
        _refuse(report, path, "ack_returns", why, "add an input with plugin: requests")


_NOT_TRACKED = "has no effect under guarantee: at-most-once, where nothing is replayed"


def _refuse(report: Report, path: str, field: str, why: str, hint: str) -> None:
    report.add(at(path, names.yaml_key(field)), why, hint)
