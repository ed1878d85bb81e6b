"""Output `function`: a leaf that calls the user's function, for side effects of any kind.

A segment counts as durable when the function has returned. It may be called again with a segment
that it has already seen (a replay after a crash), so what it does should be idempotent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onyx.errors import OnyxError, UserFunctionError, describe
from onyx.flow.batch import Segment
from onyx.plugins.built_in_options import FunctionOptions
from onyx.plugins.immediate import ImmediateOutput
from onyx.plugins.options import read_options
from onyx.plugins.protocol import PluginContext


def function_output(context: PluginContext) -> FunctionOutput:
    options = read_options(context, FunctionOptions)
    return FunctionOutput(context, options, context.resolve(options.fn))


class FunctionOutput(ImmediateOutput):
    cooperative = False
    """The function may well wait for a server."""

    def __init__(
        self, context: PluginContext, options: FunctionOptions, fn: Callable[[Any], Any]
    ) -> None:
        super().__init__()
        self._context = context
        self._options = options
        self._fn = fn

    def deliver(self, segments: list[Segment]) -> None:
        try:
            if self._options.batch:
                self._fn(segments)
            else:
                for segment in segments:
                    self._fn(segment)
        except OnyxError:
            raise
        except BaseException as error:
            raise UserFunctionError(
                f"job {self._context.job_name!r}, task {self._context.task!r}: "
                f"{self._options.fn} raised {describe(error)}"
            ) from error
