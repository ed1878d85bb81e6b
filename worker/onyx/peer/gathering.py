"""What each peer of a group has to log about one job becomes one entry of the group. Pure.

A peer signals that it is ready, that it has read its partitions to the end, and that nothing of it
is in flight. Nobody can act on any of these before the last peer has done so. So a group holds what
its peers propose, and writes one entry when the last of its peers on the job (or on the task) has
proposed. The log then grows with groups and not with peers: 450 peers of two processes write two
entries where they wrote 450.

What is held is of one allocation version. When the version changes it is dropped, as after a crash
of the process: every peer is wired again, and proposes again what still holds. A peer that proposes
after the group has written is written at once, so nothing waits for a peer that has proposed.

One signal of the group is on its way to the log at a time. Jobs that become ready meanwhile wait
until the group has read it, and go together: a change that rewires fifty jobs costs a few entries,
and a job alone waits for nothing (Nagle's algorithm, RFC 896).

Rejected: waiting for a time in place of the last peer, which delays short jobs and still writes
several entries for long ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from immutables import Map
from msgspec.structs import replace

from onyx.ids import GroupId, JobId, PeerId, TaskName
from onyx.replica.command import Command
from onyx.replica.commands.exhaust_input import PARTITIONS_MAX, ExhaustInput
from onyx.replica.commands.pause_job import SignalRest
from onyx.replica.commands.signal_ready import PEERS_MAX, ReadyPeers, SignalReady
from onyx.replica.state import NOTHING, JobRun, Replica

Key = tuple[JobId, TaskName, str]
"""What peers propose together, the name of the command last: a task that is exhausted or at rest;
with an empty name, the readiness of a job."""
_ALL_TASKS = TaskName("")


class Proposals(msgspec.Struct, frozen=True):
    """Proposals of one key."""

    version: int
    """Allocation version of the job."""
    peers: frozenset[PeerId] = frozenset()
    """Who has proposed."""
    items: tuple[Any, ...] = ()
    """Peers that are ready or at rest, or exhausted partitions, that are not written yet."""


class Gathering(msgspec.Struct, frozen=True):
    """What a group has heard from some of its peers and has not written."""

    held: Map[Key, Proposals] = NOTHING
    complete: tuple[ReadyPeers, ...] = ()
    """Jobs on which all peers of the group are ready, to be written with the next signal."""
    on_its_way: bool = False
    """Whether a signal of the group has been written and not been read yet."""


Result = tuple[Gathering, tuple[Command, ...]]


def is_gathered(command: Command) -> bool:
    """Whether a group writes this for all its peers together."""
    if isinstance(command, ExhaustInput):
        return command.partitions is not None
    return isinstance(command, SignalReady | SignalRest)


def gather(
    gathering: Gathering, replica: Replica, group: GroupId, peer: PeerId, command: Command
) -> Result:
    """Add a proposal of a peer; with the last one of the group comes what the group writes."""
    if isinstance(command, ExhaustInput):
        key = command.job, command.task, command.NAME
        gathering, partitions = _add(gathering, replica, group, key, peer, command.partitions or ())
        return gathering, tuple(_exhausted(command, partitions))
    if isinstance(command, SignalRest):
        if command.version != replica.run(command.job).allocation_version:
            return gathering, ()
        key = command.job, command.task, f"{command.NAME} {command.pause}"
        gathering, peers = _add(gathering, replica, group, key, peer, command.peers)
        return gathering, tuple(_rested(command, peers))
    assert isinstance(command, SignalReady)
    for ready in command.jobs:
        if ready.version == replica.run(ready.job).allocation_version:
            key = ready.job, _ALL_TASKS, command.NAME
            gathering, peers = _add(gathering, replica, group, key, peer, ready.peers)
            complete = (*gathering.complete, *_parts(ready, peers))
            gathering = replace(gathering, complete=complete)
    return _signal(gathering)


def read(gathering: Gathering, replica: Replica, mine: bool) -> Result:
    """The replica has changed: proposals for versions that are over are dropped. With `mine`, a
    signal of the group has been read, or passed over, so the next one may go."""

    def is_over(job: JobId, version: int) -> bool:
        return version != replica.run(job).allocation_version

    held, complete = gathering.held, gathering.complete
    for key in sorted(key for key in held if is_over(key[0], held[key].version)):
        held = held.delete(key)
    if any(is_over(each.job, each.version) for each in complete):
        complete = tuple(each for each in complete if not is_over(each.job, each.version))
    if held is not gathering.held or complete is not gathering.complete:
        gathering = replace(gathering, held=held, complete=complete)
    return _signal(replace(gathering, on_its_way=False)) if mine else (gathering, ())


def _add(
    gathering: Gathering,
    replica: Replica,
    group: GroupId,
    key: Key,
    peer: PeerId,
    items: tuple[Any, ...],
) -> tuple[Gathering, tuple[Any, ...]]:
    """The gathering with one more proposal; and all items of the key, if it was the last."""
    run = replica.run(key[0])
    expected = _expected(run, key[1]).intersection(replica.groups_index.get(group, ()))
    held = gathering.held.get(key)
    if held is None or held.version != run.allocation_version:
        held = Proposals(run.allocation_version)
    peers, items = held.peers | {peer}, (*held.items, *items)
    left = () if peers.issuperset(expected) else items
    held = Proposals(held.version, peers, left)
    gathering = replace(gathering, held=gathering.held.set(key, held))
    return gathering, () if left else tuple(sorted(set(items)))


def _expected(run: JobRun, task: TaskName) -> frozenset[PeerId]:
    """Peers that propose this some time, of all groups."""
    if task != _ALL_TASKS:
        return frozenset(run.allocation.get(task, ()))
    return frozenset(peer for peers in run.allocation.values() for peer in peers)


def _signal(gathering: Gathering) -> Result:
    """Write what is complete, if no signal is on its way."""
    if gathering.on_its_way or not gathering.complete:
        return gathering, ()
    entries, peers = [list[ReadyPeers]()], 0
    for ready in gathering.complete:
        peers += len(ready.peers)
        if peers > PEERS_MAX and entries[-1]:
            entries.append([])
            peers = len(ready.peers)
        entries[-1].append(ready)
    commands = tuple(SignalReady(jobs=tuple(jobs)) for jobs in entries)
    return replace(gathering, complete=(), on_its_way=True), commands


def _parts(ready: ReadyPeers, peers: tuple[PeerId, ...]) -> Iterator[ReadyPeers]:
    for start in range(0, len(peers), PEERS_MAX):
        yield ReadyPeers(ready.job, ready.version, peers[start : start + PEERS_MAX])


def _exhausted(command: ExhaustInput, partitions: tuple[int, ...]) -> Iterator[Command]:
    for start in range(0, len(partitions), PARTITIONS_MAX):
        some = partitions[start : start + PARTITIONS_MAX]
        yield ExhaustInput(job=command.job, task=command.task, partitions=some)


def _rested(command: SignalRest, peers: tuple[PeerId, ...]) -> Iterator[Command]:
    for start in range(0, len(peers), PEERS_MAX):
        yield replace(command, peers=peers[start : start + PEERS_MAX])
