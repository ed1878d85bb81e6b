"""Output `function`: a leaf that calls the user's function, for side effects of any kind.

A segment counts as durable when the function has returned. A replay calls the function again with
the same segment, so its effects should be idempotent.
"""

from __future__ import annotations

from onyx.errors import OnyxError
from onyx.flow.segment import Segment
from onyx.plugins.immediate import ImmediateOutput
from onyx.plugins.options import function_error
from onyx.plugins.protocol import PluginContext
from onyx.plugins.small_options import FunctionOptions


class FunctionOutput(ImmediateOutput):
    """Calls the function in the thread of the task."""

    cooperative = False
    """The function may well wait for a server."""

    def __init__(self, context: PluginContext, options: FunctionOptions) -> None:
        super().__init__()
        self._context = context
        self._options = options
        self._fn = context.resolve(options.fn)

    def deliver(self, segments: list[Segment]) -> None:
        """Call the function. Raises UserFunctionError when it raises."""
        try:
            if self._options.batch:
                self._fn(segments)
            else:
                for segment in segments:
                    self._fn(segment)
        except OnyxError:
            raise
        except BaseException as error:
            raise function_error(self._context, self._options.fn, error) from error
