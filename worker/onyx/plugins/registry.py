"""Plugins by name: short names of those that come with Onyx, `package.module:name` for others.

Built-in ones are listed by import path and imported on first use, so that a worker without Spark
jobs never loads PySpark's side, and this package never imports it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from onyx.errors import OnyxError, UserFunctionError, describe
from onyx.model.report import listed, nearest
from onyx.plugins.checked import CheckedInput, check_built
from onyx.plugins.options import task_error
from onyx.plugins.protocol import Input, Output, PluginContext

INPUTS: Mapping[str, str] = {
    "channel": "onyx.plugins.channel:channel_input",
    "files": "onyx.plugins.files.input:files_input",
    "generator": "onyx.plugins.generator:generator_input",
    "kafka": "onyx.plugins.kafka.factories:kafka_input",
    "sequence": "onyx.plugins.sequence:sequence_input",
}
OUTPUTS: Mapping[str, str] = {
    "blackhole": "onyx.plugins.blackhole:blackhole_output",
    "channel": "onyx.plugins.channel:channel_output",
    "files": "onyx.plugins.files.output:files_output",
    "function": "onyx.plugins.function:function_output",
    "kafka": "onyx.plugins.kafka.factories:kafka_output",
    "spark": "onyx.spark.output:output",
    "sql": "onyx.plugins.sql.output:sql_output",
    "stdout": "onyx.plugins.stdout:stdout_output",
}

P = TypeVar("P", Input, Output)


def build_input(name: str, context: PluginContext) -> Input:
    """The input plugin of a task.

    Raises:
        UserError: there is no such plugin, it does not read, or its options are wrong.
        UserFunctionError: a user's plugin raised.
    """
    plugin = _build(name, context, INPUTS, OUTPUTS, Input)  # type: ignore[type-abstract]
    return CheckedInput(plugin, name) if ":" in name else plugin


def build_output(name: str, context: PluginContext) -> Output:
    """The output plugin of a task.

    Raises:
        UserError: there is no such plugin, it does not write, or its options are wrong.
        UserFunctionError: a user's plugin raised.
    """
    return _build(name, context, OUTPUTS, INPUTS, Output)  # type: ignore[type-abstract]


def _build(
    name: str,
    context: PluginContext,
    known: Mapping[str, str],
    others: Mapping[str, str],
    protocol: type[P],
) -> P:
    factory = _factory(name, context, known, others)
    try:
        plugin = factory(context)
    except OnyxError:
        raise
    except BaseException as error:
        raise UserFunctionError(
            f"job {context.job_name!r}, task {context.task!r}: plugin {name} raised "
            f"{describe(error)}"
        ) from error
    check_built(plugin, name)
    missing = [each for each in sorted(_members(protocol)) if not hasattr(plugin, each)]
    if missing:
        raise task_error(
            context,
            f"plugin {name} returned a {type(plugin).__name__} without {', '.join(missing)}; an "
            f"{protocol.__name__.lower()} plugin returns an onyx.plugins.protocol."
            f"{protocol.__name__}",
        )
    return plugin  # type: ignore[no-any-return]


def _factory(
    name: str, context: PluginContext, known: Mapping[str, str], others: Mapping[str, str]
) -> Callable[[PluginContext], Any]:
    if ":" in name:
        return context.resolve(name)
    if name in known:
        module, _, function = known[name].partition(":")
        return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]
    reads = known is INPUTS
    if name in others:
        what = f"plugin {name!r} can only {'write' if reads else 'read'}; here it must be"
    else:
        what = f"there is no plugin {name!r} ({nearest(name, known) or 'its name is not known'})"
        what += ", there are"
    raise task_error(context, f"{what} {listed(known)}, or your own as package.module:name")


def _members(protocol: type[Any]) -> set[str]:
    own = {each for each in vars(protocol) if not each.startswith("_")}
    return own | set(protocol.__annotations__)
