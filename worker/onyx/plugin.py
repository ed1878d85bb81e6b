"""Everything that a plugin of your own needs: one module to import from.

    from onyx.plugin import IndexedReader, ImmediateOutput, Options, read_options

A plugin is a function that takes a `PluginContext` and returns an `Input` or an `Output`.
`onyx.testing` has the checks for it, `docs/guide/plugins.md` has examples. The modules behind this
one may change with any version.

Errors say what Onyx does: `UserError` ends the job, `OutputFailed` does so for requests too,
`Unavailable` is tried again later, `Blocked` waits until a person has made room, `Fenced` ends
this incarnation, `WorkLost` begins the task anew. Any other exception counts as a mistake of the
plugin and ends the job.
"""

from __future__ import annotations

from onyx.errors import (
    Blocked,
    Fenced,
    OutputFailed,
    Problem,
    Unavailable,
    UserError,
    WorkLost,
)
from onyx.flow.batch import Segment
from onyx.ids import GroupId, JobId
from onyx.plugins.bases import (
    ImmediateColumnsOutput,
    ImmediateOutput,
    IndexedColumnsReader,
    IndexedReader,
    partition_names,
)
from onyx.plugins.options import Options, located, option_error, read_options, task_error
from onyx.plugins.parts.folders import parts_at
from onyx.plugins.parts.writer import (
    ColumnsBody,
    ColumnsFormat,
    ColumnsPartsWriter,
    PartBody,
    PartFormat,
    PartsWriter,
)
from onyx.plugins.protocol import (
    START,
    Behind,
    ColumnsReader,
    Commit,
    Cursor,
    Input,
    MeasuredInput,
    OneResultOutput,
    Output,
    PluginContext,
    Reader,
    Token,
    TransactionalOutput,
    UpgradedJob,
)
from onyx.plugins.rolling import RollLimits
from onyx.plugins.sources.protocol import LiveSource, MeasuredSource, Portion
from onyx.plugins.transactions import (
    ColumnsStore,
    ColumnsTransactionWriter,
    TransactionStore,
    TransactionWriter,
)
from onyx.storage.staging.interface import PartStore

__all__ = [
    "START",
    "Behind",
    "Blocked",
    "ColumnsBody",
    "ColumnsFormat",
    "ColumnsPartsWriter",
    "ColumnsReader",
    "ColumnsStore",
    "ColumnsTransactionWriter",
    "Commit",
    "Cursor",
    "Fenced",
    "GroupId",
    "ImmediateColumnsOutput",
    "ImmediateOutput",
    "IndexedColumnsReader",
    "IndexedReader",
    "Input",
    "JobId",
    "LiveSource",
    "MeasuredInput",
    "MeasuredSource",
    "OneResultOutput",
    "Options",
    "Output",
    "OutputFailed",
    "PartBody",
    "PartFormat",
    "PartStore",
    "PartsWriter",
    "PluginContext",
    "Portion",
    "Problem",
    "Reader",
    "RollLimits",
    "Segment",
    "Token",
    "TransactionStore",
    "TransactionWriter",
    "TransactionalOutput",
    "Unavailable",
    "UpgradedJob",
    "UserError",
    "WorkLost",
    "located",
    "option_error",
    "partition_names",
    "parts_at",
    "read_options",
    "task_error",
]
