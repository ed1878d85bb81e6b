"""Input `requests`: what clients hand over, by way of a journal.

Any worker takes requests, and hands them to the mailbox of their partition, which is in the process
that owns it. From there they go into the journal, and only then to the functions of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from onyx.errors import OnyxError
from onyx.journal.journal import Journal
from onyx.plugins.journalled.partitions import JournalledPartitions
from onyx.plugins.journalled.reader import JournalReader
from onyx.plugins.protocol import Cursor, PluginContext
from onyx.plugins.requests.mailbox import Mailbox
from onyx.plugins.requests.options import RequestsOptions
from onyx.requests.desk import Address, Desk


class RequestsInput:
    """Implements `protocol.StartingInput` and `owning.OwningInput`."""

    cooperative = False
    examined = True
    """Segments are looked at before a request is taken."""

    def __init__(self, context: PluginContext, options: RequestsOptions) -> None:
        self._options = options
        self._partitions = JournalledPartitions(
            context,
            options.partitions,
            options.journal_bytes_max,
            partial(_open_mailbox, context, options),
            options.retention,
        )
        self.allocate = self._partitions.allocate

    def partitions(self) -> Sequence[str]:
        """Numbers from 0, as text of equal width."""
        return self._partitions.names

    def start(self, partition: str) -> Cursor:
        """In the journal of the job that this one upgrades, if `startFrom` says so; else at the
        beginning of one of its own."""
        return self._partitions.start(partition, self._options.start_from)

    def open(self, partition: str, cursor: Cursor) -> JournalReader:
        """Takes the journal over, and requests from now on."""
        return self._partitions.open(partition, cursor)

    def close(self) -> None:
        """Requests go elsewhere."""
        self._partitions.close()


class DeskMailbox(Mailbox):
    """A mailbox that is at the desk while it is open."""

    def at(self, desk: Desk, address: Address) -> None:
        """Take the requests for this address."""
        self._desk, self._address = desk, address
        desk.open(address, self)

    def close(self, error: OnyxError | None) -> None:
        """Leave the desk."""
        self._desk.close(self._address, self)
        super().close(error)


def _open_mailbox(
    context: PluginContext, options: RequestsOptions, partition: str, journal: Journal
) -> Mailbox:
    mailbox = DeskMailbox(
        context.clock,
        journal.restored,
        options.remember_requests,
        1_000 * options.remember_seconds,
        context.tracked,
        context.task,
    )
    mailbox.at(context.desk, Address(context.job, context.task, int(partition)))
    return mailbox
