"""Inputs of live sources: `source`, and what those of queues are made of."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from onyx.errors import OnyxError
from onyx.journal.journal import Journal
from onyx.plugins.journalled.partitions import JournalledPartitions
from onyx.plugins.options import function_error, task_error
from onyx.plugins.protocol import Cursor, PluginContext, Reader
from onyx.plugins.sources.feed import SourceFeed
from onyx.plugins.sources.options import JournalOptions, SourceOptions
from onyx.plugins.sources.protocol import LiveSource, OpenSource


class JournalledInput:
    """Reads live sources by way of a journal. Implements `protocol.Input` and
    `protocol.OwningInput`."""

    cooperative = False
    examined = True

    def __init__(
        self,
        context: PluginContext,
        options: JournalOptions,
        partitions: int,
        opener: OpenSource,
        examine: bool = False,
    ) -> None:
        """
        Args:
            opener: opens a partition.
            examine: look whether every segment can travel.
        """

        def feed(name: str, journal: Journal) -> SourceFeed:
            number = self._partitions.names.index(name)
            return SourceFeed(
                lambda: opener(context, number, journal.cursor),
                context.clock,
                journal.restored,
                options.remember_ids,
                1_000 * options.remember_seconds,
                examine,
            )

        self._partitions = JournalledPartitions(
            context, partitions, options.journal_bytes_max, feed
        )
        self.allocate = self._partitions.allocate

    def partitions(self) -> Sequence[str]:
        """Numbers from 0, as text of equal width."""
        return self._partitions.names

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """Takes the journal over, and goes on with the source."""
        return self._partitions.open(partition, cursor)

    def close(self) -> None:
        """Leave the sources."""
        self._partitions.close()


def source_input(context: PluginContext, options: SourceOptions) -> JournalledInput:
    """The input `source`."""
    opener = partial(_opened, options.fn)
    return JournalledInput(context, options, options.partitions, opener, examine=True)


def _opened(fn: str, context: PluginContext, partition: int, cursor: Any) -> LiveSource:
    try:
        source = context.resolve(fn)(context, partition, cursor)
    except OnyxError:
        raise
    except BaseException as error:
        raise function_error(context, fn, error) from error
    if not isinstance(source, LiveSource):
        what = f"{fn} returned a {type(source).__name__}; return an onyx.plugin.LiveSource"
        raise task_error(context, what)
    return _Guarded(context, fn, source)


class _Guarded:
    """A user's source, whose exceptions name it."""

    def __init__(self, context: PluginContext, fn: str, source: LiveSource) -> None:
        self._context = context
        self._fn = fn
        self._source = source

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
