"""Partitions of an input: numbered once by the log, dealt to peers, opened at their frontiers.

These are their own frontiers, or at first those of the old job. If that ran on Spark, they are the
positions behind its last micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from onyx.base.on_demand import OnDemand
from onyx.errors import UserError
from onyx.ledger.lineage import END_PARTITION
from onyx.log.tenancy import NoRoom
from onyx.plugins.protocol import Cursor, OwningInput, SnapshotInput
from onyx.plugins.starting import first_cursor
from onyx.replica.commands.register_partitions import RegisterPartitions
from onyx.replica.job_events import INPUT_BEGINS, beginnings, local_event
from onyx.replica.jobs import partitions_of
from onyx.replica.state import Partitions
from onyx.task.channels.wiring import Wiring
from onyx.task.parts import Assignment, Runtime
from onyx.task.recovery.old_job import OldManifest, names_of, old_job, upgraded_job
from onyx.task.source.frontier import BEGIN, Frontier, FrontierStore
from onyx.task.source.source import Source
from onyx.task.user_code import reads_with_user_code, run_beside
from onyx.telemetry.logs import happened

NAME_CHARACTERS_MAX = 48

if TYPE_CHECKING:
    from onyx.spark.driver.committed import Committed
    from onyx.spark.driver.request import Position

_PUBLISH_COMMITTED: OnDemand[Callable[[Assignment, OldManifest, Committed], None]]
_PUBLISH_COMMITTED = OnDemand("onyx.task.recovery.old_state:publish_committed")


def recover(runtime: Runtime, wiring: Wiring, source: Source) -> bool:
    """Make sure that partitions are registered; give away those that fall to others now, their
    frontier saved before this peer signals ready. False while the job waits for it."""
    registered, known = _registered(runtime.assignment), runtime.registration
    if registered is None:
        _register(runtime, wiring, source)
        return False
    if known.names is None:
        log, job, task = runtime.services.log, runtime.job_id, runtime.task
        poll = runtime.assignment.background.poll
        known.names = poll("names", lambda: names_of(log, job, task, registered))
    if known.names is None:
        return False
    owned = _owned(runtime, wiring)
    return source.give_away([number for number in source.known if number not in owned])


def open_owned(runtime: Runtime, wiring: Wiring, source: Source) -> bool:
    """Open the partitions that are new to this peer; False while their frontiers are read."""
    owned = _owned(runtime, wiring)
    missing = {n: name for n, name in owned.items() if n not in source.known}
    if not missing:
        return True

    def load() -> dict[int, tuple[FrontierStore, Frontier]]:
        services, job = runtime.services, runtime.job_id
        stores = {number: FrontierStore(services, job, number) for number in missing}
        found = load_frontiers(runtime, stores, lambda each: _first(source, missing[each]))
        return {number: (store, found[number]) for number, store in stores.items()}

    loaded = runtime.assignment.background.poll("frontiers", load)
    if loaded is None:
        return False
    if isinstance(source.plugin, OwningInput):
        source.plugin.allocate(wiring.version)
    for number, (store, frontier) in loaded.items():
        source.open(number, missing[number], store, frontier)
    _report_beginning(runtime, missing, {number: each for number, (_, each) in loaded.items()})
    return True


def _report_beginning(
    runtime: Runtime, names: Mapping[int, str], frontiers: Mapping[int, Frontier]
) -> None:
    size = "1 partition" if len(frontiers) == 1 else f"{len(frontiers)} partitions"
    positions = beginnings(
        [(names[number], at.position, at.exhausted) for number, at in sorted(frontiers.items())]
    )
    happened(
        local_event(INPUT_BEGINS, runtime.job_id, task=runtime.task, size=size, positions=positions)
    )


def _first(source: Source, name: str) -> Frontier:
    """Where a partition begins that nobody has read."""
    cursor = first_cursor(source.plugin, name)
    if cursor is None:
        return Frontier(0, exhausted=True)
    return Frontier(cursor.position, cursor, reserved=cursor.position)


def _registered(assignment: Assignment) -> Partitions | None:
    return assignment.services.replica().partitions(assignment.job_id).get(assignment.task)


def _register(runtime: Runtime, wiring: Wiring, source: Source) -> None:
    """The peer of the lowest slot lists the source; the log decides, once for all peers. For a job
    that drains it is as good as empty: nobody has read anything of it, unless another job has, in
    whose place this one has come."""
    if wiring.rank != 0 or runtime.registration.proposed:
        return
    log, job, task = runtime.services.log, runtime.job_id, runtime.task
    replica = runtime.services.replica()
    unread = replica.run(job).draining and replica.upgrades(job) is None

    def store() -> tuple[str, int]:
        names = [] if unread else _partition_names(runtime, source)
        if len(names) > END_PARTITION:
            raise UserError(
                f"task {task}: the source has {len(names):,} partitions, but at most "
                f"{END_PARTITION:,} are possible: use fewer, larger files"
            )
        try:
            return log.put_chunk(msgspec.json.encode(names), if_room=True), len(names)
        except NoRoom as error:
            raise UserError(f"task {task}: its {len(names):,} partitions: {error}") from None

    stored = runtime.assignment.background.poll("partitions", store)
    if stored is not None:
        runtime.registration.proposed = True
        digest, count = stored
        runtime.assignment.propose(
            RegisterPartitions(job=job, task=task, count=count, digest=digest)
        )


def _partition_names(runtime: Runtime, source: Source) -> list[str]:
    def names() -> list[str]:
        plugin = source.plugin
        if isinstance(plugin, SnapshotInput):
            plugin.upgrade(lambda: upgraded_job(runtime, "input"))
        return list(plugin.partitions())

    if not reads_with_user_code(runtime.program.entry):
        return names()
    return run_beside(runtime.assignment, "partitions", names)


def _owned(runtime: Runtime, wiring: Wiring) -> dict[int, str]:
    """Numbers and names of the partitions of this peer."""
    registered, names = _registered(runtime.assignment), runtime.registration.names
    assert registered is not None
    assert names is not None
    mine = partitions_of(wiring.rank, len(names), wiring.task_peers)
    return {registered.first + index: names[index] for index in mine}


# --- frontiers ----------------------------------------------------------------------------------


def load_frontiers(
    runtime: Runtime, stores: Mapping[int, FrontierStore], start: Callable[[int], Frontier]
) -> dict[int, Frontier]:
    """Where to begin to read partitions, by their numbers. Blocks. Each partition without a
    document gets one if there is an old job, which is not needed any more then, and if it begins
    where its input says, which may be elsewhere later.

    Args:
        start: where a partition begins of which neither this job nor the old one knows anything.

    Raises:
        UserError: `onyx gc` has forgotten the old job.
    """
    found = {number: store.load() for number, store in stores.items()}
    missing = [number for number, store in stores.items() if not store.stored]
    if not missing:
        return found
    upgrades = runtime.services.replica().upgrades(runtime.job_id) is not None
    # Only when all peers are ready, and so all logs of the old job fenced. A frontier that was
    # read before could still move, and the old job forgets the ids behind it: segments from
    # there on would be taken for new ones.
    old = _of_old_job(runtime, missing) if upgrades else {}
    for number in missing:
        found[number] = old[number] if number in old else start(number)
        if upgrades or found[number] != BEGIN:
            stores[number].begin(found[number])
    return found


def _of_old_job(runtime: Runtime, numbers: Collection[int]) -> dict[int, Frontier]:
    """What the old job has stored of these partitions, by the numbers that they have here."""
    old, found = old_job(runtime.assignment, runtime.program.job), dict[int, Frontier]()
    if old.query is not None:
        _PUBLISH_COMMITTED.load()(runtime.assignment, old, old.query)
        positions = old.query.read
        return {
            here: _frontier(positions[there])
            for there, here in old.numbers.items()
            if here in numbers
        }
    for there, here in old.numbers.items():
        if here in numbers:
            store = FrontierStore(runtime.services, old.id, there)
            frontier = store.load()
            if store.stored:
                found[here] = frontier
    return found


def _frontier(at: Position) -> Frontier:
    """Nothing behind a position was sent, and all before it is complete."""
    cursor, reserved = Cursor(at.cursor, at.state), at.position
    return Frontier(at.position, cursor, at.exhausted, reserved, newest_ms=at.newest_ms)
