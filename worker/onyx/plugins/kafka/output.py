"""Output `kafka`: messages of a topic, at least once or in transactions.

The first call decides: only a job under exactly-once calls `begin`, or `finish` before it. Other
jobs use no transactions, which cost readers latency and need more rights.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.ids import GroupId
from onyx.plugins.kafka.client import KafkaClient
from onyx.plugins.kafka.messages import Messages
from onyx.plugins.kafka.options import OutputOptions
from onyx.plugins.kafka.producer import ReportedWriter
from onyx.plugins.kafka.store import KafkaStore
from onyx.plugins.protocol import Commit, PluginContext, Token
from onyx.plugins.roll_limits import roll_limits
from onyx.plugins.transactions import ColumnsTransactionWriter


class KafkaOutput:
    """Delegates to the writer of the job's guarantee, made at its first use."""

    cooperative = False
    """Every report and transaction waits for brokers."""

    def __init__(self, context: PluginContext, options: OutputOptions) -> None:
        self._client = KafkaClient(context, options)
        self._options = options
        self._reported: ReportedWriter | None = None
        self._exact: ColumnsTransactionWriter | None = None

    def begin(self, commit: Commit) -> None:
        """Use transactions from now on."""
        self._transactions().begin(commit)

    def finish(self, token: Token) -> None:
        """Apply a committed transaction."""
        self._transactions().finish(token)

    def write(self, segments: list[Segment]) -> None:
        """Hand the segments to the writer."""
        self._writer().write(segments)

    def write_columns(self, columns: pa.RecordBatch) -> None:
        """Hand the rows to the writer."""
        if self._exact is not None:
            self._exact.write_columns(columns)
        elif columns.num_rows:
            self._reporting().write_columns(Columns(columns))

    def durable(self) -> int:
        """What the writer says."""
        return self._writer().durable()

    def flush(self) -> None:
        """Flush the writer."""
        self._writer().flush()

    def tick(self) -> None:
        """Let the writer go on."""
        self._writer().tick()

    def fence(self, live: Sequence[GroupId]) -> None:
        """Fence through the writer; also checks the topic before the first segment."""
        self._writer().fence(live)

    def seal(self) -> None:
        """Seal through the writer."""
        self._writer().seal()

    def close(self) -> None:
        """Close the writers that were made."""
        for writer in (self._exact, self._reported):
            if writer is not None:
                writer.close()

    def _writer(self) -> ReportedWriter | ColumnsTransactionWriter:
        return self._reporting() if self._exact is None else self._exact

    def _reporting(self) -> ReportedWriter:
        if self._reported is None:
            self._reported = ReportedWriter(self._client, self._messages())
        return self._reported

    def _transactions(self) -> ColumnsTransactionWriter:
        if self._exact is None:
            store = KafkaStore(self._client, self._messages())
            limits = roll_limits(self._options)
            self._exact = ColumnsTransactionWriter(store, self._client.context, limits)
        return self._exact

    def _messages(self) -> Messages:
        return Messages(self._client.context, self._options)
