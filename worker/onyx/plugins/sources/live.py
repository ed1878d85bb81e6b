"""Inputs of sources that have acks, in either mode; one of them is `source`, for those of the
user's own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from onyx.errors import OnyxError
from onyx.plugins.options import function_error, task_error
from onyx.plugins.protocol import PluginContext
from onyx.plugins.sources.journalled_input import JournalledInput
from onyx.plugins.sources.native import NativeInput
from onyx.plugins.sources.options import LiveOptions, SourceOptions
from onyx.plugins.sources.protocol import LiveSource, OpenSource, pending_of

LiveInput = JournalledInput | NativeInput


def live_input(
    context: PluginContext,
    options: LiveOptions,
    partitions: int,
    opener: OpenSource,
    examine: bool = False,
) -> LiveInput:
    """The input, as the option `mode` says."""
    if options.mode == "native":
        returns_failures = options.on_failure == "source"
        return NativeInput(context, partitions, opener, examine, returns_failures)
    return JournalledInput(context, options, partitions, opener, examine)


def source_input(context: PluginContext, options: SourceOptions) -> LiveInput:
    """The input `source`."""
    opener = partial(_opened, options)
    return live_input(context, options, options.partitions, opener, examine=True)


def _opened(
    options: SourceOptions, context: PluginContext, partition: int, cursor: Any
) -> LiveSource:
    fn = options.fn
    try:
        source = context.resolve(fn)(context, partition, cursor)
    except OnyxError:
        raise
    except BaseException as error:
        raise function_error(context, fn, error) from error
    if not isinstance(source, LiveSource):
        what = f"{fn} returned a {type(source).__name__}; return an onyx.plugin.LiveSource"
        raise task_error(context, what)
    if options.on_failure == "source" and type(source).term is LiveSource.term:
        what = f"onFailure is source, and what {fn} returned has no method term(handles, reasons)"
        raise task_error(context, f"{what}; write it")
    return _Guarded(context, fn, source)


class _Guarded:
    """A user's source, whose exceptions name it."""

    def __init__(self, context: PluginContext, fn: str, source: LiveSource) -> None:
        self._context = context
        self._fn = fn
        self._source = source

    @property
    def lease_s(self) -> float | None:
        """What the source says."""
        return self._source.lease_s

    @property
    def pending(self) -> int | None:
        """What the source says, if it does."""
        return pending_of(self._source)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._source, name)

        def guarded(*arguments: Any) -> Any:
            try:
                return method(*arguments)
            except OnyxError:
                raise
            except BaseException as error:
                what = f"{name}() of what {self._fn} returned"
                raise function_error(self._context, what, error) from error

        return guarded
