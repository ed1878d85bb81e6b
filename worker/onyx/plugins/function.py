"""Output `function`: a leaf that calls the user's function, for side effects of any kind.

A segment counts as durable when the function has returned. A replay calls the function again with
the same segment, so its effects should be idempotent.

With `batch: true` and `batchFormat: arrow` the function gets record batches. The engine has made
columns of all that such a task gets, so dicts come only to the other kinds of function.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from onyx.errors import OnyxError
from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.flow.segment import Segment
from onyx.plugins.bases import ImmediateColumnsOutput
from onyx.plugins.options import function_error
from onyx.plugins.protocol import PluginContext
from onyx.plugins.small_options import FunctionOptions


class FunctionOutput(ImmediateColumnsOutput):
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
        self._call([segments] if self._options.batch else segments)

    def deliver_columns(self, columns: pa.RecordBatch) -> None:
        """Delivers what `deliver` does,: with the record batch itself if the function takes record
        batches."""
        if self._options.batch and self._context.batch_format == "arrow":
            self._call([columns])
        else:
            self.deliver(to_dicts(Columns(columns)))

    def _call(self, arguments: Iterable[Any]) -> None:
        try:
            for argument in arguments:
                self._fn(argument)
        except OnyxError:
            raise
        except BaseException as error:
            raise function_error(self._context, self._options.fn, error) from error
