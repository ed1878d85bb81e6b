"""Builds plugins by name: short names of `model.plugins`, `package.module:name` for a user's own.

A plugin of Onyx is imported on first use. So a worker loads only what its jobs use, this package
imports no Spark, and a missing extra package is the error of the job that needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from onyx.base.on_demand import install, loaded
from onyx.errors import OnyxError, UserError
from onyx.model.plugins import INPUTS, OUTPUTS, STAGE_IN_THE_MIDDLE, BuiltIn
from onyx.model.report import listed, nearest
from onyx.plugins.checked import CheckedInput, check_built
from onyx.plugins.options import function_error, options_of, read_options, task_error
from onyx.plugins.protocol import Input, Output, PluginContext

P = TypeVar("P", Input, Output)
_OF_STAGES = {(str(row.type), row.name): row for row in STAGE_IN_THE_MIDDLE}


def build_input(name: str, context: PluginContext) -> Input:
    """The input plugin of a task.

    Raises:
        UserError: there is no such plugin, it does not read, or its options are wrong.
        UserFunctionError: a user's plugin raised.
    """
    plugin = _build(name, context, INPUTS, Input)  # type: ignore[type-abstract]
    return CheckedInput(plugin, name) if ":" in name else plugin


def build_output(name: str, context: PluginContext) -> Output:
    """The output plugin of a task.

    Raises:
        UserError: there is no such plugin, it does not write, or its options are wrong.
        UserFunctionError: a user's plugin raised.
    """
    return _build(name, context, OUTPUTS, Output)  # type: ignore[type-abstract]


def _build(name: str, context: PluginContext, known: Mapping[str, BuiltIn], protocol: type[P]) -> P:
    try:
        if ":" in name:
            plugin = context.resolve(name)(context)
        elif (stage := _OF_STAGES.get((_direction(known), name))) is not None:
            plugin = _built_in(stage, context)
        elif name in known:
            plugin = _built_in(known[name], context)
        else:
            raise _unknown(name, context, known)
    except OnyxError:
        raise
    except BaseException as error:
        raise function_error(context, f"plugin {name}", error) from error
    check_built(plugin, name)
    missing = [each for each in sorted(_members(protocol)) if not hasattr(plugin, each)]
    if missing:
        kind = protocol.__name__
        raise task_error(
            context,
            f"plugin {name} returned a {type(plugin).__name__} without {', '.join(missing)}; an "
            f"{kind.lower()} plugin returns an onyx.plugin.{kind}: derive the class from that",
        )
    return plugin  # type: ignore[no-any-return]


def _built_in(plugin: BuiltIn, context: PluginContext) -> Any:
    options = read_options(context, options_of(plugin))
    try:
        factory = loaded(plugin.factory)
    except ImportError as error:
        if not plugin.extra:
            raise
        what = f"plugin {plugin.name!r} needs {error.name}: {install(plugin.extra)}"
        raise task_error(context, what) from error
    return factory(context, options)


def _direction(known: Mapping[str, BuiltIn]) -> str:
    return "input" if known is INPUTS else "output"


def _unknown(name: str, context: PluginContext, known: Mapping[str, BuiltIn]) -> UserError:
    reads = known is INPUTS
    if name in (OUTPUTS if reads else INPUTS):
        what = f"plugin {name!r} can only {'write' if reads else 'read'}; here it must be"
    else:
        what = f"there is no plugin {name!r} ({nearest(name, known) or 'its name is not known'})"
        what += ", there are"
    return task_error(context, f"{what} {listed(known)}, or your own as package.module:name")


def _members(protocol: type[Any]) -> set[str]:
    own = {each for each in vars(protocol) if not each.startswith("_")}
    return own | set(protocol.__annotations__)
