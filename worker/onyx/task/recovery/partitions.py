"""Partitions of an input: numbered once by the log, dealt to peers, opened at their frontiers."""

from __future__ import annotations

import msgspec

from onyx.errors import UserError
from onyx.ledger.lineage import END_PARTITION
from onyx.log.room import NoRoom
from onyx.plugins.journalled.owning import OwningInput
from onyx.plugins.protocol import SnapshotInput
from onyx.plugins.starting import first_cursor
from onyx.replica.commands.register_partitions import RegisterPartitions
from onyx.replica.dealt_partitions import partitions_of
from onyx.replica.state import Partitions
from onyx.task.channels.wiring import Wiring
from onyx.task.parts.assignment import Assignment
from onyx.task.parts.runtime import Runtime
from onyx.task.recovery.frontiers import load_frontiers
from onyx.task.recovery.named_partitions import names_of
from onyx.task.recovery.upgraded import upgraded_job
from onyx.task.source.frontier import Frontier, FrontierStore
from onyx.task.source.source import Source
from onyx.task.user_code import reads_with_user_code, run_beside


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
    return True


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
    that drains it is as good as empty: nobody has read anything of it."""
    if wiring.rank != 0 or runtime.registration.proposed:
        return
    log, job, task = runtime.services.log, runtime.job_id, runtime.task
    drains = runtime.services.replica().run(job).draining

    def store() -> tuple[str, int]:
        names = [] if drains else _partition_names(runtime, source)
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
