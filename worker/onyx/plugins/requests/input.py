"""Inputs `requests` and `http`: what clients hand over, by way of a journal.

To the engine both are the same. An input `http` is served over HTTP (`gateway`) as well as over
gRPC, and either may need a token.

Any worker takes requests, and hands them to the mailbox of their partition, which is in the process
that owns it. From there they go into the journal, and only then to the functions of the job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial

from onyx.errors import OnyxError
from onyx.journal.journal import Journal
from onyx.plugins.journalled.partitions import JournalledPartitions
from onyx.plugins.journalled.reader import JournalReader
from onyx.plugins.options import option_error, variable_of
from onyx.plugins.protocol import Behind, Cursor, Input, PluginContext
from onyx.plugins.requests.options import RequestsOptions
from onyx.plugins.requests.request_queue import RequestQueue
from onyx.requests.mailboxes import Address, MailboxRegistry


def requests_input(context: PluginContext, options: RequestsOptions) -> RequestsInput:
    """The input of one task.

    Raises:
        UserError: there is no token where the options say that there is one, or jobs may not look
            there.
    """
    if options.token_env is not None:
        variable_of(context, "tokenEnv", options.token_env)
    if options.token_file is not None:
        context.located(options.token_file)
    tokens = options.tokens(context.rights, context.data_dir, context.clock, os.environ)
    if tokens.wanted and not tokens.known():
        what = f"names {options.token_file!r}, which cannot be read or holds no token"
        raise option_error(context, "tokenFile", what)
    return RequestsInput(context, options)


class RequestsInput(Input):
    """Implements `protocol.StartingInput` and `OwningInput`."""

    cooperative = False
    wakes = True
    examined = True
    """Segments are looked at before a request is taken."""

    def __init__(self, context: PluginContext, options: RequestsOptions) -> None:
        self._options = options
        self._partitions = JournalledPartitions(
            context,
            options.partitions,
            options.journal_bytes_max,
            partial(_open_queue, context, options),
            options.retention,
        )
        self.allocate = self._partitions.allocate

    def partitions(self) -> Sequence[str]:
        """Numbers from 0, as text of equal width."""
        return self._partitions.names

    def start(self, partition: str) -> Cursor:
        """Where a partition begins that has no frontier, own or carried over: in the journal of the
        job that this one upgrades, if `startFrom` says so; else in one of its own."""
        return self._partitions.start(partition, self._options.start_from)

    def open(self, partition: str, cursor: Cursor) -> JournalReader:
        """Takes the journal over, and requests from now on."""
        return self._partitions.open(partition, cursor)

    def behind(self, cursors: Mapping[str, Cursor]) -> Mapping[str, Behind]:
        """What is in the journals and not processed, and requests that wait to come there."""
        return self._partitions.behind(cursors)

    def close(self) -> None:
        """Requests go elsewhere."""
        self._partitions.close()


class RegisteredQueue(RequestQueue):
    """A queue that is the mailbox of its partition while it is open."""

    def at(self, registry: MailboxRegistry, address: Address) -> None:
        """Take the requests for this address."""
        self._registry, self._address = registry, address
        registry.open(address, self)

    def close(self, error: OnyxError | None) -> None:
        """Take no requests for the address any more."""
        self._registry.close(self._address, self)
        super().close(error)


def _open_queue(
    context: PluginContext, options: RequestsOptions, partition: str, journal: Journal
) -> RequestQueue:
    queue = RegisteredQueue(
        context.clock,
        journal.restored,
        options.remember_requests,
        1_000 * options.remember_seconds,
        context.tracked,
        context.task,
    )
    queue.at(context.mailboxes, Address(context.job, context.task, int(partition)))
    return queue
