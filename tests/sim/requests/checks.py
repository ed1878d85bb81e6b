"""The invariants of requests and journals, beside those of windows, state and ids.

J1 what a client was told is true when it hears it: a request that is JOURNALLED is in the journal,
one that is PROCESSED can be seen in the outputs as well, behind state too (of what a window has
taken, logs have it); J2 no segment is in the journal twice, and each that is there comes out, once
under exactly-once; J3 the same request is never a conflict, other content under its id always is;
J4 nothing goes from the journal that may be read again; J5 a new owner finds all positions and all
ids, and so does a job that goes on in the journal, which takes for processed what is; J8 where what
is processed is kept, who follows the journal reads all of it; O2 where the order is kept on retry,
what an output was given last of a partition is in order; O3 without retries nothing is sent again;
D1 what is bad is a dead letter and is not written, all else is written; D2 a dead letter was tried
as often as it may be.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
from tests.sim.requests.story import Asked
from tests.sim.windows.checks import Checks
from tests.sim.windows.storage import Storage
from tests.sim.windows.violation import fatal

from onyx.base.runs import Numbers, array_of
from onyx.flow.batch import Batch, as_dicts
from onyx.ids import AllocationVersion, PeerId
from onyx.journal.depot import Depot
from onyx.journal.journal import Journal, read_ended
from onyx.journal.logs import JOURNALS, Chunk, ChunkPlace, PartitionFolder, decode_chunk
from onyx.journal.view import JournalView
from onyx.ledger.lineage import PARTITION_SHIFT, unpack
from onyx.log import documents
from onyx.plugins.requests.request_queue import RequestQueue
from onyx.requests.request import Status
from onyx.storage.fenced_log import NOTE
from onyx.transport.interface import Channel

if TYPE_CHECKING:
    from tests.sim.requests.world import RequestWorld

_CHUNK = re.compile(rf"(.+)/{re.escape(JOURNALS)}/(.+)/(\d{{5}})/(\d{{20}})/(\d{{12}})\Z")
RECOVERY_RATE = 0.03
"""How often the journals are read as a new owner would, between two rounds."""


class RequestChecks(Checks):
    def __init__(self, world: RequestWorld) -> None:
        super().__init__(world)
        self._of = world
        self._given: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        """The segments in the journal of each partition, by position."""
        self._ids: defaultdict[int, dict[str, int]] = defaultdict(dict)
        """Ids in the journal of each partition, with where they begin."""
        self._where: dict[int, tuple[int, int]] = {}
        """Partition and position by the number of a segment."""
        self._read_until: defaultdict[int, int] = defaultdict(int)
        """Behind the last position of each partition that was ever sent."""
        self._once: dict[tuple[PeerId, AllocationVersion, int], int] = {}
        self._last: dict[int, tuple[int, int]] = {}
        """When each segment was written last: in which version, and as which of all."""
        self._writes = 0
        self._promised: dict[int, Status] = {}
        self._failed: set[str] = set()
        """Ids of requests that have failed for good."""

    # --- what happens ---------------------------------------------------------------------------

    @fatal
    def journalled(self, folder: PartitionFolder, place: ChunkPlace, chunk: Chunk) -> None:
        """A chunk of a journal is durable from now on."""
        mine = self._given[folder.partition]
        if not chunk.count and not chunk.requests:
            return
        self._of.trace.update(folder.chunk(*place).encode())
        where = f"chunk {place} of partition {folder.partition}"
        assert chunk.first == len(mine), f"J2: {where} begins at {chunk.first}, not {len(mine)}"
        for run in chunk.runs():
            for segment in as_dicts(run):
                before = self._where.get(segment["n"])
                assert before is None, f"J2: {where}: {segment} is at {before} already"
                self._where[segment["n"]] = (folder.partition, len(mine))
                mine.append(dict(segment))
        for request in chunk.requests:
            before_at = self._ids[folder.partition].get(request.id)
            judged = request.outcomes is not None and before_at == request.first
            assert before_at is None or judged, f"J2: {where}: {request.id} is at {before_at}"
            self._ids[folder.partition][request.id] = request.first

    @fatal
    def collected(self, folder: PartitionFolder, chunk: Chunk) -> None:
        """A chunk is about to go."""
        frontier = self._read_from(folder.partition)
        end = chunk.first + chunk.count
        assert end <= frontier, (
            f"J4: positions up to {end} of partition {folder.partition} go, and it is read from "
            f"{frontier} on"
        )
        if self._of.keeps and chunk.count:
            kept = Depot(self._of.storage.chunks, folder)
            what = f"J8: chunk {chunk.first} to {end} of partition {folder.partition} goes"
            for position in range(chunk.first, end):
                assert kept.find(position) is not None, f"{what}, and is not kept"

    def answered(self, asked: Asked, status: Status) -> None:
        """A client hears this of its request."""
        if status is Status.FAILED and asked.id:
            self._failed.add(asked.id)
        elif status is Status.PROCESSED:
            assert asked.id not in self._failed, f"J7: {asked.id!r} failed, and is {status} now"
        for segment in asked.segments:
            number = segment["n"]
            self._promised[number] = status
            place = self._where.get(number)
            assert place is not None, f"J1: {asked.id!r} is {status}, but {number} in no journal"
            if status is Status.PROCESSED:
                self._check_processed(asked.id, number, *place)

    def written(self, version: int, segments: Iterable[Any]) -> None:
        """An output has been given these."""
        for segment in segments:
            self._writes += 1
            if "n" in segment:
                self._last[segment["n"]] = (version, self._writes)

    @fatal
    def taken(self, channel: Channel, batch: Batch) -> None:
        """An inbox has taken a batch."""
        super().taken(channel, batch)
        if batch.roots is None or not self._reads(channel.source):
            return
        partitions, _, positions = unpack(array_of(batch.roots))
        for number, position in zip(partitions.tolist(), positions.tolist(), strict=True):
            index = number - self._first
            self._read_until[index] = max(self._read_until[index], position + 1)
            if not self._of.story.given_up:
                continue
            key = (channel.source, channel.version, number)
            before = self._once.get(key, -1)
            assert position > before, f"O3: partition {number} goes from {before} to {position}"
            self._once[key] = position

    def completed(self, roots: Numbers) -> None:
        """These trees are reported complete to somebody."""
        if self._of.story.guarantee == "exactly-once":
            super().completed(roots)
            return
        partitions, _, positions = unpack(array_of(roots))
        for partition, position in zip(partitions.tolist(), positions.tolist(), strict=True):
            self._check_visible(self._of_partition(partition)[1], position)

    def after_round(self) -> None:
        super().after_round()
        if self._of.choice_of_checks.random() < RECOVERY_RATE:
            self._check_recovery()

    def segment(self, partition: int, position: int) -> Any:
        return self._given[partition][position]

    # --- J1, J5 ---------------------------------------------------------------------------------

    @fatal
    def _check_visible(self, partition: int, position: int) -> None:
        number = self._given[partition][position]["n"]
        assert number in self._visible(), (
            f"C5: tree {partition}/{position} counts as complete, but {number} is in no output"
        )

    def _check_processed(self, id: str, number: int, partition: int, position: int) -> None:
        story = self._of.story
        if story.given_up and not story.windowed:
            assert number in self._visible(), f"J7: {id!r} is processed, and {number} was given up"
            return
        what = f"J1: {id!r} is processed, but {number}"
        if not story.windowed:
            assert number in self._visible(), f"{what} is in no output"
            return
        root = self._root(partition, position)
        for task, count in self._tree_of(partition, position).items():
            found = len(self._of.storage.of(task).ids.get(root, ()))
            assert found >= count, f"{what} has {found} of its {count} segments in {task}"

    def _check_recovery(self) -> None:
        """What whoever takes over finds."""
        for partition, mine in self._given.items():
            folder = PartitionFolder(self._of.job_id, "read", partition)
            found = read_ended(self._of.storage.copy(), folder)
            what = f"J5: partition {partition}"
            assert found.end == len(mine), f"{what} ends at {found.end}, not {len(mine)}"
            ids = {each.id: each.first for each in found.requests}
            assert ids == self._ids[partition], f"{what} knows {ids}, not {self._ids[partition]}"
            self._check_adopted(folder)
            if self._of.keeps:
                self._check_followed(folder)
            first = min((each.first for each in found.index), default=found.end)
            assert first <= self._read_from(partition), f"{what} begins at {first}"

    def _check_adopted(self, folder: PartitionFolder) -> None:
        store, frontier = self._of.storage.copy(), self._read_from(folder.partition)
        upgraded = PartitionFolder("upgraded", folder.task, folder.partition)
        journal = Journal(store, upgraded, 1, "upgraded")
        journal.adopt(read_ended(store, folder), folder, frontier)
        known, what = journal.restored, f"J5: partition {folder.partition}, upgraded,"
        found = {each.id: each.first for each in known}
        assert found == self._ids[folder.partition], f"{what} knows {found}"
        firsts = [each.first for each in known]
        assert firsts == sorted(firsts), f"{what} knows requests in the order {firsts}"
        mailbox = RequestQueue(self._of.clock, known)
        mailbox.passed(frontier)
        for each in known:
            entry = mailbox._known.get(each.id)
            waits = each.count > 0 and each.outcomes is None and each.end > frontier
            assert entry is not None
            assert waits == (entry.left > 0), f"{what} has {entry.left} left of {each}"

    def _check_followed(self, folder: PartitionFolder) -> None:
        view, mine = JournalView(self._of.storage.copy(), folder), self._given[folder.partition]
        read: list[dict[str, Any]] = []
        while (block := view.read(len(read))) is not None:
            rows = [dict(each) for run in block.runs() for each in as_dicts(run)]
            read += rows[len(read) - block.first :]
        what = f"J8: partition {folder.partition}"
        assert read == mine, f"{what} has {len(mine)} segments, and {len(read)} are followed"

    # --- at the end -----------------------------------------------------------------------------

    def at_end(self) -> None:
        self._check_recovery()
        world, story = self._of, self._of.story
        lost = self._promised.keys() - self._where.keys()
        assert not lost, f"J2: {lost} were promised, and are gone"
        read = {
            number
            for number, (partition, position) in self._where.items()
            if position < self._read_until[partition]
        }
        # What was in doubt when the job drained may be there, and nobody was told so.
        never = self._promised.keys() - read
        assert not never, f"J2: {never} were promised, and were never read"
        if story.windowed:
            world.story = story.only(frozenset(read))
            super().at_end()
            return
        written = Counter(each["n"] for each in world.places["write"].segments())
        dead = Counter(each["segment"]["n"] for each in world.places["dead"].segments())
        self._check_counts(read, written, dead)
        self._check_tries(written, dead)
        if story.all_after:
            self._check_order(written)

    def _check_counts(self, read: set[int], written: Counter[int], dead: Counter[int]) -> None:
        story = self._of.story
        strangers = (written.keys() | dead.keys()) - read
        assert not strangers, f"J2: {strangers} are in outputs, and were never taken"
        both = (written.keys() & story.bad) | (dead.keys() - story.bad)
        assert not both, f"D1: {both} are bad and written, or dead letters and good"
        if story.given_up:
            return
        counts = written + dead
        missing = read - counts.keys()
        assert not missing, f"J2: {missing} were read, and are in no output"
        if story.guarantee == "exactly-once":
            twice = [number for number, count in counts.items() if count > 1]
            assert not twice, f"J2: {twice} came out twice"

    def _check_tries(self, written: Iterable[int], dead: Iterable[int]) -> None:
        story = self._of.story
        if story.given_up:
            return
        for number in dead:
            tries = story.tried[number]
            assert tries > story.retries_of_bad, f"D2: {number} is dead, tried {tries} times"
        for number, fails in story.flaky.items():
            if number in written:
                assert story.tried[number] > fails, f"D2: {number} has come out, and never worked"

    def _check_order(self, written: Iterable[int]) -> None:
        by_partition: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for number in written:
            partition, position = self._where[number]
            by_partition[partition].append((position, number))
        for partition, mine in by_partition.items():
            for (_, one), (_, other) in pairwise(sorted(mine)):
                assert self._last[one] < self._last[other], (
                    f"O2: partition {partition}: {other} was written last at {self._last[other]}, "
                    f"and {one}, which comes before it, at {self._last[one]}"
                )

    # --- what there is --------------------------------------------------------------------------

    def _visible(self) -> set[int]:
        places = self._of.places
        found = {each["n"] for each in places["write"].segments()}
        return found | {each["segment"]["n"] for each in places["dead"].segments()}

    def _tree(self, partition: int, position: int) -> dict[str, int]:
        task, index = self._of_partition(partition)
        story = self._of.story
        if story.windowed:
            return super()._tree(partition, position)
        if task == "count":
            return {"write": 1}
        if self._given[index][position]["n"] in story.bad:
            return {"dead": 1}
        return {"count" if story.counts else "write": 1}

    def _tree_of(self, partition: int, position: int) -> dict[str, int]:
        return self._tree(self._first + partition, position)

    def _root(self, partition: int, position: int) -> int:
        return (self._first + partition) << PARTITION_SHIFT | position

    @property
    def _first(self) -> int:
        """Number of the first partition of the input."""
        return self._of.replica.partitions(self._of.job_id)[self._of.read].first

    def _read_from(self, partition: int) -> int:
        path = documents.frontier(self._of.job_id, self._first + partition)
        document = self._of.documents.documents.get(path)
        return msgspec.json.decode(document.data)["cursor"]["position"] if document else 0

    def _watermark_max(self) -> float:
        times = [each["time"] for mine in self._given.values() for each in mine]
        if self._of.draining:
            return float("inf")
        return max(times, default=0) - self._of.story.disorder_ms


class JournalStorage(Storage):
    """A store that also notes the chunks of journals, and lets other threads have a turn."""

    checks: RequestChecks

    def create(self, name: str, data: bytes) -> bool:
        if name.endswith(NOTE):
            return super().create(name, data)
        self._between()
        self.faults.before()
        new = self.chunks.read(name) is None
        if new and (found := _named(name)) is not None:
            self.checks.journalled(*found, decode_chunk(*found, data))
            self.chunks.create(name, data)
            self.faults.after()
            return True
        return super().create(name, data)

    def delete(self, name: str) -> None:
        found, data = _named(name), self.chunks.read(name)
        if found is not None and data is not None:
            self._between()
            self.checks.collected(found[0], decode_chunk(*found, data))
        super().delete(name)


def _named(name: str) -> tuple[PartitionFolder, ChunkPlace] | None:
    found = _CHUNK.match(name)
    if found is None:
        return None
    return (
        PartitionFolder(found[1], found[2], int(found[3])),
        ChunkPlace(int(found[4]), int(found[5])),
    )
