"""Partitions of an input: numbered once by the log, dealt to peers, opened at their frontiers."""

from __future__ import annotations

import json

from onyx.errors import UserError
from onyx.ledger.lineage import END_PARTITION
from onyx.replica.commands.register_partitions import RegisterPartitions
from onyx.replica.state import Partitions
from onyx.task.channels.wiring import Wiring
from onyx.task.parts import Assignment, Background, Program, Registration
from onyx.task.recovery import carry_over
from onyx.task.source.frontier import Frontier, FrontierStore
from onyx.task.source.source import Source
from onyx.task.user_code import reads_with_user_code, run_beside


def recover(
    assignment: Assignment,
    program: Program,
    wiring: Wiring,
    registration: Registration,
    background: Background,
    source: Source,
) -> bool:
    """Make sure that partitions are registered; give away those that fall to others now, their
    frontier saved before this peer signals ready. False while the job waits for it."""
    registered = _registered(assignment)
    if registered is None:
        _register(assignment, program, wiring, registration, background, source)
        return False
    if registration.names is None:
        log, digest = assignment.services.log, registered.digest
        registration.names = background.poll("names", lambda: json.loads(log.get_chunk(digest)))
    if registration.names is None:
        return False
    owned = _owned(assignment, wiring, registration)
    return source.give_away([number for number in source.known if number not in owned])


def open_owned(
    assignment: Assignment,
    program: Program,
    wiring: Wiring,
    registration: Registration,
    background: Background,
    source: Source,
) -> bool:
    """Open the partitions that are new to this peer; False while their frontiers are read."""
    owned = _owned(assignment, wiring, registration)
    missing = {n: name for n, name in owned.items() if n not in source.known}
    if not missing:
        return True

    def load() -> dict[int, tuple[FrontierStore, Frontier]]:
        services, job = assignment.services, assignment.job_id
        stores = {number: FrontierStore(services, job, number) for number in missing}
        found = carry_over.load_frontiers(assignment, program, stores)
        return {number: (store, found[number]) for number, store in stores.items()}

    loaded = background.poll("frontiers", load)
    if loaded is None:
        return False
    for number, (store, frontier) in loaded.items():
        source.open(number, missing[number], store, frontier)
    return True


def _registered(assignment: Assignment) -> Partitions | None:
    found = assignment.services.replica().partitions.get(assignment.job_id)
    return found.get(assignment.task) if found else None


def _register(
    assignment: Assignment,
    program: Program,
    wiring: Wiring,
    registration: Registration,
    background: Background,
    source: Source,
) -> None:
    """The peer of the lowest slot lists the source; the log decides, once for all peers. For a job
    that drains it is as good as empty: nobody has read anything of it."""
    if wiring.rank != 0 or registration.proposed:
        return
    log, job, task = assignment.services.log, assignment.job_id, assignment.task
    drains = job in assignment.services.replica().draining_jobs

    def store() -> tuple[str, int]:
        names = [] if drains else _partition_names(assignment, program, source)
        if len(names) > END_PARTITION:
            raise UserError(
                f"task {task}: the source has {len(names):,} partitions, but at most "
                f"{END_PARTITION:,} are possible: use fewer, larger files"
            )
        return log.put_chunk(json.dumps(names).encode()), len(names)

    stored = background.poll("partitions", store)
    if stored is not None:
        registration.proposed = True
        digest, count = stored
        assignment.propose(RegisterPartitions(job=job, task=task, count=count, digest=digest))


def _partition_names(assignment: Assignment, program: Program, source: Source) -> list[str]:
    def names() -> list[str]:
        return list(source.plugin.partitions())

    if not reads_with_user_code(program.entry):
        return names()
    return run_beside(assignment, "partitions", names)


def _owned(assignment: Assignment, wiring: Wiring, registration: Registration) -> dict[int, str]:
    """Numbers and names of the partitions of this peer: they are dealt by the order of slots."""
    registered = _registered(assignment)
    assert registered is not None
    assert registration.names is not None
    return {
        registered.first + index: name
        for index, name in enumerate(registration.names)
        if index % wiring.task_peers == wiring.rank
    }
