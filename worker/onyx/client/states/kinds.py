"""The states of a job, of all kinds:

* windows, of peers and of jobs on Spark; where peers have Spark aggregate one, its state is in
  files, which the state log names.
* functions with state: each group has one extent, without bounds.
* processors: what each has saved last, by key. An entry may be at any peer of its task
  (`operators/processor/snapshot`), so all of them are asked whatever the key.
* joins of two streams: the rows that they hold, by key and time.
* tables that tasks look up: their rows by key, and each version of a row with its extent of time. A
  table is whole in each process that has a peer of such a task, or split by the groups of a task.
  So peers of the first task that looks it up are asked: one of them, as any copy is as good, or
  those that have the groups. It is in no state log. So its answers are as durable as they get:
  another process reads it anew in its source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from onyx.client.states.state import (
    EVERYWHERE,
    Files,
    Restored,
    State,
    by_group,
    require_log,
    require_no_times,
    require_parts,
    require_peers,
    require_states,
)
from onyx.errors import UserError
from onyx.flow.groups.getters import group_of_parts
from onyx.flow.groups.keys import shard_of
from onyx.flow.predicates import Resolve
from onyx.joins.shares import names_of
from onyx.keystate.buckets import InMemory
from onyx.keystate.extents import ALL, Extent
from onyx.keystate.groups import Shards, only_shard
from onyx.keystate.records import SNAPSHOT, Record, WindowRecord, of_window
from onyx.keystate.selection import Selection
from onyx.model.job import CatalogEntry, Job, Window
from onyx.model.report import nearest
from onyx.model.state_types import parse_state_type
from onyx.model.workflow import looked_up
from onyx.operators.keyed.store import OneState
from onyx.operators.processor.snapshot import ProcessorSnapshot
from onyx.operators.stream_join.definition import StreamJoin, stream_join
from onyx.operators.stream_join.operator import StreamJoinOperator
from onyx.spark.windows.answers import AskedWindow
from onyx.task.channels.wiring import has_one_owner
from onyx.transport.state_queries import TABLE
from onyx.windows.compile import compile_windows
from onyx.windows.compiled import CompiledWindows
from onyx.windows.task_windows import TaskWindows
from onyx.windows.units import is_time

_TIMES = ("timestamp", "date")


def states_of(job: Job) -> list[State]:
    """The states that a job keeps, by kind, then in the order of declaration."""
    return list(chain.from_iterable(kind(job) for kind in KINDS))


def state_named(job: Job, name: str) -> State:
    """The state that is called so. Raises UserError: there is none."""
    states = states_of(job)
    for each in states:
        if each.name == name:
            return each
    names = [each.name for each in states]
    has = f"it has {', '.join(names)}" if names else "it has none"
    hint = nearest(name, names)
    raise UserError(f"job {job.name} has no state {name!r}: {has}" + (f"; {hint}" if hint else ""))


def windows_of(job: Job) -> Iterator[State]:
    """The windows of a job."""
    for window in job.windows:
        by_spark = window.engine == "spark" and job.engine != "spark"
        yield (WindowBySpark if by_spark else WindowState)(job, window)


class WindowState(msgspec.Struct, frozen=True):
    """A window. Implements `State`."""

    job: Job
    window: Window

    by_files = False

    @property
    def name(self) -> str:
        """Its id."""
        return self.window.id

    asked_as = name

    @property
    def task(self) -> str:
        """The task that has it."""
        return self.window.task

    @property
    def kind(self) -> str:
        """With its type."""
        return f"{self.window.type} window"

    @property
    def grouped(self) -> bool:
        """Whether its task is."""
        return not has_one_owner(self.job, self.task)

    @property
    def in_store(self) -> bool:
        """Whether Spark runs the job, and has committed the state."""
        return self.job.engine == "spark"

    @property
    def in_time(self) -> bool:
        """Whether it has extents of event time."""
        amount = self.window.range or self.window.timeout_gap
        return amount is not None and is_time(amount)

    @property
    def by_session_key(self) -> bool:
        """Whether it has sessions by a key of their own."""
        return self.window.session_key is not None

    def check(self, select: Selection, durable: bool) -> None:
        """Raises UserError: it has no groups, or its states are not here."""
        self.require_groups(select)
        require_states(self.job)
        require_log(self.job, durable)

    def require_groups(self, select: Selection) -> None:
        """Raises UserError when groups are asked for, and there are none."""
        if select.by_group and not self.grouped:
            raise UserError(
                f"task {self.task} of window {self.name} is not grouped: leave the key out"
            )

    def shards(self, key: Any) -> Sequence[int]:
        """The key group of a group, or all; the first of what is not split."""
        return by_group(key) if self.grouped else [0]

    def empty(self, resolve: Resolve, files: Files) -> Callable[[], Restored]:
        """The window alone, without triggers: only who aggregates by himself needs his module."""
        return partial(OneWindow, self.name, self.compiled(resolve), self.shard_of)

    @property
    def shard_of(self) -> Callable[[Any], int]:
        """The shard of a group."""
        return shard_of if self.grouped else only_shard

    def compiled(self, resolve: Resolve) -> CompiledWindows:
        """The window alone, without triggers."""
        alone = replace(self.job, windows=(self.window,), triggers=())
        compiled = compile_windows(alone, self.task, resolve)
        assert compiled is not None, "the task has a window"
        return compiled


class OneWindow:
    """One window of a task, restored to be asked. Not thread-safe. Implements `Restored`."""

    def __init__(
        self, name: str, compiled: CompiledWindows, shard_of: Callable[[Any], int]
    ) -> None:
        self._name = name
        self._windows = TaskWindows(compiled, shard_of)

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply its records to a shard."""
        self._windows.restore(shard, of_window(records, self._name))

    def query(self, asked: Selection, extents_max: int) -> list[Extent]:
        """Its extents that are asked for, the first in order."""
        return self._windows.query(self._name, asked, extents_max)


class WindowBySpark(WindowState, frozen=True):
    """A window with `engine: spark`. Implements `State`."""

    in_store = True
    by_files = True

    def check(self, select: Selection, durable: bool) -> None:
        """Raises UserError: it has no groups, or its files do not have what is asked for."""
        self.require_groups(select)
        if self.by_session_key:
            raise UserError(
                f"window {self.name} has a sessionKey and engine: spark, whose files tell sessions "
                "of different keys apart but not which keys these are: emit what you want to see"
            )
        require_log(self.job, durable)

    def empty(self, resolve: Resolve, files: Files) -> Callable[[], Restored]:
        """The window alone, without triggers."""
        (compiled,) = self.compiled(resolve).windows
        asked = AskedWindow(compiled, files(), self.shard_of)
        return lambda: OneBySpark(self.name, asked)


class OneBySpark:
    """One window of a task, restored to be asked. Implements `Restored`."""

    def __init__(self, name: str, asked: AskedWindow) -> None:
        self._name = name
        self._asked = asked

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply its records to a shard."""
        self._asked.restore(shard, of_window(records, self._name))

    def query(self, asked: Selection, extents_max: int) -> list[Extent]:
        """Its extents that are asked for, the first in order. Raises like `AskedWindow`."""
        return self._asked.query(asked, extents_max)


class _StateInLog(msgspec.Struct, frozen=True):
    """What a task keeps in its state log by group. Implements `State` but for what differs."""

    job: Job
    entry: CatalogEntry

    by_files = False
    in_time = False
    by_session_key = False
    grouped = True

    @property
    def task(self) -> str:
        """The task that has it."""
        return self.entry.name

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.task

    @property
    def asked_as(self) -> str:
        """Its name."""
        return self.name

    @property
    def in_store(self) -> bool:
        """Whether Spark runs the job, and has committed the state."""
        return self.job.engine == "spark"

    def check(self, select: Selection, durable: bool) -> None:
        """Raises UserError: it is not here."""
        require_states(self.job)
        require_log(self.job, durable)


def function_states_of(job: Job) -> Iterator[FunctionState]:
    """The states of all functions of a job."""
    for entry in job.catalog:
        for name, declared in (entry.state or {}).items():
            yield FunctionState(job, entry, name, declared)


class FunctionState(_StateInLog, frozen=True):
    """A state of a function. Implements `State`."""

    state: str
    declared: str
    """Its type."""

    kind = "state of a function"

    @property
    def name(self) -> str:
        """With that of the task."""
        return f"{self.task}.{self.state}"

    def check(self, select: Selection, durable: bool) -> None:
        """Raises UserError: there are no times, or it is not here."""
        super().check(select, durable)
        require_no_times(select, f"state {self.name} of a function")

    def shards(self, key: Any) -> Sequence[int]:
        """The key group of a group, or all."""
        return by_group(key)

    def empty(self, resolve: Resolve, files: Files) -> Callable[[], OneState]:
        """The state alone."""
        return partial(OneState, self.state, parse_state_type(self.declared), Shards(shard_of))


def processors_of(job: Job) -> Iterator[ProcessorState]:
    """The tasks of a job that have processors."""
    for entry in job.catalog:
        if entry.processor is not None:
            yield ProcessorState(job, entry)


class ProcessorState(_StateInLog, frozen=True):
    """What the processors of a task have saved. Implements `State`."""

    kind = "snapshot of a processor"

    def check(self, select: Selection, durable: bool) -> None:
        """Raises UserError: there are no times, or it is not here."""
        super().check(select, durable)
        require_no_times(select, f"the snapshot of processor {self.name}")

    def shards(self, key: Any) -> Sequence[int]:
        """All: an entry may be in any."""
        return EVERYWHERE

    def empty(self, resolve: Resolve, files: Files) -> Callable[[], OneSnapshot]:
        """The entries alone, so no class of the user is needed."""
        return OneSnapshot


class OneSnapshot:
    """What processors have saved, restored to be asked. Not thread-safe. Implements `Restored`."""

    def __init__(self) -> None:
        self._snapshot = ProcessorSnapshot(EVERYWHERE, InMemory())

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records to a shard."""
        entries = [each for each in records if isinstance(each, WindowRecord)]
        self._snapshot.restore(shard, [each for each in entries if each.window == SNAPSHOT])

    def query(self, asked: Selection, extents_max: int) -> list[Extent]:
        """The entries that are asked for, the first in order."""
        return self._snapshot.query(asked, extents_max)


def joins_of(job: Job) -> Iterator[JoinState]:
    """The joins of streams of a job."""
    for entry in job.catalog:
        if entry.type == "join":
            yield JoinState(job, entry)


class JoinState(_StateInLog, frozen=True):
    """What a join holds. Implements `State`."""

    in_time = True
    kind = "join of streams"

    @property
    def _key(self) -> Sequence[str]:
        """What a key is called: as the left side does."""
        assert self.entry.left is not None, "a join"
        return self.entry.left.keys

    def check(self, select: Selection, durable: bool) -> None:
        """Raises UserError: it is not here, or there is no such key."""
        super().check(select, durable)
        require_parts(select, self._key, f"join {self.name}")

    def shards(self, key: Any) -> Sequence[int]:
        """The key group of a key, or all."""
        if key is ALL or len(self._key) == 1:
            return by_group(key)
        return by_group(group_of_parts([key[each] for each in self._key]))

    def empty(self, resolve: Resolve, files: Files) -> Callable[[], OneJoin]:
        """The join with no rows."""
        return partial(OneJoin, stream_join(self.job, self.name, resolve))


class OneJoin:
    """A join, restored to be asked. Not thread-safe. Implements `Restored`."""

    def __init__(self, join: StreamJoin) -> None:
        self._held = StreamJoinOperator(join, Shards(shard_of), page_max=1)
        self._name = join.task

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records to a shard."""
        self._held.restore(shard, records)

    def query(self, asked: Selection, extents_max: int) -> list[Extent]:
        """The rows that are asked for, the first in order."""
        self._held.restored()
        return self._held.query(self._name, asked, extents_max)


def tables_of(job: Job) -> Iterator[TableState]:
    """The tables of a job."""
    for table in job.catalog:
        if table.type == "table":
            by = next(each for each in job.catalog if table.name in looked_up(each))
            yield TableState(job, table, by)


class TableState(msgspec.Struct, frozen=True):
    """A table. Implements `State`."""

    job: Job
    table: CatalogEntry
    by: CatalogEntry
    """The first task that looks it up."""

    in_store = by_files = False
    by_session_key = False
    grouped = True

    @property
    def name(self) -> str:
        """Its name."""
        return self.table.name

    @property
    def asked_as(self) -> str:
        """Apart from windows and states that are called the same."""
        return TABLE + self.name

    @property
    def task(self) -> str:
        """The task that has it."""
        return self.by.name

    @property
    def kind(self) -> str:
        """With what makes a difference."""
        words = "partitioned" if self.table.partitioned else ""
        versions = "with versions" if self.table.version_key is not None else ""
        return " ".join(filter(None, (words, "table", versions)))

    @property
    def in_time(self) -> bool:
        """Whether its schema says that versions begin at times."""
        key = self.table.version_key
        return key is not None and (self.table.schema or {}).get(key) in _TIMES

    def check(self, select: Selection, durable: bool) -> None:
        """Raises UserError: it is not here, or has no times or no such key."""
        require_peers(self.job)
        require_parts(select, names_of(self.table.key), f"table {self.name}")
        if self.table.version_key is None:
            require_no_times(select, f"table {self.name}, which has no versions,")

    def shards(self, key: Any) -> Sequence[int]:
        """The key group of a group, or all; the first of a table that is whole."""
        if not self.table.partitioned:
            return [0]
        return by_group(key if key is ALL else self._group(key))

    def _group(self, key: Any) -> Any:
        """The group of the task whose segments find a key."""
        assert self.by.join is not None, "validated: only a join looks up a partitioned table"
        its, groups = names_of(self.table.key), self.by.join.keys
        if len(its) == 1:
            return key
        assert isinstance(key, Mapping), "checked"
        return {group: key[mine] for mine, group in zip(its, groups, strict=True)}

    def empty(self, resolve: Resolve, files: Files) -> Callable[[], Restored]:
        """Raises UserError: it is in no state log."""
        raise UserError(
            f"no peer works on task {self.task}, and table {self.name} is only in the memory of "
            "workers that look it up: read its source"
        )


KINDS: tuple[Callable[[Job], Iterable[State]], ...] = (
    windows_of,
    function_states_of,
    tables_of,
    joins_of,
    processors_of,
)
"""What gives the states of a kind. Of two that are called alike, the first is meant."""
