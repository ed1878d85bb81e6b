"""Options of a plugin: declared as a struct, read with errors that name the task and the key.

A worker raises the first problem (`read_options`). Whoever checks a job before it runs gets all of
them (`check_options`, see `onyx.submission.job_checks`). What several plugins share is here:
the options of outputs that write parts, and of inputs that keep a journal.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from onyx.base.on_demand import loaded
from onyx.base.path_names import climbs
from onyx.base.structs import Mismatch, convert
from onyx.errors import Problem, UserError, UserFunctionError, describe
from onyx.model.job import CatalogEntry, Job
from onyx.model.plugins import BuiltIn
from onyx.model.report import PROBLEMS_MAX, at, nearest
from onyx.model.retention import JOURNAL_BYTES_MAX, Retention
from onyx.model.secrets import secrets_in
from onyx.plugins.rolling import ROLL_LIMITS
from onyx.storage.interface import Location, Purpose
from onyx.storage.opening import check_location, is_remote, location_of

if TYPE_CHECKING:
    from onyx.plugins.protocol import PluginContext

_ONE_AT_A_TIME = threading.Lock()
"""Tasks start on several threads, and a user's options are not `prepared`: see `base.structs`."""


class Options(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Base of the options of a plugin: one typed field an option, `batch_size` is `batchSize`."""

    def wrong(self) -> Iterator[Problem]:
        """Problems that the types cannot express, each with the option's name as its path."""
        return iter(())


O = TypeVar("O", bound=Options)  # noqa: E741


def own_options(entry: CatalogEntry) -> dict[str, Any]:
    """The options of a task that are its plugin's: those that `params` names are the function's."""
    return {key: value for key, value in entry.options.items() if key not in entry.params}


def alike(job: Job, entry: CatalogEntry) -> dict[str, dict[str, Any]]:
    """The plugin's options of the other tasks of the same type and plugin, by their names."""
    return {
        other.name: own_options(other)
        for other in job.catalog
        if other is not entry and (other.type, other.plugin) == (entry.type, entry.plugin)
    }


def options_of(plugin: BuiltIn) -> type[Options]:
    """The struct of a plugin's options."""
    return loaded(plugin.options)  # type: ignore[no-any-return]


def read_options(context: PluginContext, kind: type[O]) -> O:
    """The options of a task as a `kind`.

    Raises:
        UserError: an option is unknown (the nearest known one is named), missing, of another type
            than declared, or wrong together with others.
    """
    read, problems = check_options(context.options, kind)
    if read is None or problems:
        raise _error(context, problems[0])
    return read


def check_options(options: Mapping[str, Any], kind: type[O]) -> tuple[O | None, list[Problem]]:
    """Options as a `kind`, and all that is wrong with them, each with the option's name as its
    path."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    unexpected = (key for key in options if key not in fields)
    problems = [
        Problem(at("", str(key)), "is not known", nearest(str(key), fields) or _all_of(fields))
        for key in islice(unexpected, PROBLEMS_MAX)
    ]
    values, unknown = {}, bool(problems)
    for name, field in fields.items():
        if name in options:
            try:
                with _ONE_AT_A_TIME:
                    values[field.name] = convert(options[name], field.type)
            except Mismatch as error:
                problems.append(_problem(name, error))
        elif field.required and not unknown:  # an unknown one may be the missing one, misspelled
            problems.append(Problem(name, "is missing"))
    secrets = [*secrets_in(options)]
    if problems:
        return None, [*secrets, *problems]
    read = kind(**values)
    wrong = [*read.wrong()]
    known = {each.path for each in wrong if isinstance(options.get(each.path), str)}
    return read, [*(each for each in secrets if each.path not in known), *wrong]


def located(context: PluginContext, path: str, option: str = "path") -> Location:
    """The location that an option names; relative paths count from the worker's data folder.

    Raises:
        UserError: it is a URL of an unknown kind, has credentials in it, or is a path that jobs may
            not name.
    """
    found = context.located(path)
    try:
        return location_of(found, Purpose(f"{context.where}: option {option!r}:"))
    except UserError as error:
        raise option_error(context, option, str(error)) from error


def pattern_at(context: PluginContext, path: str, option: str = "path") -> str:
    """The pattern of paths, or of URLs, that an option names. Raises like `located`."""
    for problem in wrong_location(option, path):
        raise option_error(context, option, problem.message)
    return context.located(path)


def wrong_location(option: str, path: str) -> Iterator[Problem]:
    """What is wrong with a path as a location."""
    try:
        check_location(path)
    except UserError as error:
        yield Problem(option, str(error))


def folder_at(context: PluginContext, path: str) -> Location:
    """The folder that the option `path` names, in which Onyx and Spark make and remove files.

    Raises:
        UserError: as `located`, and where the path leads out of a folder that it names.
    """
    for problem in wrong_folder("path", path):
        raise option_error(context, "path", problem.message)
    return located(context, path)


def wrong_folder(option: str, path: str) -> Iterator[Problem]:
    """What is wrong with the path of a folder in which Onyx and Spark make and remove files."""
    yield from wrong_location(option, path)
    yield from climbing(option, path)


def climbing(option: str, path: str) -> Iterator[Problem]:
    """Whether the path of a folder leads out of one that it names."""
    if climbs(path) and not is_remote(path):
        yield Problem(option, "has a part `..`", "name the folder itself")


def variable_of(context: PluginContext, option: str, variable: str, key: str = "") -> str:
    """The value of a variable of this worker that an option names.

    Args:
        key: for what it is given, in an option that names several.

    Raises:
        UserError: the owner of the worker does not let jobs name it, or it is not set.
    """
    why = context.rights.why_not_variable(variable)
    value = "" if why else os.environ.get(variable, "").strip()
    if not value:
        what = (
            f"names variable {variable!r}{key and f' for {key}'}, which is not set on this worker"
        )
        raise option_error(context, option, why or what)
    return value


def option_error(context: PluginContext, key: str, what: str) -> UserError:
    """The error for a wrong option: `job 'flights', task 'read': option 'path' <what>`."""
    return task_error(context, f"option {key!r} {what}")


def task_error(context: PluginContext, what: str) -> UserError:
    """The error for a mistake in a task: `job 'flights', task 'read': <what>`."""
    return UserError(f"{context.where}: {what}")


def function_error(context: PluginContext, who: str, error: BaseException) -> UserFunctionError:
    """The error for a user's function that raised; `who` names the function."""
    return UserFunctionError(f"{context.where}: {who} raised {describe(error)}")


def _all_of(known: Iterable[str]) -> str:
    return f"known are: {', '.join(known) or 'none'}"


def _problem(name: str, error: Mismatch) -> Problem:
    path = f"{name}{error.path}"
    if error.given is None:
        return Problem(path, f"is wrong: {error.what}")
    hint = nearest(error.given, error.offered) or _all_of(error.offered)
    return Problem(path, f"is {error.given!r}, which is not offered", hint)


def _error(context: PluginContext, problem: Problem) -> UserError:
    what = "; ".join(filter(None, (problem.message, problem.hint)))
    return option_error(context, problem.path, what)


class PartOptions(Options, frozen=True):
    """Where parts are written and when a new one begins."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    """Directory or `s3://bucket/prefix`. A missing directory is created; existing files stay."""
    roll_bytes: Annotated[int, msgspec.Meta(ge=1)] = ROLL_LIMITS.size_bytes
    """Start a new part at about this size."""
    roll_segments: Annotated[int, msgspec.Meta(ge=1)] = ROLL_LIMITS.segments
    """Start a new part after so many segments."""
    roll_seconds: Annotated[float, msgspec.Meta(gt=0)] = ROLL_LIMITS.age_s
    """Start a new part after this time; until then its segments are not acked."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from wrong_location("path", self.path)


class JournalOptions(Options, frozen=True):
    """How a journal is kept."""

    journal_bytes_max: Annotated[int, msgspec.Meta(ge=1_048_576)] = JOURNAL_BYTES_MAX
    """Bytes of the journal of a partition that are not processed; beyond it, nothing is taken until
    there is room. Requests that are held by writes may be as many besides."""
    keep_days: Annotated[float, msgspec.Meta(ge=0, le=36_500)] | None = None
    """Keep what is processed for so many days, so that other jobs can follow the journal and later
    ones begin in it. Without it and `keepBytes` nothing is kept."""
    keep_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Keep so many bytes of what is processed in each partition; with `keepDays` what is older goes
    even so."""

    @property
    def retention(self) -> Retention:
        """How much is kept of what is processed."""
        return Retention(self.keep_days, self.keep_bytes)
