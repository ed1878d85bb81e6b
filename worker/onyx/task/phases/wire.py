"""The phases of a new allocation version: wiring, recovery, readiness, replay.

Every peer of the job passes through them, whether it moved or stayed. Before a peer signals ready
it has dropped the old channels and opened its inbox, so nothing of the new version can reach it
early; inputs go on only when all are ready, so nothing of the new version is sent early either.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from onyx.errors import UserError
from onyx.flow.group_checks import Refusals
from onyx.ids import GroupId
from onyx.replica.state import Partitions
from onyx.task import user_code
from onyx.task.acking.owners import Owners
from onyx.task.acking.sender import AckSender
from onyx.task.channels.end_of_input import END_PARTITION, EndOfInput
from onyx.task.channels.event_time import event_time_of
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.wiring import commits, wire
from onyx.task.phases.table import Kind, Progress
from onyx.task.recovery import carry_over
from onyx.task.sink import exactly_once
from onyx.task.source.frontier import Frontier, FrontierStore
from onyx.task.source.source import Source
from onyx.task.task import Live, Task
from onyx.task.windowed import assign


def take_wiring(task: Task) -> Progress:
    """Join the newest version; an old inbox is closed with all that waits in it."""
    services = task.services
    replica = services.replica()
    allocation = replica.allocations.get(task.job_id)
    if allocation is None or task.peer not in allocation.get(task.name, ()):
        return Progress.WAITING
    wiring = wire(replica, task.job_id, task.static.job, task.peer, task.name)
    outbox = Outbox(services.transport, wiring)
    interval_s = services.settings.ledger.ack_interval_s
    acks = AckSender(services.transport, wiring, services.clock, interval_s)
    inbox = services.transport.open_inbox(
        wiring.job,
        wiring.version,
        wiring.me.peer,
        services.settings.task.inbox_segments_max,
        task.wake,
    )
    ends = EndOfInput(wiring, outbox, acks)
    several = {child.task for child in wiring.children if len(child.sites) > 1}
    refusals = Refusals(task.static.groupings, several)
    task.live = Live(wiring, outbox, acks, inbox, ends, refusals, event_time_of(task, wiring))
    task.static.event["slot_id"] = wiring.slot
    return Progress.ADVANCED


def recover(task: Task) -> Progress:
    if task.kind is Kind.OUTPUT:
        sink = task.static.sink
        assert sink is not None
        if not carry_over.succeeded(task):
            return Progress.WAITING
        if sink.transactional and commits(task.static.job, task.name):
            return Progress.ADVANCED if exactly_once.recover(task) else Progress.WAITING
        sink.rewire(_not_dead_yet(task))
    if task.kind is Kind.INPUT:
        return _recover_input(task)
    return assign.recover_state(task)


def signal_ready(task: Task) -> Progress:
    task.propose("signal-ready", id=task.peer, version=task.live.wiring.version)
    return Progress.ADVANCED


def await_ready(task: Task) -> Progress:
    live = task.live
    if not live.ready:
        return Progress.WAITING
    if live.committing is not None and task.static.sink is not None:
        # Whatever the dead have committed is visible by now; the rest is nobody's.
        task.static.sink.fence(_not_dead_yet(task))
    if task.ready_since_s is None:
        task.ready_since_s = task.services.clock.monotonic_s()
    live.owners = Owners(task.services.replica(), task.job_id, live.wiring.sources)
    return Progress.ADVANCED


def _not_dead_yet(task: Task) -> list[GroupId]:
    """Groups that are there, and those that were when this version began: what one of these has
    committed since is found by those who take over from it, in the next version."""
    return sorted({*task.live.wiring.groups, *task.services.replica().groups})


def resume(task: Task) -> Progress:
    """Open the partitions that are new here, then read again what was in flight."""
    source = task.static.source
    assert source is not None
    missing = {n: name for n, name in _owned(task).items() if n not in source.known}
    if missing:
        loaded = task.poll(
            "frontiers", lambda: task.services.background(lambda: _load(task, missing))
        )
        if loaded is None:
            return Progress.WAITING
        for number, (store, frontier) in loaded.items():
            source.open(number, missing[number], store, frontier)
    source.replay_pending()
    return Progress.ADVANCED


def _load(task: Task, numbers: Iterable[int]) -> dict[int, tuple[FrontierStore, Frontier]]:
    stores = {number: FrontierStore(task.services, task.job_id, number) for number in numbers}
    found = carry_over.load_frontiers(task, stores)
    return {number: (store, found[number]) for number, store in stores.items()}


def _recover_input(task: Task) -> Progress:
    """Make sure that partitions are registered; give away those that fall to others now, their
    frontier saved before this peer signals ready."""
    source = task.static.source
    assert source is not None
    registered = _registered(task)
    if registered is None:
        return _register(task, source)
    if task.partition_names is None:
        log, digest = task.services.log, registered.digest
        task.partition_names = task.poll(
            "names", lambda: task.services.background(lambda: json.loads(log.get_chunk(digest)))
        )
    if task.partition_names is None:
        return Progress.WAITING
    owned = _owned(task)
    lost = [number for number in source.known if number not in owned]
    return Progress.ADVANCED if source.give_away(lost) else Progress.WAITING


def _registered(task: Task) -> Partitions | None:
    found = task.services.replica().partitions.get(task.job_id)
    return found.get(task.name) if found else None


def _register(task: Task, source: Source) -> Progress:
    """The peer of the lowest slot lists the source; the log decides, once for all peers. For a job
    that drains it is as good as empty: nobody has read anything of it."""
    if task.live.wiring.rank != 0 or task.registering:
        return Progress.WAITING
    log = task.services.log

    drains = task.job_id in task.services.replica().draining_jobs

    def store() -> tuple[str, int]:
        names = [] if drains else _partition_names(task, source)
        if len(names) > END_PARTITION:
            raise UserError(
                f"task {task.name}: the source has {len(names):,} partitions, but at most "
                f"{END_PARTITION:,} are possible: use fewer, larger files"
            )
        return log.put_chunk(json.dumps(names).encode()), len(names)

    stored = task.poll("partitions", lambda: task.services.background(store))
    if stored is not None:
        task.registering = True
        digest, count = stored
        task.propose(
            "register-partitions", job=task.job_id, task=task.name, count=count, digest=digest
        )
    return Progress.WAITING


def _partition_names(task: Task, source: Source) -> list[str]:
    def names() -> list[str]:
        return list(source.plugin.partitions())

    if not user_code.reads_with_user_code(task.static.entry):
        return names()
    return user_code.run_beside(task, "partitions", names)


def _owned(task: Task) -> dict[int, str]:
    """Numbers and names of the partitions of this peer: they are dealt by the order of slots."""
    wiring, registered = task.live.wiring, _registered(task)
    assert registered is not None
    assert task.partition_names is not None
    return {
        registered.first + index: name
        for index, name in enumerate(task.partition_names)
        if index % wiring.task_peers == wiring.rank
    }
