"""The tables that the tasks of a worker look up, each once, however many tasks have it.

A table is loaded when the first task asks for it, and dropped when the last one has left. The task
that steps next when it is time has it read again; then all tasks have the new one at once, each
from its next batch on. Until it is there, and if it cannot be read, the one of before stays.

Rejected: a peer that reads the table and sends it to all processes. Each process would hold it
twice while it travels, and a new one would have to be told apart from one that had it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar

import msgspec
from msgspec import field

from onyx.base.on_demand import OnDemand
from onyx.base.seams import Clock
from onyx.errors import describe
from onyx.ids import JobId, TaskName

if TYPE_CHECKING:
    from onyx.joins.asked import AskedTable
    from onyx.joins.table import Table

logger = logging.getLogger(__name__)
_ASKED: OnDemand[type[AskedTable]] = OnDemand("onyx.joins.asked:AskedTable")

Run = Callable[[Callable[[], Any]], Future[Any]]
"""Runs what may take long."""


class Replaceable(Protocol):
    """What may take the place of what was read before."""

    name: str

    @property
    def size(self) -> str:
        """How large it is, for people."""
        ...

    def require_like(self, before: Self) -> None:
        """Raises UserError: who looks up the one of before cannot look up this one."""
        ...


T = TypeVar("T", bound=Replaceable)


class RefreshedTable(Generic[T]):
    """One table. Any thread may call."""

    read_s: float | None = None
    """When its reading had begun, by the clock; None before it is there."""

    def __init__(
        self, load: Callable[[], T], run: Run, clock: Clock, refresh_s: float | None
    ) -> None:
        """`refresh_s`: time after which it is loaded again; None: never."""
        self._load, self._run, self._clock = load, run, clock
        self._refresh_s = refresh_s
        self._lock = Lock()
        self._table: T | None = None
        self._loading: Future[Any] | None = None
        self._due_s = self._begun_s = 0.0

    @property
    def is_there(self) -> bool:
        """Whether it has been loaded."""
        return self._table is not None

    def now(self) -> T:
        """The table as it is now. Only after `loaded` was true."""
        assert self._table is not None, "a task waits until its tables are there"
        return self._table

    def loaded(self) -> bool:
        """Whether it is there; the first call begins to load it.

        Raises:
            Unavailable: it cannot be read now: ask again.
            UserError: it never can.
        """
        with self._lock:
            if self._table is None and self._loading is None:
                self._begin()
            if self._table is None and self._loading is not None and self._loading.done():
                done, self._loading = self._loading, None
                self._take(done.result())
            return self._table is not None

    def tend(self) -> None:
        """Load it again if it is time, and take what was loaded. A failure is logged, and the old
        table stays."""
        if self._refresh_s is None or self._table is None:
            return
        with self._lock:
            if self._loading is None and self._clock.monotonic_s() >= self._due_s:
                self._begin()
            if self._loading is not None and self._loading.done():
                done, self._loading = self._loading, None
                try:
                    done.result().require_like(self._table)
                    self._take(done.result())
                except Exception as error:
                    self._due_s = self._clock.monotonic_s() + self._refresh_s
                    name = self._table.name
                    logger.warning("table %s stays as it is: %s", name, describe(error))

    def _begin(self) -> None:
        self._begun_s = self._clock.monotonic_s()
        self._loading = self._run(self._load)

    def _take(self, table: T) -> None:
        self._table, self.read_s = table, self._begun_s
        self._due_s = self._clock.monotonic_s() + (self._refresh_s or 0.0)
        logger.info("table %s has %s", table.name, table.size)


Load = Callable[[Callable[[], bool]], "Table"]
"""Loads a table. Gets a function that is false when nobody waits for it any more."""


class TableShare(NamedTuple):
    """Which part of the groups of a task a peer has."""

    task: TaskName
    rank: int
    """Number of the peer among those of the task."""
    peers: int


class TableId(NamedTuple):
    """A table, or a part of it, in a process."""

    job: JobId
    name: str
    share: TableShare | None
    """Whose part it is; None: the whole table."""


class TableMeasures(NamedTuple):
    """What a process has of a table."""

    rows: int
    bytes: int
    age_s: float
    """Since its reading had begun."""


class SharedTable(RefreshedTable["Table"]):
    """One table of one job in this process. Any thread may call."""

    def __init__(self, load: Load, run: Run, clock: Clock, refresh_s: float | None) -> None:
        """`load`: its function says whether a task still waits. Others as of `RefreshedTable`."""
        super().__init__(lambda: load(self._is_wanted), run, clock, refresh_s)
        self._asked: AskedTable | None = None
        self.users = 0

    def asked(self) -> AskedTable:
        """The table as questions see it. Takes long the first time."""
        table, asked = self.now(), self._asked
        if asked is None or asked.table is not table:
            asked = _ASKED.load()(table)
            with self._lock:
                # It holds the table, which may have been replaced meanwhile.
                self._asked = asked if self._table is table else None
        return asked

    def _take(self, table: Table) -> None:
        super()._take(table)
        self._asked = None

    def measures(self, now_s: float) -> TableMeasures | None:
        """How large it is, and how old; None before it is there."""
        table, read_s = self._table, self.read_s
        if table is None or read_s is None:
            return None
        return TableMeasures(len(table.rows), table.rows.size_bytes, max(0.0, now_s - read_s))

    def _is_wanted(self) -> bool:
        return self.users > 0


class SharedTables:
    """The tables of the jobs of a process. Any thread may call."""

    def __init__(self, run: Run, clock: Clock) -> None:
        """`run`: runs what may take long, on a thread of its own."""
        self._run, self._clock = run, clock
        self._lock = Lock()
        self._tables: dict[TableId, SharedTable] = {}

    def join(self, which: TableId, load: Load, refresh_s: float | None) -> SharedTable:
        """A table, for one more task."""
        with self._lock:
            table = self._tables.get(which)
            if table is None:
                table = SharedTable(load, self._run, self._clock, refresh_s)
                self._tables[which] = table
            table.users += 1
            return table

    def leave(self, which: TableId) -> None:
        """A task does not look it up any more."""
        with self._lock:
            table = self._tables[which]
            table.users -= 1
            if not table.users:
                del self._tables[which]


# --- what one task has of them --------------------------------------------------------------------


class TableSource(msgspec.Struct, frozen=True):
    """Where the rows of a table come from."""

    load: Callable[[TableShare | None], Load]
    """What loads the rows of a share; None: all."""
    refresh_s: float | None
    partitioned: bool
    """Whether a peer has the rows of its groups only."""


class TaskTables(msgspec.Struct):
    """What a task looks up. Other tasks of the process may look up the same tables."""

    job_id: JobId
    task: TaskName
    shared: SharedTables
    sources: Mapping[str, TableSource]
    by_name: dict[str, SharedTable] = field(default_factory=dict)
    ids: dict[str, TableId] = field(default_factory=dict)
    left: bool = False

    def take(self, rank: int, peers: int) -> None:
        """Have the tables, and of those that are partitioned the part of a peer. A part of before
        goes first, so there is memory for one only.

        Args:
            rank: number of the peer among those of the task.
            peers: how many the task has.
        """
        for name, source in self.sources.items():
            share = TableShare(self.task, rank, peers) if source.partitioned else None
            which = TableId(self.job_id, name, share)
            if self.ids.get(name) == which:
                continue
            if name in self.ids:
                self.shared.leave(self.ids.pop(name))
            self.by_name[name] = self.shared.join(which, source.load(share), source.refresh_s)
            self.ids[name] = which

    @property
    def loaded(self) -> bool:
        """Whether all are there. Raises as `SharedTable.loaded`."""
        loaded = [table.loaded() for table in self.by_name.values()]  # they load side by side
        return all(loaded)

    @property
    def missing(self) -> list[str]:
        """The names of those that are not there yet."""
        return [
            name
            for name in self.sources
            if name not in self.by_name or not self.by_name[name].is_there
        ]

    @property
    def now(self) -> Mapping[str, Callable[[], Table]]:
        """Each of them, as it is now."""
        return {name: partial(self._now, name) for name in self.sources}

    def tend(self) -> None:
        """Have those read again for which it is time."""
        for table in self.by_name.values():
            table.tend()

    def leave(self) -> None:
        """The task ends. May be called again."""
        ids, self.left = () if self.left else tuple(self.ids.values()), True
        for which in ids:
            self.shared.leave(which)

    def _now(self, name: str) -> Table:
        return self.by_name[name].now()
