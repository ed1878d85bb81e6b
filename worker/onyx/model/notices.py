"""What a valid job says that has no effect: warnings, for who validates, runs or applies it.

Rules refuse a key that nothing ever reads (`rules.unused_keys`). Here are those that are right in
another document: for readers, under another engine, with windows, on Kubernetes. The same manifest
runs everywhere, but its author may expect an effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

from onyx.base.structs import fields
from onyx.errors import Problem
from onyx.model import names
from onyx.model.combining import assigns_watermarks
from onyx.model.declaration import Declaration
from onyx.model.job import CatalogEntry, FlowCondition, Job, Trigger
from onyx.model.keys.predicate import has_function
from onyx.model.kinds import AGGREGATIONS, EMIT_ROWS, TRIGGERS, WINDOWS, aggregation_name
from onyx.model.plugins import runs_spark
from onyx.model.report import PROBLEMS_MAX, at
from onyx.model.requests import windows_asked_for
from onyx.model.spark_settings import spark_notices
from onyx.model.workflow import ancestors, stateful_tasks

TASKS_NAMED_MAX = 8
_OF_PEERS = (
    "min_peers", "max_peers", "n_peers", "max_pending", "pending_timeout", "input_retry_timeout",
    "batch_size", "batch_timeout", "percentage", "cooperative", "guarantee", "anchored",
    "retry_mode",
)  # fmt: skip
_OF_PEERS_OF_A_JOB = (
    "task_scheduler", "local_only", "acker_percentage", "ackers", "acker_exempt_input_tasks",
    "acker_exempt_output_tasks", "acker_exempt_tasks",
)  # fmt: skip
_OF_EVENT_TIME = (
    "watermark_key", "assign_watermark_fn", "allowed_disorder", "idle_timeout", "when_idle",
)  # fmt: skip
_OF_FN = ("params", "batch_fn")
_OF_GROUPS = ("group_by_key", "group_by_fn")
_INSTEAD = {
    "desired_state": "`onyx suspend` and `onyx drain` do the same",
    "upgrade_policy": "`onyx submit --upgrade JOB` continues a job",
    "cluster_ref": "--zookeeper and --tenancy name a cluster",
}
"""What has the effect of a key for who uses the command line."""


MISREAD_MAX = 4
"""Such warnings of one object: a list of segments would repeat the same."""
_BOOLEAN_WORDS = {"true": "y, yes or on", "false": "n, no or off"}


def misread_words(spec: Any) -> tuple[Problem, ...]:
    """Keys and values of an object's spec that may have been other words: kubectl makes `"false"`
    of a key `n`, and false of the country in `[de, no]`. The first of them."""
    return tuple(islice(_misread(spec, "spec"), MISREAD_MAX))


def _misread(value: Any, path: str) -> Iterator[Problem]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            if key in _BOOLEAN_WORDS:
                yield _quote(key, at(path, key))
            yield from _misread(each, at(path, str(key)))
    elif isinstance(value, list):
        texts = _keys_of_texts(value)
        for index, each in enumerate(value):
            where = at(path, index)
            for key, inner in each.items() if isinstance(each, Mapping) else ((None, each),):
                if isinstance(inner, bool) and key in texts:
                    yield _quote(str(inner).lower(), where if key is None else at(where, str(key)))
            yield from _misread(each, where)


def _keys_of_texts(values: list[Any]) -> set[Any]:
    """Where items of a list have texts: under which keys; None: they are texts themselves."""
    found = set[Any]()
    for each in values:
        pairs = each.items() if isinstance(each, Mapping) else ((None, each),)
        found.update(key for key, inner in pairs if isinstance(inner, str))
    return found


def _quote(word: str, path: str) -> Problem:
    words = f"is perhaps {_BOOLEAN_WORDS[word]} in your file"
    message = f"{words}, which kubectl reads as {word} where it is not in quotes"
    return Problem(path, message, "quote it")


def notices(job: Job) -> tuple[Problem, ...]:
    """A notice for each key of the job that has no effect in it, of the first hundred."""
    found = (
        _of_tasks(job),
        _of_states(job),
        _of_conditions(job),
        _of_left_out(job),
        _of_windows(job),
        _of_triggers(job),
        _of_event_time(job),
        _of_joins(job),
        _of_requests(job),
        _of_the_engine(job),
        spark_notices(job),
    )
    return tuple(islice(chain.from_iterable(found), PROBLEMS_MAX))


def unused_declaration(declared: Declaration) -> tuple[Problem, ...]:
    """A notice for each key that only the operator reads, for who uses the command line."""
    default = Declaration()
    return tuple(
        Problem(
            at("spec", names.yaml_key(each.name)),
            "is for the operator on Kubernetes: `onyx run` and `onyx submit` ignore it",
            _INSTEAD.get(each.name, "remove it, or apply the file with kubectl"),
        )
        for each in fields(Declaration)
        if getattr(declared, each.name) != getattr(default, each.name)
    )


def _of_tasks(job: Job) -> Iterator[Problem]:
    for index, entry in enumerate(job.catalog):
        path = at("spec.catalog", index)
        if entry.medium is not None:
            yield Problem(
                at(path, "medium"),
                "is for readers of the job only, and has no effect",
                "the plugin decides what is read or written",
            )
        for field in _given(entry, _OF_FN) if _calls_nothing(entry) else ():
            what = "has no effect on a task without fn"
            yield Problem(at(path, names.yaml_key(field)), what, "remove it, or add fn")
        for field in () if stateful_tasks(job) else _given(entry, _OF_EVENT_TIME):
            what = "is of no use in a job without windows or state, which alone go by event time"
            yield Problem(at(path, names.yaml_key(field)), what, "remove it, or add windows")
        if job.guarantee == "exactly-once" and not entry.deduplicate:
            what = "is false under guarantee: exactly-once, which applies no segment twice"
            yield Problem(at(path, "deduplicate"), what, "remove it, or take another guarantee")
        if entry.batch_size == 1 and job.engine != "spark" and _given(entry, ("batch_timeout",)):
            what = "has no effect with batchSize: 1, as a batch with one segment is full"
            yield Problem(at(path, "batchTimeout"), what, "remove it, or make batchSize larger")
        for field in _given(entry, _OF_GROUPS) if entry.stage is not None else ():
            what = "has no effect on what the stage gets: all groups are in the same DataFrame"
            hint = "remove it with fluxPolicy, and group in the stage"
            yield Problem(at(path, names.yaml_key(field)), what, hint)


def _of_states(job: Job) -> Iterator[Problem]:
    """States of several tasks that look like one."""
    first: dict[tuple[object, ...], str] = {}
    for index, entry in enumerate(job.catalog):
        for state, kind in (entry.state or {}).items():
            alike = state, kind, entry.group_by_key, entry.group_by_fn
            other = first.setdefault(alike, entry.name)
            if other != entry.name:
                what = f"is another one than that of {other}: no two tasks share a state"
                hint = (
                    "if they mean one, let one task get the segments of both, or read it by join: "
                    f"{{state: {other}.{state}}}"
                )
                path = at(at("spec.catalog", index), "state")
                yield Problem(at(path, state), what, hint)


def _of_conditions(job: Job) -> Iterator[Problem]:
    for index, condition in enumerate(job.flow_conditions):
        if condition.options and not has_function(condition.predicate):
            what = "has no effect where the predicate names no function"
            yield Problem(at(at("spec.flowConditions", index), "options"), what, "remove it")


def _of_left_out(job: Job) -> Iterator[Problem]:
    """Edges along which no flow condition sends anything, though the task has some."""
    for index, (parent, child) in enumerate(job.workflow):
        mine = [each for each in job.flow_conditions if {parent, "all"} & {*each.from_tasks}]
        apart = child in job.late_children(parent) or child == job.entry(parent).dead_letter
        ordinary = any(each.from_task != "all" and not each.thrown_exception for each in mine)
        if ordinary and not apart and not any(_may_send(each, child) for each in mine):
            what = f"leads to {child}, which no flow condition of {parent} sends anything to"
            hint = f"add a condition from {parent} to {child}: without one it gets nothing"
            yield Problem(at("spec.workflow", index), what, hint)


def _may_send(condition: FlowCondition, child: str) -> bool:
    targets = (condition.to, condition.predicate_errors_to)
    return any(each == "all" or (each != "none" and child in (each or ())) for each in targets)


def _of_windows(job: Job) -> Iterator[Problem]:
    for index, window in enumerate(job.windows):
        path = at("spec.windows", index)
        name = aggregation_name(window.aggregation)
        if window.options and name in AGGREGATIONS:
            what = f"is read by no aggregation of Onyx, as {name} is"
            hint = "functions of its triggers find it in the window that they get"
            yield Problem(at(path, "options"), what, hint)
        if WINDOWS[window.type].single and window.range is not None:
            what = f"has no effect on a {window.type} window, which has one extent for all segments"
            yield Problem(at(path, "range"), what, "remove it, or choose another type")
        unordered = "ordered-log" not in window.storage_strategy
        if WINDOWS[window.type].single and window.window_key is not None and unordered:
            what = f"has no effect on a {window.type} window, which has one extent for all segments"
            yield Problem(at(path, "windowKey"), what, "remove it, or choose another type")


def _of_triggers(job: Job) -> Iterator[Problem]:
    """What triggers say that nobody reads, as their other keys are."""
    for index, trigger in enumerate(job.triggers):
        path = at("spec.triggers", index)
        if trigger.refinement is not None and "all" in trigger.post_evictor:
            what = "has no effect beside postEvictor: [all], by which an extent goes after it fired"
            yield Problem(at(path, "refinement"), what, "remove one of them")
        if trigger.options and not _calls_functions(trigger):
            what = "is read by nobody: the trigger calls no function of yours"
            yield Problem(at(path, "options"), what, "remove it")


def _calls_functions(trigger: Trigger) -> bool:
    """Whether a function of the user gets the trigger."""
    refines = "all" not in trigger.post_evictor and trigger.refinement not in names.REFINEMENTS
    return (
        trigger.type not in TRIGGERS
        or trigger.pred is not None
        or trigger.sync is not None
        or trigger.emit not in (None, EMIT_ROWS)
        or refines
    )


def _of_event_time(job: Job) -> Iterator[Problem]:
    """Triggers by event time that fire less, or no more, than their keys say."""
    assigned = any(map(assigns_watermarks, job.catalog))
    kinds = {window.id: window.type for window in job.windows}
    for index, trigger in enumerate(job.triggers):
        if trigger.type not in ("watermark", "percentile-watermark"):
            continue
        path, kind = at("spec.triggers", index), kinds[trigger.window_id]
        if WINDOWS[kind].single:
            what = (
                f"fires only when the job ends: a {kind} window has no end that a watermark passes"
            )
            yield Problem(at(path, "type"), what, "use segment or timer where a job has no end")
        elif not assigned:
            what = (
                f"is {trigger.type}, but no input says how far event time has come: each segment "
                "does, so one that is ahead makes extents fire before the others have come"
            )
            yield Problem(at(path, "type"), what, "give an input watermarkKey or assignWatermarkFn")
        elif trigger.fire_all_extents:
            what = "has no effect where inputs assign watermarks: each extent fires when it is over"
            yield Problem(at(path, "fireAllExtents"), what, "remove it")


def _of_joins(job: Job) -> Iterator[Problem]:
    """Joins of two streams that no event time reaches."""
    for index, entry in enumerate(job.catalog):
        above = ancestors(job.workflow, entry.name) if entry.sides else frozenset()
        if above and not any(assigns_watermarks(job.entry(each)) for each in above):
            what = (
                "keeps all segments until the job ends, and what meets none comes then: no input "
                "before it says how far event time has come"
            )
            path = at(at("spec.catalog", index), "left")
            yield Problem(path, what, "give the inputs watermarkKey or assignWatermarkFn")


def _of_requests(job: Job) -> Iterator[Problem]:
    """What is made of segments of requests, and belongs to none of these."""
    for task in windows_asked_for(job) if job.ack_returns else ():
        what = f"gets nothing from tasks behind {task}: what windows emit belongs to no request"
        yield Problem("spec.ackReturns", what, "give values back before the windows")


def _of_the_engine(job: Job) -> Iterator[Problem]:
    """One notice about all keys for peers: a manifest for either engine has many."""
    if job.engine != "spark":
        if job.spark is not None and not _uses_spark(job):
            what = "has no effect here, because nothing of this job runs on Spark"
            yield Problem("spec.spark", what, "it is for `--engine spark`, or engine: spark")
        return
    found = [names.yaml_key(field) for field in _given(job, _OF_PEERS_OF_A_JOB)]
    for field in _OF_PEERS:
        tasks = [each.name for each in job.catalog if _given(each, (field,))]
        if field == "batch_size":
            tasks = [name for name in tasks if not _takes_batches(job.entry(name))]
        if tasks:
            more = ", ..." if len(tasks) > TASKS_NAMED_MAX else ""
            named = ", ".join(tasks[:TASKS_NAMED_MAX])
            found.append(f"{names.yaml_key(field)} ({named}{more})")
    lost = [each.name for each in job.catalog if each.flux_policy in ("kill", "recover")]
    if lost:
        found.append(f"fluxPolicy ({', '.join(lost[:TASKS_NAMED_MAX])})")
    if not all(each.anchored for each in job.flow_conditions):
        found.append("anchored (flowConditions)")
    if found:
        what = f"is spark, on which keys for peers have no effect: {', '.join(found)}"
        yield Problem("spec.engine", what, "Spark splits the work itself; spark.sparkConf tunes it")


def _uses_spark(job: Job) -> bool:
    """Whether Spark runs a stage or a window of a job on peers, or makes what an input reads."""
    return any(each.engine == "spark" for each in job.windows) or any(
        each.stage is not None or runs_spark(each.type, each.plugin) for each in job.catalog
    )


def _given(entry: CatalogEntry | Job, names_of_fields: tuple[str, ...]) -> list[str]:
    """Fields that are not as they are by default."""
    defaults = {each.name: each.default for each in fields(type(entry))}
    return [name for name in names_of_fields if getattr(entry, name) != defaults[name]]


def _calls_nothing(entry: CatalogEntry) -> bool:
    return entry.maker is None and entry.stage is None


def _takes_batches(entry: CatalogEntry) -> bool:
    """Whether a function of the task sees how many segments a batch has."""
    return entry.fn is not None and (entry.batch_fn or entry.batch_format == "arrow")
