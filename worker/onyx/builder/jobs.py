"""A job that is put together by calls: each gives a new job, and the job before stays as it was.

It holds the manifest, plain data as in a YAML file, and the place where the next call continues:
the tasks from which the next edge begins, and what has been said of the task to come. So a job that
is made here and one that is read from a file are the same thing, and every key can be said in both.

Rejected: objects for streams beside the job, as in Beam and Bytewax. A branch is then a variable,
but there must be a mutable object behind all of them, which depends on the order of the calls.

What it leaves out is filled in as in a file: it has no defaults of its own.

What a call does to the spec of the manifest is pure: it gives another spec.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Unpack

import msgspec
from msgspec import field
from msgspec.structs import replace

from onyx.builder.generated import keys as k
from onyx.builder.generated.plugins import StageOptions
from onyx.builder.running import Runnable
from onyx.builder.types import Aggregation, Fn, Predicate, Sink, Source, WindowShape
from onyx.builder.values import Plain, keys_of, options_of, plain
from onyx.errors import ManifestError, UserError
from onyx.model import job as model
from onyx.model.manifest import API_VERSION, JOB_KIND, OBJECT_SPEC, SECTIONS
from onyx.model.parsing.job import parse_declared, parse_file, to_mapping
from onyx.model.parsing.text import read_text
from onyx.model.parsing.writing import as_yaml
from onyx.model.report import Report, listed, nearest

Flux = Literal["kill", "continue", "recover"]
_WORDS = ("all", "none")


class Job(Runnable):
    """A job: what is read, what is done with it, and where it goes. A value that never changes."""

    __slots__ = ("_manifest", "_place")

    def __init__(self, name: str, /, **keys: Unpack[k.JobKeys]) -> None:
        """An empty job.

        Args:
            name: lower case letters, digits and `-`.
            keys: of the job as a whole: `guarantee`, `engine`, ...
        """
        self._manifest: Plain = {
            "apiVersion": API_VERSION,
            "kind": JOB_KIND,
            "metadata": {"name": name},
            "spec": keys_of(OBJECT_SPEC, keys),
        }
        self._place = ChainEnd()

    @classmethod
    def from_yaml(cls, text: str | bytes, source: str = "manifest") -> Job:
        """The job of a manifest, YAML or JSON; `at` says where to continue.

        Raises:
            ManifestError: it is not valid; with every problem, each with path, file and line.
        """
        job, _ = parse_file(text, source)
        value, _ = read_text(text, Report())
        assert isinstance(value, dict), "what has been parsed is a mapping"
        return cls._holding(_filled(value, job))

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Job:
        """The job of a manifest that was read already."""
        found = copy.deepcopy(dict(manifest))
        with contextlib.suppress(ManifestError):  # it need not be complete
            _, job = parse_declared(found)
            found = found if job is None else _filled(found, job)
        return cls._holding(found)

    @classmethod
    def _holding(cls, manifest: Plain) -> Job:
        made = cls.__new__(cls)
        made._manifest, made._place = manifest, ChainEnd()
        return made

    def to_yaml(self) -> str:
        """The job as a manifest, for `onyx run`, `onyx submit` and `kubectl apply`.

        Raises:
            ManifestError: the job is not valid; with every problem.
        """
        self.build()
        return as_yaml(self._manifest)

    def manifest(self) -> Plain:
        """The manifest as plain data."""
        return copy.deepcopy(self._manifest)

    def read(self, source: Source, *, name: str = "read", **keys: Unpack[k.InputKeys]) -> Job:
        """Add an input; what is added next gets its segments.

        Args:
            source: a plugin with its options: `files("people.csv")`.
            name: of the task.
            keys: of the task: `watermark_key`, `batch_size`, ...
        """
        entry = {"name": name, "type": "input", "plugin": source.plugin}
        return self._added({**entry, **_options(source.options)}, keys)

    def map(self, fn: Fn, /, *, name: str | None = None, **params: Any) -> Job:
        """Add a function of a segment that returns a segment, a list of segments, or nothing.

        Args:
            fn: what is called, with the values of `params` before the segment.
            name: of the task; by default as the function.
            params: leading arguments, in this order. They stand in the options of the task.
        """
        return self._calling("fn", fn, name, params)

    def process(self, processor: Fn, /, *, name: str | None = None, **params: Any) -> Job:
        """Add a processor: a class of your own (`onyx.processors.Processor`).

        Args:
            processor: what is made, with the values of `params`.
            name: of the task; by default as the class.
            params: arguments of the class, in this order. They stand in the options of the task.
        """
        return self._calling("processor", processor, name, params)

    def _calling(self, key: str, fn: Fn, name: str | None, params: Mapping[str, Any]) -> Job:
        called = plain(fn)
        task = name or str(called).rpartition(":")[2]
        entry: Plain = {"name": task, "type": "function", key: called}
        if params:
            entry |= {"params": list(params), "options": plain(params)}
        return self._added(entry, {})

    def spark_stage(
        self, stage: Fn, /, *, name: str | None = None, **options: Unpack[StageOptions]
    ) -> Job:
        """Add a function from DataFrames of Spark to one, in the middle of the job.

        Args:
            stage: the function.
            name: of the task; by default as the function.
            options: where the stage runs and where its files lie.
        """
        called = plain(stage)
        task = name or str(called).rpartition(":")[2]
        entry = {"name": task, "type": "function", "sparkStage": called}
        return self._added({**entry, **_options(options_of(options))}, {})

    def spark_sql(self, text: str, *, name: str = "spark", **options: Unpack[StageOptions]) -> Job:
        """Add a Spark stage that is a query: `select driver, sum(km) from segments group by 1`."""
        entry = {"name": name, "type": "function", "sparkSql": text}
        return self._added({**entry, **_options(options_of(options))}, {})

    def sql(self, text: str, *, name: str = "sql") -> Job:
        """Add SQL in place of a function: `select *, km / hours as speed from segments`."""
        return self._added({"name": name, "type": "function", "sql": text}, {})

    def table(self, name: str, source: Source, **keys: Unpack[k.TableKeys]) -> Job:
        """Add a table, in which others look up rows. The job continues where it did.

        Args:
            name: of the table.
            source: a plugin with its options: `files("products.csv")`.
            keys: of the table: `key`, `version_key`, ...
        """
        self._check_new(name)
        entry = {"name": name, "type": "table", "plugin": source.plugin}
        entry = {**entry, **_options(source.options), **keys_of(SECTIONS["catalog"], keys)}
        return self._with(with_items(self._spec, "catalog", [entry]), self._place)

    def join(self, name: str, /, **keys: Unpack[k.LookupJoinKeys]) -> Job:
        """Add a task whose segments get the row that a table has under their key, or what another
        task keeps there.

        Args:
            name: of the task.
            keys: of the join: `table` or `state`, `key`, `columns`, ...
        """
        return self._added({"name": name, "type": "function"}, {"join": keys})

    def join_streams(self, name: str, /, **keys: Unpack[k.JoinKeys]) -> Job:
        """Add a task that joins what two tasks give, by key and time.

        Args:
            name: of the task.
            keys: of the task: `left` and `right`, each with the `task` that is this side, `how`,
                `within`, ...
        """
        sides = (keys.get("left", {}), keys.get("right", {}))
        tasks = [side["task"] for side in sides if "task" in side]
        return self.at(*tasks)._added({"name": name, "type": "join"}, keys)

    def reduce(self, name: str = "reduce", **keys: Unpack[k.ReduceKeys]) -> Job:
        """Add a task that only gathers segments, in the windows that are put on it."""
        return self._added({"name": name, "type": "reduce"}, keys)

    def write(self, sink: Sink, *, name: str = "write", **keys: Unpack[k.OutputKeys]) -> Job:
        """Add an output. What is added next gets the same segments as this output.

        Args:
            sink: a plugin with its options: `files("out")`.
            name: of the task.
            keys: of the task.
        """
        entry = {"name": name, "type": "output", "plugin": sink.plugin}
        added = self._added({**entry, **_options(sink.options)}, keys)
        return added._at(replace(added._place, at=self._place.at))

    def set(self, **keys: Unpack[k.TaskKeys]) -> Job:
        """Give the latest task more keys: `batch_size`, `n_peers`, `dead_letter`, ..."""
        if self._place.task is None:
            raise UserError("there is no task yet whose keys could be set: begin with read()")
        entry = entry_of(self._spec, self._place.task)
        found = merged(entry, keys_of(SECTIONS["catalog"], keys))
        return self._with(with_entry(self._spec, found), self._place)

    def at(self, *tasks: str) -> Job:
        """Continue after these tasks: what is added next gets the segments of all of them."""
        for task in tasks:
            entry_of(self._spec, task)
        return self._at(ChainEnd(at=tasks, task=tasks[-1] if tasks else None))

    def to(self, *tasks: str) -> Job:
        """Send segments to tasks that are there already."""
        for task in tasks:
            entry_of(self._spec, task)
        place = self._place
        return self._with(joined(self._spec, place, tasks), replace(place, conditions=()))

    def when(self, predicate: Predicate, **keys: Unpack[k.FlowConditionKeys]) -> Job:
        """Send only some segments to what is added next. Once a task has such a condition, its
        other children get only what conditions of their own say.

        Args:
            predicate: a comparison as `(">", "age", 100)`, a function, or a combination of these.
            keys: of the flow condition: `short_circuit`, `exclude_keys`, ...
        """
        condition = {"predicate": plain(predicate), **keys_of(SECTIONS["flowConditions"], keys)}
        conditions = (*self._place.conditions, condition)
        return self._at(replace(self._place, conditions=conditions))

    def condition(
        self,
        predicate: Predicate,
        to: str | Sequence[str],
        *,
        of: str | Sequence[str] | None = None,
        **keys: Unpack[k.FlowConditionKeys],
    ) -> Job:
        """Add a flow condition between tasks that are there already.

        Args:
            predicate: as of `when`.
            to: children, `all` or `none`.
            of: tasks whose segments it is about, or `all`; by default those where the job
                continues.
            keys: of the flow condition: `action`, `thrown_exception`, ...
        """
        source = list(self._place.at) if of is None else plain(of)
        if not source:
            raise UserError("there is no task that the condition could be about: use at()")
        condition = {"from": source, "to": _targets(to), "predicate": plain(predicate)}
        condition |= keys_of(SECTIONS["flowConditions"], keys)
        return self._with(with_items(self._spec, "flowConditions", [condition]), self._place)

    def group_by(
        self,
        by: str | Sequence[str] | Callable[..., Any],
        *,
        flux_policy: Flux | None = None,
        on_missing_key: Literal["fail", "group"] | None = None,
    ) -> Job:
        """Group the segments of the task that is added next: one peer gets all of a group.

        Args:
            by: a key of a segment, several keys, or a function of a segment.
            flux_policy: what happens when a peer of the task leaves.
            on_missing_key: what happens to a segment without one of the keys.
        """
        groups = {"groupByFn" if callable(by) else "groupByKey": plain(by)}
        if flux_policy is not None:
            groups["fluxPolicy"] = flux_policy
        if on_missing_key is not None:
            groups["onMissingKey"] = on_missing_key
        return self._at(replace(self._place, groups=groups))

    def window(
        self,
        shape: WindowShape,
        aggregation: Aggregation,
        *,
        id: str = "window",
        task: str | None = None,
        **keys: Unpack[k.WindowKeys],
    ) -> Job:
        """Aggregate segments in a window.

        Args:
            shape: `fixed("at", "5 minutes")`, `sliding(...)`, `session(...)` or `whole()`.
            aggregation: `"count"`, `("sum", "amount")`, ..., or a function of your own.
            id: of the window.
            task: that has the window. By default, and where there is no task of this name, a task
                of type reduce is added.
            keys: of the window: `allowed_lateness`, `late_to`, ...
        """
        named = task or id
        job = self if task in tasks_of(self._spec) else self.reduce(named)
        window = {"id": id, "task": named, "type": shape.type, "aggregation": plain(aggregation)}
        window |= keys_of(SECTIONS["windows"], {**shape.keys, **keys})
        spec = with_items(job._spec, "windows", [window])
        return job._with(spec, replace(job._place, task=named, window=id))

    def trigger(self, type: Fn, *, window: str | None = None, **keys: Unpack[k.TriggerKeys]) -> Job:
        """Say when a window fires, and what it emits then.

        Args:
            type: `"watermark"`, `"timer"`, `"segment"`, ..., or a function of your own.
            window: id of the window; by default the latest one.
            keys: of the trigger: `emit`, `refinement`, `period`, ...
        """
        window = window or self._place.window
        if window is None:
            raise UserError("there is no window yet that could fire: add one with window()")
        trigger = {"windowId": window, "type": plain(type), **keys_of(SECTIONS["triggers"], keys)}
        return self._with(with_items(self._spec, "triggers", [trigger]), self._place)

    def lifecycle(
        self, calls: Fn, *, task: str | None = None, **keys: Unpack[k.LifecycleKeys]
    ) -> Job:
        """Call functions around the work of a task.

        Args:
            calls: function that returns a mapping from the names of hooks to functions.
            task: whose work it is, or `all`; by default the latest task.
            keys: of the lifecycle.
        """
        found = {"task": task or self._place.task or "all", "calls": plain(calls)}
        found |= keys_of(SECTIONS["lifecycles"], keys)
        return self._with(with_items(self._spec, "lifecycles", [found]), self._place)

    @property
    def _spec(self) -> Plain:
        spec = self._manifest["spec"]
        assert isinstance(spec, dict), "a manifest has a spec"
        return spec

    def _added(self, entry: Plain, keys: Mapping[str, Any]) -> Job:
        """The job with another task, which gets segments from where the job continues."""
        name, place = entry["name"], self._place
        self._check_new(name)
        entry = merged({**entry, **place.groups}, keys_of(SECTIONS["catalog"], keys))
        spec = with_items(self._spec, "catalog", [entry])
        if entry["type"] != "input":
            spec = joined(spec, place, (name,))
        elif place.groups or place.conditions:
            raise UserError(f"{name} is an input: group_by() and when() are about other tasks")
        return self._with(spec, ChainEnd(at=(name,), task=name))

    def _check_new(self, name: str) -> None:
        if name in tasks_of(self._spec):
            raise UserError(f"the job has a task {name!r} already: give this one another name")

    def _with(self, spec: Plain, place: ChainEnd) -> Job:
        made = Job.__new__(Job)
        made._manifest = {**self._manifest, "spec": spec}
        made._place = place
        return made

    def _at(self, place: ChainEnd) -> Job:
        return self._with(self._spec, place)


def _targets(tasks: str | Sequence[str]) -> str | list[str]:
    """Children as flow conditions name them: words stand alone."""
    if isinstance(tasks, str):
        return tasks if tasks in _WORDS else [tasks]
    return list(tasks)


def _options(options: Mapping[str, Any]) -> Plain:
    """The options of a plugin, if it has some."""
    return {"options": dict(options)} if options else {}


def _filled(manifest: Plain, job: model.Job) -> Plain:
    """A manifest with what calls look at: the name of its job, types of tasks, and edges."""
    full = to_mapping(job)
    spec = {"workflow": full["spec"]["workflow"], **manifest["spec"]}
    spec["catalog"] = [
        {"name": task.name, "type": task.type, **entry}
        for task, entry in zip(job.catalog, spec["catalog"], strict=True)
    ]
    metadata = {**full["metadata"], **manifest.get("metadata", {})}
    return {**full, **manifest, "metadata": metadata, "spec": in_order(spec)}


class ChainEnd(msgspec.Struct, frozen=True):
    """Where a job continues, and what has been said of the task that comes next."""

    at: tuple[str, ...] = ()
    """Tasks from which the next edge begins."""
    task: str | None = None
    """The latest task, which `set` is about."""
    window: str | None = None
    """The latest window, which triggers are about."""
    groups: Plain = field(default_factory=dict)
    """How segments of the next task are grouped."""
    conditions: tuple[Plain, ...] = ()
    """Which segments go to the next task."""


def tasks_of(spec: Mapping[str, Any]) -> list[str]:
    """Names of the tasks."""
    return [entry["name"] for entry in spec.get("catalog", ())]


def entry_of(spec: Mapping[str, Any], task: str) -> Plain:
    """The catalog entry of a task.

    Raises:
        UserError: there is none.
    """
    for entry in spec.get("catalog", ()):
        if entry["name"] == task:
            return dict(entry)
    known = tasks_of(spec)
    hint = nearest(task, known) or (f"it has {listed(known)}" if known else "it has none yet")
    raise UserError(f"the job has no task {task!r}: {hint}")


def with_items(spec: Mapping[str, Any], key: str, items: Iterable[Any]) -> Plain:
    """The spec with more items in a list."""
    more = [*spec.get(key, ()), *items]
    return in_order({**spec, key: more} if more else spec)


def with_entry(spec: Mapping[str, Any], entry: Plain) -> Plain:
    """The spec with another entry for the task that it names."""
    catalog = [entry if each["name"] == entry["name"] else each for each in spec["catalog"]]
    return in_order({**spec, "catalog": catalog})


def merged(entry: Plain, keys: Mapping[str, Any]) -> Plain:
    """An entry with more keys; options are put together."""
    found = {**entry, **keys}
    if "options" in entry and "options" in keys:
        found["options"] = {**entry["options"], **keys["options"]}
    return found


def in_order(spec: Mapping[str, Any]) -> Plain:
    """The spec with its keys in the order of the reference."""
    known = [key.yaml for key in OBJECT_SPEC.keys]
    names = sorted(spec, key=lambda name: known.index(name) if name in known else len(known))
    return {name: spec[name] for name in names}


def joined(spec: Mapping[str, Any], place: ChainEnd, children: tuple[str, ...]) -> Plain:
    """The spec with edges from the place to children, under the conditions that were said.

    Raises:
        UserError: there is no task from which they could begin.
    """
    if not place.at:
        raise UserError("there is no task to go on from: begin with read(), or go to one with at()")
    edges = [[parent, child] for parent in place.at for child in children]
    found = with_items(spec, "workflow", edges)
    ends = {"from": list(place.at), "to": list(children)}
    return with_items(found, "flowConditions", ({**ends, **each} for each in place.conditions))
