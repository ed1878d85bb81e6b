"""The page of the cluster: its workers, who watches whom, what their peers do, which code they run;
pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from onyx.console.board import Board
from onyx.console.measured import Measured
from onyx.console.words import listed, short
from onyx.ids import GroupId, JobId, PeerId
from onyx.replica import canonical
from onyx.replica.members import is_joining
from onyx.replica.state import Replica
from onyx.reports import codes
from onyx.reports.deaths import memory_words

RING_RADIUS, RING_MARGIN, RING_TOP = 104, 84, 34
RING_MAX = 40
"""Workers that are drawn; a larger ring is a table alone."""
WORKERS_MAX = 500


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker: one group."""

    id: str
    address: str
    peers: int
    busy: int
    jobs: str
    tags: tuple[str, ...]
    code: str
    watches: str
    memory: int | None
    """Memory of its process, in bytes."""
    applied: int | None
    """The last entry of the log that it has applied."""
    silent: str
    """Why it has not said what it measures."""
    agrees: bool | None
    """Whether its replica is the one that the log gives; None: they cannot be compared now."""


class RingNode(msgspec.Struct, frozen=True):
    """A worker on the circle, and the arrow to the one that it watches."""

    x: int
    y: int
    label: str
    anchor: str
    path: str
    title: str


class DeathRow(msgspec.Struct, frozen=True):
    """A process that has died."""

    at_ms: int
    host: str
    process: int
    how: str
    inside: str
    memory: str


class ClusterPage(msgspec.Struct, frozen=True):
    """All that the page shows."""

    workers: tuple[WorkerRow, ...]
    more_workers: int
    joining: tuple[str, ...]
    ring: tuple[RingNode, ...]
    peers: int
    busy: int
    scheduler: str
    codes: tuple[tuple[str, int], ...]
    """Hashes of code, with how many peers run it."""
    code_warning: str
    deaths: tuple[DeathRow, ...]
    version: int
    digest: str
    agreeing: int
    """Workers whose replicas are those that the log gives."""
    differing: tuple[str, ...]
    left: int
    width: int = 2 * (RING_RADIUS + RING_MARGIN)
    height: int = 2 * (RING_RADIUS + RING_TOP)


def cluster_page(board: Board, replica_at: Callable[[int], Replica | None]) -> ClusterPage:
    """The page as of now.

    Args:
        replica_at: gives the replica after an entry, as far as it is known.
    """
    replica = board.replica
    agree = {each: _agrees(board.measured, each, replica_at) for each in replica.groups}
    works = _work(replica)
    found = codes.by_pool(
        (replica.peer_tags.get(peer, ()), replica.peer_sites[peer].get(codes.CODE))
        for peer in replica.peers
        if peer in replica.peer_sites
    )
    mixed = [name for name, counts in found.items() if len(counts) > 1]
    deaths = sorted(board.deaths, key=lambda each: -each.at_ms)[:20]
    return ClusterPage(
        workers=tuple(
            _worker(replica, each, works, board.measured, agree[each])
            for each in replica.groups[:WORKERS_MAX]
        ),
        more_workers=max(0, len(replica.groups) - WORKERS_MAX),
        joining=tuple(
            short(each)
            for each in sorted({*replica.prepared.values(), *replica.accepted.values()})
            if is_joining(replica, each)
        ),
        ring=tuple(_ring(replica)),
        peers=len(replica.peers),
        busy=sum(peer in works for peer in replica.peers),
        scheduler=replica.job_scheduler,
        codes=tuple(codes.total(found).items()),
        code_warning=_mixed(mixed),
        deaths=tuple(
            DeathRow(
                each.at_ms, each.host, each.process, each.how, each.inside,
                memory_words(each).removeprefix(", "),
            )
            for each in deaths
        ),
        version=replica.version,
        digest=canonical.digest(replica),
        agreeing=sum(each is True for each in agree.values()),
        differing=tuple(short(each, 13) for each, agrees in agree.items() if agrees is False),
        left=len(replica.left),
    )  # fmt: skip


def _mixed(pools: list[str]) -> str:
    if not pools:
        return ""
    where = listed([f"[{each}]" for each in sorted(pools) if each])
    who = f"peers with tags {where}" if where else "peers"
    return f"{who} run different code: restart the workers with the wrong one"


def _work(replica: Replica) -> dict[PeerId, JobId]:
    """What each peer works on."""
    return {
        peer: job
        for job in replica.jobs
        for peers in replica.run(job).allocation.values()
        for peer in peers
    }


def _agrees(
    measured: Measured, group: GroupId, replica_at: Callable[[int], Replica | None]
) -> bool | None:
    """Whether a worker has the replica that the log gives at the entry that it has applied."""
    its = measured.workers.get(group)
    mine = None if its is None or not its.digest else replica_at(its.zookeeper.log_position)
    return None if its is None or mine is None else canonical.digest(mine) == its.digest


def _worker(
    replica: Replica,
    group: GroupId,
    works: dict[PeerId, JobId],
    measured: Measured,
    agrees: bool | None,
) -> WorkerRow:
    its = measured.workers.get(group)
    peers = replica.groups_index.get(group, ())
    jobs = Counter(works[peer] for peer in peers if peer in works)
    tags = sorted({tag for peer in peers for tag in replica.peer_tags.get(peer, ())})
    sites = [replica.peer_sites[peer] for peer in peers if peer in replica.peer_sites]
    announced = sorted({codes.shown(each.get(codes.CODE)) for each in sites})
    return WorkerRow(
        group,
        listed(sorted({str(each.get("address", "")) for each in sites}), 2),
        len(peers),
        sum(jobs.values()),
        listed([short(job) for job in jobs], 3),
        tuple(tags),
        listed([each for each in announced if each != codes.NO_CODE], 2),
        replica.pairs.get(group, ""),
        None if its is None else its.memory_bytes,
        None if its is None else its.zookeeper.log_position,
        measured.silent.get(group, ""),
        agrees,
    )


def _ring(replica: Replica) -> Iterator[RingNode]:
    """The members in the order of the ring, each with an arrow to the one that it watches."""
    order = _in_ring(replica)
    if not 1 < len(order) <= RING_MAX:
        return
    step = 2 * math.pi / len(order)
    at = [_on_circle(step * n) for n in range(len(order))]
    for n, group in enumerate(order):
        angle = step * n
        (x, y), (to_x, to_y) = at[n], at[(n + 1) % len(order)]
        label_x = (
            "start" if math.sin(angle) > 0.2 else "end" if math.sin(angle) < -0.2 else "middle"
        )
        path = f"M{x} {y}A{RING_RADIUS} {RING_RADIUS} 0 0 1 {to_x} {to_y}"
        title = f"{group} watches {order[(n + 1) % len(order)]}"
        yield RingNode(*at[n], short(group), label_x, path, title)


def _on_circle(angle: float) -> tuple[int, int]:
    right, down = RING_RADIUS * math.sin(angle), -RING_RADIUS * math.cos(angle)
    return round(RING_RADIUS + RING_MARGIN + right), round(RING_RADIUS + RING_TOP + down)


def _in_ring(replica: Replica) -> list[GroupId]:
    found: list[GroupId] = []
    at = replica.groups[0] if replica.groups else None
    while at is not None and at not in found:
        found.append(at)
        at = replica.pairs.get(at)
    return found
