"""The functions that a job names, looked up beside its file: by `onyx run` and `onyx validate`.

They are looked at before anything runs, whether they can be called as Onyx calls them: a function
of the wrong arity fails for each of a million segments. Functions that stand for others (`calls` of
lifecycles, a user's aggregations, triggers and refinements) are called, as every worker does that
starts the task, and what they return is looked at too. A function whose signature cannot be read is
left to fail when it is called.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from onyx.cli.job_file import refuse
from onyx.errors import NameNotRegistered, Problem, SettingsError, describe
from onyx.model.functions import function_names
from onyx.model.job import CatalogEntry, Job
from onyx.model.kinds import EMIT_ROWS, TRIGGERS, aggregation_name
from onyx.model.names import COMBINATORS, COMPARISONS, SQL, is_function
from onyx.model.report import at
from onyx.processes.surroundings import settings
from onyx.settings import Settings
from onyx.user_code.resolve import Resolver


def named_modules(job: Job) -> list[str]:
    """Modules of the functions that a job names, those that only look like names left out."""
    named = {path: name.partition(":")[0] for path, name in function_names(job)}
    return sorted({m for path, m in named.items() if not in_options(path) or exists(m)})


def wrong_here(job: Job, found: Settings, absent: Sequence[Problem] = ()) -> list[Problem]:
    """Functions of a job that are not in the modules of these settings, or cannot be called as Onyx
    calls them.

    Args:
        job: that names them.
        found: settings with the modules.
        absent: what `missing` says, and is not said again.

    Raises:
        SettingsError: a module that the job does not name cannot be imported.
    """
    paths = {each.path for each in absent}

    def skipped(path: str) -> bool:
        return in_options(path) or path in paths

    return wrong_functions(job, found.modules, found.fn_params, skipped)


def check_functions(job: Job, file: Path, found: Settings, absent: Sequence[Problem] = ()) -> None:
    """Look up the functions of a job; arguments as of `wrong_here`.

    Raises:
        ManifestError: some are wrong; with task, file and line of each.
        SettingsError: as `wrong_here`.
    """
    refuse(wrong_here(job, found, absent), file)


def check_those_here(job: Job, file: Path, modules: list[str] | None) -> list[Problem]:
    """Look up the functions of a job in these modules, or in those that it names and that are on
    this machine; warnings about the others.

    Raises:
        ManifestError: as `check_functions`.
    """
    if modules:
        check_functions(job, file, settings(modules=modules))
        return []
    absent = missing(job, settings().modules)
    check_functions(job, file, settings(modules=modules_here(job)), absent)
    return absent


def modules_here(job: Job) -> list[str]:
    """Modules of the functions that a job names, as far as they are on this machine."""
    return [each for each in named_modules(job) if exists(each)]


def missing(job: Job, modules: Sequence[str]) -> list[Problem]:
    """Names of functions whose modules are not on this machine, and are none of `modules`."""
    return [
        Problem(path, f"module {module} is not here, so {name} was not looked up")
        for path, name in function_names(job)
        for module in [name.partition(":")[0]]
        if module not in modules and not in_options(path) and not exists(module)
    ]


def in_options(path: str) -> bool:
    """Text there may look like a function's name and be something else; its plugin knows."""
    return ".options." in path


def exists(module: str) -> bool:
    """Whether there is such a module; one whose package cannot be imported is there."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
    except BaseException:
        return True


Function = Callable[..., Any]
FnParams = Mapping[str, Sequence[Any]]

_HOOK = "event, lifecycle"
HOOKS = {
    "after_ack_segment": "event, message_id, lifecycle",
    "after_retry_segment": "event, message_id, lifecycle",
    "handle_exception": "event, lifecycle, phase, exception",
}
AGGREGATION = {
    "init": "window",
    "create_state_update": "window, state, segment",
    "apply_state_update": "window, state, update",
    "super_aggregation": "window, state, other",
    "init_array": "window, count",
    "fold_array": "window, states, groups, rows",
    "merge_array": "window, states, others",
}
TRIGGER = {
    "init_state": "trigger",
    "next_state": "trigger, state, state_event",
    "trigger_fire": "trigger, state, state_event",
}
REFINEMENT = {
    "create_state_update": "trigger, state, state_event",
    "apply_state_update": "trigger, state, update",
}
FIRED = "event, window, trigger, state_event, state"


class _Use(msgspec.Struct, frozen=True):
    """A function of a job, and how it is called."""

    path: str
    name: str
    arguments: tuple[str, ...]
    returns: Mapping[str, str] | None = None
    """The functions of a function that stands for others: their arguments, by name."""
    is_processor: bool = False
    """Whether it is a class in place of a function."""


def wrong_functions(
    job: Job, modules: Sequence[str], fn_params: FnParams, skipped: Callable[[str], bool]
) -> list[Problem]:
    """Everything that is wrong with the functions of a job, each with its key path.

    Args:
        modules: whose functions a job may name.
        fn_params: leading arguments of functions by task, which the worker is started with.
        skipped: paths at which text may look like a function and be none.

    Raises:
        SettingsError: a module cannot be imported.
    """
    named = {name.partition(":")[0]: path for path, name in reversed([*function_names(job)])}
    broken = dict(_broken(modules, named))
    resolver = Resolver([each for each in modules if each not in broken])
    problems = [Problem(named[module], why) for module, why in broken.items()]
    found: dict[str, Function] = {}
    for path, name in function_names(job):
        if name.partition(":")[0] in broken:
            continue
        try:
            found[name] = resolver.resolve(name)
        except NameNotRegistered as error:
            if not skipped(path):
                problems.append(Problem(path, str(error)))
    for use in _uses(job, fn_params):
        if use.name in found:
            problems += _checked(found[use.name], use)
    return problems


def _broken(modules: Sequence[str], named: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Modules that the job names and that cannot be imported, and why."""
    for module in modules:
        try:
            Resolver((module,))
        except SettingsError as error:
            if module in named:
                yield module, str(error)


def _uses(job: Job, fn_params: FnParams) -> Iterator[_Use]:
    for index, entry in enumerate(job.catalog):
        yield from _of_entry(entry, at("spec.catalog", index), fn_params)
    for index, condition in enumerate(job.flow_conditions):
        path = at("spec.flowConditions", index)
        new = "record_batch" if condition.batch_format == "arrow" else "old, new, all_new"
        yield from _of_predicate(at(path, "predicate"), condition.predicate, f"event, {new}")
        if condition.post_transform is not None:
            where = at(path, "postTransform")
            yield _use(where, condition.post_transform, "event, segment, error")
    for index, lifecycle in enumerate(job.lifecycles):
        path = at(at("spec.lifecycles", index), "calls")
        yield _Use(path, lifecycle.calls, (), HOOKS)
    for index, window in enumerate(job.windows):
        name = aggregation_name(window.aggregation)
        path = at(at("spec.windows", index), "aggregation")
        yield _Use(path, name, (), AGGREGATION)
    for index, trigger in enumerate(job.triggers):
        path = at("spec.triggers", index)
        for key, value in (("sync", trigger.sync), ("emit", trigger.emit)):
            if value is not None and value != EMIT_ROWS:
                yield _use(at(path, key), value, FIRED)
        if trigger.pred is not None and trigger.type in TRIGGERS:
            yield _use(at(path, "pred"), trigger.pred, "trigger, state_event")
        yield _Use(at(path, "type"), trigger.type, (), TRIGGER)
        if trigger.refinement is not None:
            yield _Use(at(path, "refinement"), trigger.refinement, (), REFINEMENT)


def _of_entry(entry: CatalogEntry, path: str, fn_params: FnParams) -> Iterator[_Use]:
    arrow = entry.batch_format == "arrow"
    given = tuple(f"parameter {each}" for each in range(len(fn_params.get(entry.name, ()))))
    leading = (*given, *entry.params, *entry.tables)
    if entry.processor is not None:
        yield _Use(at(path, "processor"), entry.processor, leading, is_processor=True)
    if entry.fn is not None:
        last = "record_batch" if arrow else "segments" if entry.batch_fn else "segment"
        state = () if entry.state is None else ("state",)
        yield _Use(at(path, "fn"), entry.fn, (*leading, last, *state))
        if entry.on_timer is not None:
            yield _Use(at(path, "onTimer"), entry.on_timer, (*leading, "timer", *state))
    if entry.group_by_fn is not None:
        yield _use(at(path, "groupByFn"), entry.group_by_fn, "segment")
    if entry.assign_watermark_fn is not None:
        segment = "record_batch" if arrow else "segment"
        yield _use(at(path, "assignWatermarkFn"), entry.assign_watermark_fn, segment)


def _of_predicate(path: str, expression: Any, arguments: str) -> Iterator[_Use]:
    if isinstance(expression, str):
        yield _use(path, expression, arguments)
    elif expression and expression[0] in COMBINATORS:
        for index, each in enumerate(expression[1:], 1):
            yield from _of_predicate(at(path, index), each, arguments)
    elif expression and expression[0] not in (*COMPARISONS, SQL):
        yield _use(at(path, 0), expression[0], arguments, *expression[1:])


def _use(path: str, name: str, arguments: str, *more: str) -> _Use:
    return _Use(path, name, (*arguments.split(", "), *more))


def _checked(function: Function, use: _Use) -> Iterator[Problem]:
    if inspect.isclass(function) != use.is_processor:
        why = "no subclass of onyx.processors.Processor" if use.is_processor else "a processor"
        yield Problem(use.path, f"{use.name} is {why}{_source_line(function)}")
        return
    wrong = _misfit(function, use.arguments)
    if wrong:
        yield Problem(use.path, f"{use.name} {wrong}{_source_line(function)}")
    elif use.returns is not None and is_function(use.name):
        try:
            calls = function()
        except BaseException as error:
            yield Problem(use.path, f"{use.name} raised {describe(error)}{_source_line(function)}")
            return
        for key, call in calls.items() if isinstance(calls, Mapping) else ():
            arguments = use.returns.get(key, _HOOK if use.returns is HOOKS else "")
            wrong = _misfit(call, tuple(arguments.split(", "))) if arguments else ""
            if wrong:
                yield Problem(use.path, f"{key} of {use.name} {wrong}{_source_line(call)}")


def _misfit(function: Any, arguments: tuple[str, ...]) -> str:
    """How a function cannot be called with so many arguments; empty if it can."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*arguments)
    except TypeError as error:
        called = f"({', '.join(arguments)})" if arguments else "without arguments"
        return f"is called {called if not arguments else f'as fn{called}'}, but {error}"
    return ""


def _source_line(function: Any) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "" if code is None else f" ({code.co_filename}, line {code.co_firstlineno})"
