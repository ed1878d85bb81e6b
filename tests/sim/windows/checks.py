"""The invariants of windows, state, ids and frontiers. Each message begins with its name.

W1 final window contents are those of the reference; W2 every firing is committed once; W3
watermarks never fall or run ahead of the source, and what is late was so; W4 sessions of a group
keep the gap;
W5 what the log says is what its owner has; W6 refinements add up; W7 a committed part is not lost;
F2 nothing of an older version is stored when a newer one has begun; C5 what counts as processed is
durable, and what may come again is known; O1 a source that keeps the order on retry sends what
comes next, or goes back; D1 what fails for good is a dead letter once, and nothing
else is; U no task fails; V3 the job ends.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
from tests.sim.windows.failing import number_of
from tests.sim.windows.story import keys_of, leaves_in
from tests.sim.windows.violation import fatal

from onyx.base.runs import Numbers, array_of
from onyx.flow.batch import Batch
from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.ids import AllocationVersion, GroupId, PeerId
from onyx.keystate.records import (
    Fired,
    FiredGroups,
    FiringProgress,
    Record,
    SetSessionArrays,
    SetSessions,
    SetStates,
    TimerDue,
)
from onyx.ledger.lineage import PARTITION_SHIFT, POSITIONS_MAX, first_attempts, unpack
from onyx.log import documents
from onyx.operators.windowed.definition import Windowed
from onyx.operators.windowed.operator import WindowedOperator
from onyx.state.chunks import ChunkReader, EmittedRun
from onyx.state.chunks import StateChunkKind as ChunkKind
from onyx.state.names import LogKey, TaskFolder
from onyx.state.recovery import RecoveredState, recover
from onyx.task.state.emissions import EmissionRun
from onyx.task.state.keeper import StateKeeper
from onyx.task.table import TaskKind
from onyx.task.task import Task
from onyx.transport.interface import Channel
from onyx.windows.arrays.session_rows import as_objects
from onyx.windows.compiled import CompiledWindows
from onyx.windows.task_windows import TaskWindows

if TYPE_CHECKING:
    from tests.sim.windows.world import World

REPLAY_RATE = 0.05
"""How often the logs are read again between two rounds."""


class Checks:
    stateful: tuple[str, ...] = ("gather", "again")
    """Tasks of the job with a state log."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._read: Counter[int] = Counter()
        self._sent: dict[tuple[PeerId, AllocationVersion, int], int] = {}
        """The newest position that a source has sent of each partition."""
        self._marks: dict[tuple[GroupId, str, int], int] = {}

    # --- what happens ---------------------------------------------------------------------------

    def read(self, partition: int, until: int) -> None:
        """The source has given all segments before this position to somebody."""
        self._read[partition] = max(until, self._read[partition])

    def created(self, place: TaskFolder, key: LogKey, chunk: ChunkReader) -> None:
        """A chunk is durable from now on."""
        self._world.trace.update(f"{place.chunk(key, chunk.frame.seq)}".encode())
        noted = self._world.storage.of(place.task)
        if chunk.frame.kind in (ChunkKind.CHANGE, ChunkKind.SNAPSHOT):
            newest = max(noted.opened, default=key).version
            assert newest <= key.version, (
                f"F2: {place.task}: version {key.version} appends when {newest} has begun"
            )
            end = noted.fenced.get(key, math.inf)
            assert chunk.frame.seq < end, f"F2: {place.task}: {key} goes on behind its fence"

    @fatal
    def sent(self, batch: Batch) -> None:
        """A batch is on its way: what triggers have emitted may be seen now."""
        if batch.roots is None:
            return
        for root in set(first_attempts(batch.roots).tolist()):
            task, index = self._of_partition(root >> PARTITION_SHIFT)
            if task != "read":
                position = root & POSITIONS_MAX - 1
                assert (index, position) in self._world.storage.of(task).emitted, (
                    f"C5: {task} sends emission {index}/{position}, which is in no log"
                )

    @fatal
    def taken(self, channel: Channel, batch: Batch) -> None:
        """An inbox has taken a batch."""
        world = self._world
        if not world.story.all_after or batch.roots is None:
            return
        if not self._reads(channel.source):
            return
        partitions, _, positions = unpack(array_of(batch.roots))
        for number, position in zip(partitions.tolist(), positions.tolist(), strict=True):
            key = (channel.source, channel.version, number)
            before = self._sent.get(key, position)
            assert position <= before or position == before + 1, (
                f"O1: partition {number} goes from {before} to {position}"
            )
            self._sent[key] = position

    def _reads(self, peer: PeerId) -> bool:
        """Whether it is one of the source."""
        world = self._world
        processes = [*world.members.values(), *(each for each, _ in world.zombies)]
        tasks = [each.tasks.get(peer) for each in processes]
        return any(task is not None and task.name == "read" for task in tasks)

    @fatal
    def completed(self, roots: Numbers) -> None:
        """These trees are reported complete to somebody."""
        partitions, _, positions = unpack(array_of(roots))
        for partition, position in zip(partitions.tolist(), positions.tolist(), strict=True):
            for task, count in self._tree(partition, position).items():
                root = partition << PARTITION_SHIFT | position
                found = len(self._world.storage.of(task).ids.get(root, ()))
                assert found >= count, (
                    f"C5: tree {partition}/{position} counts as complete, but the log of {task} "
                    f"has {found} of its {count} segments"
                )

    def after_round(self) -> None:
        for task in self._tasks():
            self._check_watermark(task)
            keeper = task.allocation.keeper
            if keeper is not None and task.name == "gather":
                self._check_sessions(keeper)
        if self._world.choice.random() < REPLAY_RATE:
            self._check_replay()

    # --- W3, W4 ---------------------------------------------------------------------------------

    def _check_watermark(self, task: Task) -> None:
        event_time = task.allocation.event_time
        mark = event_time.watermark if event_time is not None else None
        if mark is None:
            return
        key = (
            task.assignment.services.replica().groups_reverse_index[task.peer],
            task.peer,
            task.allocation.wiring.version,
        )
        before = self._marks.get(key, mark)
        self._marks[key] = mark
        assert mark >= before, f"W3: the watermark of {task.peer} ({task.name}) falls"
        most = self._watermark_max()
        ahead = task.kind is not TaskKind.INPUT and mark > most  # an input has not all partitions
        assert not ahead, f"W3: {task.name} is at {mark}, the source only at {most}"

    def _watermark_max(self) -> float:
        """What the source has given allows no more."""
        story = self._world.story
        found = math.inf
        for number, segments in enumerate(story.partitions):
            given = segments[: self._read[number]]
            if len(given) < len(segments):
                newest = max((each["time"] for each in given), default=-math.inf)
                found = min(found, newest - story.disorder_ms)
        return found

    def _check_sessions(self, keeper: StateKeeper) -> None:
        for window in self._world.story.windows("gather"):
            if window["type"] != "session":
                continue
            groups: dict[Any, list[tuple[Any, Any]]] = {}
            for each in keeper.operator.query(window["id"]):
                groups.setdefault(each.group, []).append((each.lower, each.upper))
            for group, sessions in groups.items():
                self._check_gaps(window, group, sessions)

    def _check_gaps(self, window: Any, group: Any, sessions: Iterable[tuple[Any, Any]]) -> None:
        gap = window["timeoutGap"][0]
        for (_, upper), (lower, _) in pairwise(sorted(sessions)):
            assert lower - upper > gap, f"W4: sessions of {group} meet at {upper} and {lower}"

    # --- W5 -------------------------------------------------------------------------------------

    def _check_replay(self) -> None:
        """Read the logs as a new owner of everything would."""
        version = self._world.replica.run(self._world.job_id).allocation_version
        for name in self.stateful:
            owners = [
                task
                for task in self._tasks()
                if task.name == name
                and task.allocation.wiring.version == version
                and task.allocation.ready
                and task.allocation.keeper is not None
            ]
            if not owners or not self._world.storage.of(name).opened:
                continue
            recovered = self._recovered(name, owners[0])
            self._check_known(name, recovered)
            for task in owners:
                keeper = task.allocation.keeper
                assert keeper is not None
                if keeper.durable and task.work.batch is None:
                    self._check_owner(task, keeper, recovered)

    def _recovered(self, name: str, task: Task) -> RecoveredState:
        """What a new owner of all shards finds."""
        its = task.runtime.program.operator
        assert its is not None, "it has a state log"
        shards = range(SHARDS if its.group_key is not None else 1)
        store, version = self._world.storage.copy(), 10**6
        state = self._world.settings.state
        return recover(store, self._world.job_id, name, version, 0, shards, state)

    def _check_owner(self, task: Task, keeper: StateKeeper, recovered: RecoveredState) -> None:
        self._check_held(task, keeper, recovered)
        for shard in keeper.shards:
            settled, pending = keeper.emissions.pending(shard)
            stored = recovered.shards[shard]
            assert stored.settled <= settled, f"W5: {task.name} {shard}: settled {stored.settled}"
            left = [each for run in stored.emitted for each in _positions(run.first, run)]
            left = [position for position in left if position >= settled]
            mine = [each for first, run in pending for each in _positions(first, run)]
            assert left == mine, (
                f"W5: {task.name}, shard {shard}: the log has emissions {left} to send, "
                f"its owner {mine}"
            )

    def _check_held(self, task: Task, keeper: StateKeeper, recovered: RecoveredState) -> None:
        its = task.runtime.program.operator
        assert isinstance(its, Windowed)
        assert isinstance(keeper.operator, WindowedOperator)
        grouped = its.group_key is not None
        again = TaskWindows(its.compiled, shard_of if grouped else lambda _: 0)
        for shard in keeper.shards:
            for records in recovered.shards[shard].records():
                again.restore(shard, records)
            both = again.snapshot(shard), keeper.operator.windows.snapshot(shard)
            _same(task.name, shard, *(_in_objects(each, its.compiled) for each in both))

    def _check_known(self, task: str, recovered: RecoveredState) -> None:
        """Who takes over knows every segment applied that may come again."""
        known = set(zip(recovered.roots.tolist(), recovered.ids.tolist(), strict=True))
        for root, ids in self._world.storage.of(task).ids.items():
            if root & POSITIONS_MAX - 1 < self._frontier(root >> PARTITION_SHIFT):
                continue
            for each in ids:
                assert (root, each) in known, (
                    f"C5: {task} has applied {root >> PARTITION_SHIFT}/{root & POSITIONS_MAX - 1}, "
                    "which may come again, and nobody who takes over knows"
                )

    def _frontier(self, partition: int) -> int:
        """Where whoever takes over a partition of the source begins."""
        task, _ = self._of_partition(partition)
        if task != "read":
            return POSITIONS_MAX
        document = self._world.documents.documents.get(
            documents.frontier(self._world.job_id, partition)
        )
        return msgspec.json.decode(document.data)["position"] if document else 0

    # --- at the end -----------------------------------------------------------------------------

    def at_end(self) -> None:
        self._check_replay()
        storage, places = self._world.storage, self._world.places
        story = self._world.story
        emitted = list(storage.of("gather").emitted.values())
        rows = [each["segment"] for each in emitted if each["child"] is None]
        late = [each["segment"] for each in emitted if each["child"] == "late"]
        self._check_late(late)
        for window in story.windows("gather"):
            mine = [row for row in rows if row["window"] == window["id"]]
            self._check_window(
                window, mine, frozenset(leaf for each in late for leaf in leaves_in([each]))
            )
        given = keys_of(rows)
        raw = [] if story.reduces["gather"] else [f"leaf {n}" for n in story.leaves]
        given.update(raw)
        out = [each["segment"] for each in storage.of("again").emitted.values()]
        self._check_again(out, given)
        written = Counter(text_of(each) for each in places["write"].segments())
        expected = Counter(map(text_of, out))
        if not story.reduces["again"]:
            found = keys_of(each for each in places["write"].segments() if each["kind"] != "keys")
            assert found == given, f"W2: passed on and written: {difference(given, found)}"
            written = Counter(
                text_of(each) for each in places["write"].segments() if each["kind"] == "keys"
            )
        assert written == expected, f"W2: fired and written: {difference(expected, written)}"
        if "dead" in places:
            letters = Counter(map(number_of, places["dead"].segments()))
            bad = story.failing.letters()
            assert letters == bad, f"D1: bad {bad}, dead letters {letters}"
        if "late" in places:
            reported = Counter(text_of(each) for each in places["late"].segments())
            wanted = Counter(map(text_of, late))
            assert reported == wanted, f"W3: late and written: {difference(wanted, reported)}"

    def _check_late(self, late: list[Any]) -> None:
        assert not (late and self._world.story.honest), f"W3: late, though it was not: {late}"

    def _check_window(self, window: Any, rows: list[Any], late: frozenset[int]) -> None:
        """W1, W2 and W6 of one window of `gather`."""
        story = self._world.story
        where = f"window {window['id']}"
        trigger = story.trigger(window["id"])
        repeats = [key for key, count in keys_of(rows).items() if count > 1]
        if trigger["type"] != "timer":
            assert not repeats, f"W2: {where}: fired twice: {repeats}"
        seen: Counter[int] = Counter()
        groups: dict[Any, list[Any]] = {}
        for row in rows:
            counted = Counter(row["leaves"])
            assert max(counted.values()) == 1, f"W1: {where}: counted twice in {row}"
            seen.update(counted)
            groups.setdefault(row["g"], []).append(row)
        missing = story.leaves.keys() - seen.keys() - late
        assert not missing, f"W1: {where}: leaves {sorted(missing)} are in no extent"
        both = late.intersection(seen)
        assert not both, f"W3: {where}: {sorted(both)} are late and counted"
        if trigger["refinement"] == "discarding":
            twice = [leaf for leaf, count in seen.items() if count > 1]
            assert not twice, f"W6: {where}: {twice} come again, though discarded"
        if story.honest:
            self._check_extents(window, trigger, rows)

    def _check_extents(self, window: Any, trigger: Any, rows: list[Any]) -> None:
        """Nothing is late: so extents are those of the reference, and those that the watermark
        has passed or that are there at the end are complete."""
        where = f"window {window['id']}"
        reference = self._world.story.extents(window)
        whole = trigger["refinement"] == "accumulating" or trigger["type"] == "watermark"
        for row in rows:
            key, leaves = (row["g"], row["lower"], row["upper"]), frozenset(row["leaves"])
            if window["type"] != "session":
                assert leaves <= reference.get(key, frozenset()), f"W1: {where}: {row}"
            if whole and row["type"] in ("watermark", "job-completed"):
                assert leaves == reference.get(key), (
                    f"W1: {where}: {row} should have {sorted(reference.get(key, ()))}"
                )

    def _check_again(self, rows: list[Any], given: Counter[str]) -> None:
        """The chained window has been given what the first one fired, each once."""
        story = self._world.story
        accumulates = story.trigger("again")["refinement"] == "accumulating"
        extents: dict[Any, list[Counter[str]]] = {}
        for row in rows:
            key = (row["h"], row["lower"])
            extents.setdefault(key, []).append(Counter(row["keys"]))
        found: Counter[str] = Counter()
        for key, states in extents.items():
            if accumulates:
                last = max(states, key=lambda each: each.total())
                assert all(each <= last for each in states), f"W6: again {key}: {states}"
                found += last
            else:
                found.update(sum(states, Counter()))
        assert found == given, f"W1: again: {difference(given, found)}"

    # --- trees ----------------------------------------------------------------------------------

    def _tree(self, partition: int, position: int) -> dict[str, int]:
        """How many segments of a tree each task with a log must have."""
        task, index = self._of_partition(partition)
        story = self._world.story
        if task == "again":
            return {"write": 1}
        if task == "gather":
            emission = self._world.storage.of("gather").emitted.get((index, position))
            assert emission is not None, f"W2: emission {index}/{position} is in no log"
            if emission["child"] is not None:
                return {emission["child"]: 1}
            return {"again": 1} | ({} if story.reduces["again"] else {"write": 1})
        segment = self.segment(index, position)
        if "bad" in segment:
            return {"dead": 1}
        count = len(segment["leaves"])
        found = {"gather": count}
        if not story.reduces["gather"]:
            found["again"] = count
            if not story.reduces["again"]:
                found["write"] = count
        return found

    def segment(self, partition: int, position: int) -> Any:
        """What the source has given at a position."""
        return self._world.story.partitions[partition][position]

    def _of_partition(self, number: int) -> tuple[str, int]:
        for task, each in self._world.replica.partitions(self._world.job_id).items():
            if each.first <= number < each.first + each.count:
                return task, number - each.first
        raise AssertionError(f"partition {number} belongs to no task")

    def _tasks(self) -> list[Task]:
        world = self._world
        processes = [*world.members.values(), *(each for each, _ in world.zombies)]
        return [task for each in processes for task in each.tasks.values() if task.wired]


def _same(task: str, shard: int, one: list[Any], other: list[Any]) -> None:
    one, other = _meaning(one), _meaning(other)
    assert one == other, f"W5: {task}, shard {shard}: the log has {one}, its owner {other}"


def _in_objects(records: Iterable[Record], compiled: CompiledWindows) -> list[Record]:
    """Sessions may be in arrays or in objects, and one who takes over may have more in arrays."""
    aggregations = {each.window.id: each.aggregation for each in compiled.windows}
    return [
        as_objects(each, aggregations[each.window]) if isinstance(each, SetSessionArrays) else each
        for each in records
    ]


def _meaning(records: list[Any]) -> list[str]:
    """Records of a snapshot, so that those that mean the same are the same. A timer that found
    nothing (left) to fire is due a period later, and nobody needs to know; `fired` lists groups
    that have not fired, and says nothing if those are all; `fired-also` lists those that have."""
    groups: dict[tuple[str, int], set[str]] = {}
    for each in records:
        if isinstance(each, SetStates):
            groups.setdefault((each.window, each.extent), set()).update(map(repr, each.groups))
    found = []
    fired: dict[tuple[Any, ...], set[str]] = {}
    for each in records:
        match each:
            case Fired(window=window, extent=extent):
                listed = groups.get((window, extent), set()) - set(map(repr, each.waiting))
                fired.setdefault((window, each.trigger, extent), set()).update(listed)
            case FiredGroups():
                what = (each.window, each.trigger, each.extent)
                fired.setdefault(what, set()).update(map(repr, each.groups))
            case SetSessions():
                fired_of = [[sorted(names) for names in its] for its in each.fired]
                columns = (each.groups, each.session_keys, each.lowers, each.uppers, each.states)
                of_groups = zip(*columns, fired_of, strict=True)
                found += [text_of([each.window, *its]) for its in of_groups]
            case TimerDue() | FiringProgress(event_type="timer-tick"):
                pass
            case _:
                found.append(text_of(each))
    found += [text_of([*what, sorted(which)]) for what, which in fired.items() if which]
    return sorted(found)


def text_of(value: Any) -> str:
    """Of a segment without what is None: in columns a key that it lacks is null."""
    if isinstance(value, dict):
        return repr(sorted((key, each) for key, each in value.items() if each is not None))
    return repr(value)


def difference(expected: Counter[str], found: Counter[str]) -> str:
    return f"missing {dict(expected - found)}, too much {dict(found - expected)}"


def _positions(first: int, run: EmittedRun | EmissionRun) -> range:
    """The positions of a run of emissions."""
    return range(first, first + len(run.segments))
