"""Options of a plugin: declared as a struct, read with errors that name the task and the key."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from onyx.errors import UserError
from onyx.model.report import nearest
from onyx.plugins.protocol import PluginContext


class Options(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Base of the options of a plugin: one typed field an option, `batch_size` is `batchSize`."""


O = TypeVar("O", bound=Options)  # noqa: E741


def read_options(context: PluginContext, kind: type[O]) -> O:
    """The options of a task as a `kind`.

    Raises:
        UserError: an option is unknown (the nearest known one is named), missing or of another
            type than declared.
    """
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    for key in context.options:
        if key not in known:
            hint = nearest(str(key), known) or f"known are: {', '.join(known) or 'none'}"
            raise option_error(context, str(key), f"is not known; {hint}")
    try:
        return msgspec.convert(dict(context.options), kind)
    except msgspec.ValidationError as error:
        raise _explained(context, str(error)) from error


def option_error(context: PluginContext, key: str, what: str) -> UserError:
    """The error for a wrong option: `job 'flights', task 'read': option 'path' <what>`."""
    return task_error(context, f"option {key!r} {what}")


def task_error(context: PluginContext, what: str) -> UserError:
    return UserError(f"job {context.job_name!r}, task {context.task!r}: {what}")


def _explained(context: PluginContext, message: str) -> UserError:
    what, _, path = message.partition(" - at `$.")
    what = what[:1].lower() + what[1:]
    if path:
        return option_error(context, path.rstrip("`"), f"is wrong: {what}")
    missing = what.removeprefix("object missing required field ").strip("`")
    if missing != what:
        return option_error(context, missing, "is missing")
    return task_error(context, f"options: {what}")
