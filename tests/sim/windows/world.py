"""A windowed job in a simulated world: processes that die or lag behind, a store that fails.

Everything inside a task is real: machines, ackers, windows, state logs, parts of outputs. The world
stands in for the log of the cluster (who has which task in which version), for the network, and for
everything that is kept; it decides what happens next by one seed. Nothing runs on a thread.

Chaos comes first, then a time without faults in which the job has to end.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import msgspec
from immutables import Map
from msgspec.structs import replace
from tests.sim.windows.checks import Checks
from tests.sim.windows.inline import one_thread
from tests.sim.windows.network import Network
from tests.sim.windows.poison import Poison
from tests.sim.windows.process import Process, Work
from tests.sim.windows.storage import Documents, Faults, Place, Storage
from tests.sim.windows.story import Story, draw_story, publishes_late
from tests.sim.windows.violation import Violation
from tests.support.clocks import ManualClock
from tests.support.log.runs import altered

from onyx.client.submissions import submission
from onyx.ids import GroupId, JobId, PeerId, Slot, TaskName
from onyx.model.parsing.job import parse_mapping, to_mapping
from onyx.plugins.rolling import RollLimits
from onyx.replica.command import Command
from onyx.replica.commands import ExhaustInput, KillJob, RegisterPartitions, SealOutput, SignalReady
from onyx.replica.commands.signal_ready import ReadyPeers
from onyx.replica.state import JobRecord, JobRun, Partitions, Replica
from onyx.settings import LedgerSettings, Settings, StateSettings, TaskSettings
from onyx.task import parts
from onyx.task.task import Task

FAMILIES = ("crash", "zombie", "rescale", "store", "refuse", "lose", "slow", "late", "lag", "jump")
HEAL_ROUNDS_MAX = 1_500
RECENT_EVENTS = 40
INTERLEAVED = 0.05
"""Share of requests to the store before which something else is done."""
JOB = JobId("job-1")
PEERS_OF_PROCESS = 5


class Options(msgspec.Struct, frozen=True):
    """Of one run, drawn from its seed; every family of faults is off in half of the runs."""

    processes: int
    rounds: int
    on: frozenset[str]
    fault_rounds: int
    """Mean time between two crashes, and so on."""
    delivered: float
    """Share of messages and of work in the background that is through in a round, when slow."""
    ghosts: float
    """How often what a dead process had begun is done all the same."""
    settings: Settings
    roll_limits: RollLimits


def draw_options(choice: random.Random, pages: random.Random) -> Options:
    return Options(
        processes=choice.choice((2, 2, 3)),
        rounds=choice.choice((100, 200, 400)),
        on=frozenset(family for family in FAMILIES if choice.random() < 0.5),
        fault_rounds=choice.choice((12, 30, 80)),
        delivered=choice.choice((0.05, 0.2)),
        ghosts=choice.choice((0.0, 0.5, 1.0)),
        settings=Settings(
            task=TaskSettings(inbox_segments_max=choice.choice((2, 10, 1_000))),
            ledger=LedgerSettings(
                frontier_interval_s=choice.choice((0.02, 0.1, 0.5)),
                ack_interval_s=choice.choice((0.0, 0.05)),
                retry_delay_s=0.02,
                retry_delay_max_s=1.0,
            ),
            state=StateSettings(
                chunk_interval_s=choice.choice((0.0, 0.05, 0.3)),
                chunk_segments_max=choice.choice((1, 5, 1_000)),
                snapshot_factor=choice.choice((0.5, 2.0)),
                snapshot_bytes_min=choice.choice((1, 100_000, 1 << 26)),
                firings_page_max=pages.choice((1, 1, 2, 5, 10_000)),
            ),
        ),
        roll_limits=RollLimits(
            segments=choice.choice((1, 4, 1_000)), age_s=choice.choice((0.05, 0.5, 5.0))
        ),
    )


IN_PARTS = 8
"""Every so many-th seed; the faults of the others stay what they were."""
OPENS_FAIL = 0.2
PUBLISHING_FAILS = 0.97


class World:
    """One run."""

    process: type[Process] = Process
    made_storage: type[Storage] = Storage
    made_checks: type[Checks] = Checks
    poisonous = "m:fall_apart"
    """The function over which processes end."""
    steps: tuple[int, ...] = (0, 1, 2, 6, 15)
    """How many phases of a task may come in a round, while there are faults."""

    def __init__(self, seed: int) -> None:
        self.choice = random.Random(f"{seed}/world")
        self.story: Story = self.draw(seed)
        self.functions = self.story.functions()
        self.options = options = self.draw_options(seed)
        self.settings, self.roll_limits = options.settings, options.roll_limits
        self.job_id = JOB
        manifest = {
            "apiVersion": "onyx.dev/v1beta1",
            "kind": "OnyxJob",
            "metadata": {"name": "simulated"},
            "spec": self.story.spec,
        }
        self.job = parse_mapping(manifest)
        self.clock = ManualClock(1_000.0)
        self.events: deque[str] = deque(maxlen=RECENT_EVENTS)
        self.trace = hashlib.blake2b(digest_size=8)
        self.faults = Faults(random.Random(f"{seed}/faults"), 0.1 if "store" in options.on else 0.0)
        self.in_parts = seed % IN_PARTS == IN_PARTS - 2
        """Whether the source has its segments in parts, of which some cannot be opened now."""
        self.opens = Faults(random.Random(f"{seed}/opens"), OPENS_FAIL if self.in_parts else 0.0)
        late = PUBLISHING_FAILS if publishes_late(seed) else 0.0
        self.publishing = Faults(random.Random(f"{seed}/publishing"), late)
        self.checks = self.made_checks(self)
        self.storage = self.made_storage(self.faults, self.checks.created, self.interleave)
        self.places: dict[str, Place] = {
            name: Place(self.faults, self.publishing) for name in self._named("output")
        }
        self.members: dict[GroupId, Process] = {}
        self.zombies: list[tuple[Process, int]] = []
        """With the round in which each dies."""
        self.documents = Documents(self.faults, lambda group: group in self.members)
        self.network = Network(
            random.Random(f"{seed}/network"),
            0.3 if "refuse" in options.on else 0.0,
            0.1 if "lose" in options.on else 0.0,
            self.checks.sent,
            self.checks.taken,
            random.Random(f"{seed}/held"),
        )
        self._slow = random.Random(f"{seed}/slow functions")
        self._slow_share = self._slow.choice((0.0, 0.0, 0.01))
        """How often a task begins a function that takes long."""
        self._busy: dict[Task, int] = {}
        """Tasks that are in one, with the round in which they come back."""
        self.works: list[Work] = []
        self.entries: list[tuple[str, Replica]] = []
        digest = self.documents.put_chunk(msgspec.json.encode(to_mapping(self.job), order="sorted"))
        spec = submission(JOB, self.job, digest, "balanced").spec
        self.replica = Replica(records=Map({JOB: JobRecord(spec, run=JobRun())}))
        self.poison = Poison(self, random.Random(f"{seed}/poison"))
        self.rounds = 0
        self.chaos = True
        self._numbers = 0
        self._ready: set[PeerId] = set()
        self._exhausted: dict[str, set[int]] = {}
        self._sealed: set[str] = set()
        for _ in range(options.processes):
            self._join()
        self._allocate()

    def draw(self, seed: int) -> Story:
        """The job of this run."""
        return draw_story(
            random.Random(f"{seed}/story"),
            random.Random(f"{seed}/failures"),
            random.Random(f"{seed}/formats"),
            random.Random(f"{seed}/retries"),
        )

    def draw_options(self, seed: int) -> Options:
        """The faults and settings of this run."""
        return draw_options(random.Random(f"{seed}/options"), random.Random(f"{seed}/pages"))

    # --- running --------------------------------------------------------------------------------

    def run(self) -> None:
        """
        Raises:
            Violation, AssertionError: an invariant is broken.
        """
        with self.patched():
            self._run()

    @contextmanager
    def patched(self) -> Iterator[None]:
        """What is in the hands of the world meanwhile."""
        # Parsing the job is pure, and would take a tenth of a run: each peer does it again.
        parsed_once = mock.patch.object(parts, "stored_job", cache(parts.stored_job))
        with one_thread(), self.story.retry_mode(), parsed_once:
            yield

    def _run(self) -> None:
        while self.chaos and self.rounds < self.options.rounds and not self.completed:
            self.round()
        self._heal()
        for _ in range(HEAL_ROUNDS_MAX):
            if self.completed:
                break
            self.round()
        else:
            raise AssertionError(f"V3: the job does not end: {self._stuck()}")
        self.checks.at_end()

    @property
    def completed(self) -> bool:
        return self._sealed == set(self._named("output"))

    def round(self) -> None:
        """A turn for everybody, as long as the seed gives it."""
        self.rounds += 1
        choice, on = self.choice, self.options.on if self.chaos else frozenset[str]()
        self.clock.advance(choice.choice((0.001, 0.02, 0.1)))
        if not self.chaos and self.rounds % 50 == 0:
            self.clock.advance(20.0)  # whatever was lost is sent again some day
        if "jump" in on and choice.random() < 0.02:
            self.clock.advance(choice.choice((0.6, 1.5, 4.0, 61.0)))
        for process in [*self.members.values(), *(each for each, _ in self.zombies)]:
            lags = "lag" in on and choice.random() < 0.7
            if process.group in self.members and not lags:
                while process.hear():
                    pass
            for task in list(process.tasks.values()):
                if self._is_busy(task):
                    continue
                for _ in range(choice.choice(self.steps) if self.chaos else 200):
                    if not process.step(task):
                        break
                if process.deaths is not None:
                    break
            if process.deaths is not None:
                self._bury(process)
                continue
            for acker in list(process.ackers.values()):
                acker.advance()
            process.holding.tell()
        self._work(self.options.delivered if "slow" in on else 0.8)
        self._deliver(self.options.delivered if "late" in on else 0.9)
        self._strike(on)
        self.checks.after_round()

    def _is_busy(self, task: Task) -> bool:
        """Whether it is in a function that takes long, of which it says that it works on it."""
        if self.chaos and self._slow.random() < self._slow_share:
            self._busy[task] = self.rounds + self._slow.choice((5, 30, 100))
        if not self.chaos or self._busy.get(task, 0) <= self.rounds:
            self._busy.pop(task, None)
            return False
        return True

    def note(self, event: str) -> None:
        self.events.append(f"{self.rounds}: {event}")
        self.trace.update(event.encode())

    def interleave(self) -> None:
        """Between two requests of one process to the store, others may make theirs."""
        if self.chaos and self.works and self.choice.random() < INTERLEAVED:
            self.works.pop(self.choice.randrange(len(self.works))).run()

    def _work(self, share: float) -> None:
        chosen = [each for each in self.works if not self.chaos or self.choice.random() < share]
        self.choice.shuffle(chosen)
        for work in chosen:
            if work in self.works:
                self.works.remove(work)
                work.run()

    def _deliver(self, share: float) -> None:
        self.network.deliver_held(share if self.chaos else 1.0)
        messages, self.network.messages = self.network.messages, []
        self.choice.shuffle(messages)
        for message in messages:
            if not self.chaos or self.choice.random() < share:
                self.network.deliver(message)
            else:
                self.network.messages.append(message)

    # --- faults ---------------------------------------------------------------------------------

    def _strike(self, on: Iterable[str]) -> None:
        for process, until in list(self.zombies):
            if self.rounds >= until:
                self.zombies.remove((process, until))
                self._kill(process)
        for family in ("crash", "zombie", "rescale"):
            if family in on and self.choice.random() * self.options.fault_rounds < 1.0:
                getattr(self, f"_{family}")()

    def _crash(self) -> None:
        process = self._evict()
        self.note(f"{process.group} crashes")
        self._kill(process)
        self._join()
        self._allocate()

    def _bury(self, process: Process) -> None:
        """One that has ended by itself; its successor says over what, when it has joined."""
        self.note(f"{process.group} ends, over {len(process.deaths or ())} batches")
        member = self.members.pop(process.group, None)
        self.zombies = [(each, until) for each, until in self.zombies if each is not process]
        self._kill(process)
        if member is not None:
            self._join()
        found = self.poison.reported(process, self.replica)
        self._enter("lost", records=found.records)
        self.poison.check(self.replica)
        if member is not None:
            self._allocate()

    def _zombie(self) -> None:
        process = self._evict()
        self.note(f"{process.group} is cut off and goes on")
        self.zombies.append((process, self.rounds + self.choice.choice((3, 15, 60))))
        self._join()
        self._allocate()

    def _rescale(self) -> None:
        self.note("rescaled")
        self._allocate()

    def _evict(self) -> Process:
        return self.members.pop(self.choice.choice(list(self.members)))

    def _kill(self, process: Process) -> None:
        """What it had begun in the background may still be done, later."""
        self.network.processes.pop(process.group, None)
        process.die()
        self.works = [
            work
            for work in self.works
            if work.process is not process or self.choice.random() < self.options.ghosts
        ]

    def _heal(self) -> None:
        self.note("no faults from here on")
        self.chaos = False
        self.faults.rate = self.opens.rate = self.publishing.rate = 0.0
        self.network.refusals = self.network.losses = 0.0
        for process, _ in self.zombies:
            self._kill(process)
        self.zombies = []

    def _join(self) -> None:
        self._numbers += 1
        process = self.process(self, self._numbers, PEERS_OF_PROCESS)
        self.members[process.group] = self.network.processes[process.group] = process

    # --- the log --------------------------------------------------------------------------------

    def commit(self, process: Process, peer: PeerId, command: Command) -> None:
        """A command, as the replica would take it."""
        if process.group not in self.members:
            return
        match command:
            case RegisterPartitions():
                self._register(command.task, command.count, command.digest or "")
            case SignalReady(jobs=(ReadyPeers(version=self._version),)):
                self._ready.add(peer)
                if self._ready == set(self._allocated_peers()):
                    self.note(f"version {self._version} is ready")
                    self._enter("ready")
            case ExhaustInput():
                self._exhaust(command.task, command.partitions)
            case SealOutput():
                self._sealed.add(command.task)
            case KillJob():
                raise Violation("U: the job was killed")

    def _enter(self, kind: str, **changed: Any) -> None:
        self.replica = replace(self.replica, **changed)
        self.entries.append((kind, self.replica))

    @property
    def _version(self) -> int:
        return self.replica.run(JOB).allocation_version

    def _allocated_peers(self) -> list[PeerId]:
        return [peer for peers in self.replica.run(JOB).allocation.values() for peer in peers]

    def _allocate(self) -> None:
        """A new allocation version: who has a task mostly keeps it, and how many there are
        changes."""
        choice, before = self.choice, self.replica.run(JOB).slots
        free = [peer for process in self.members.values() for peer in process.peers]
        slots: dict[TaskName, dict[PeerId, int]] = {}
        tasks = [TaskName(each.name) for each in self.job.catalog if each.type != "table"]
        wanted = {task: self.peers_of(task) for task in tasks}
        while sum(wanted.values()) > len(free):
            wanted[max(wanted, key=lambda task: wanted[task])] -= 1
        for task in tasks:
            stay = [peer for peer in free if peer in before.get(task, ())]
            if choice.random() < 0.1:
                choice.shuffle(stay)
            slots[task] = {peer: before[task][peer] for peer in stay[: wanted[task]]}
            free = [peer for peer in free if peer not in slots[task]]
        choice.shuffle(free)
        for task in tasks:
            while len(slots[task]) < wanted[task]:
                taken = slots[task].values()
                slots[task][free.pop()] = next(n for n in range(100) if n not in taken)
        self._ready = set()
        self._enter("allocated", **self._allocation(slots))
        self.note(f"version {self._version}: {slots}")

    def peers_of(self, task: TaskName) -> int:
        """How many peers a task is to have now."""
        return self.choice.choice((1, 1, 2, 3))

    def _allocation(self, slots: dict[TaskName, dict[PeerId, int]]) -> dict[str, Any]:
        ordered = {task: sorted(peers, key=peers.__getitem__) for task, peers in slots.items()}
        everyone = [peer for peers in ordered.values() for peer in peers]
        groups = {peer: each.group for each in self.members.values() for peer in each.peers}
        version = max(0, self.replica.run(JOB).allocation_version) + 1
        ackers = self.choice.sample(everyone, self.choice.choice((1, 2)))
        return {
            "groups": tuple(self.members),
            "groups_index": Map({g: tuple(each.peers) for g, each in self.members.items()}),
            "groups_reverse_index": Map(groups),
            "jobs": (JOB,),
            **self._altered(
                allocation=Map({t: tuple(peers) for t, peers in ordered.items()}),
                slots=Map(
                    {
                        task: Map({peer: Slot(slot) for peer, slot in peers.items()})
                        for task, peers in slots.items()
                    }
                ),
                ackers=tuple(ackers),
                allocation_version=version,
            ),
        }

    def _altered(self, **changed: Any) -> dict[str, Any]:
        return {"records": altered(self.replica, JOB, **changed).records}

    def _named(self, kind: str) -> tuple[TaskName, ...]:
        return tuple(TaskName(each.name) for each in self.job.catalog if each.type == kind)

    def _register(self, task: TaskName, count: int, digest: str) -> None:
        known = self.replica.partitions(JOB)
        if task not in known:
            first = sum(each.count for each in known.values())
            found = known.set(task, Partitions(first, count, digest))
            record = replace(self.replica.records[JOB], partitions=found)
            self._enter("registered", records=Map({JOB: record}))

    def _exhaust(self, task: TaskName, numbers: Iterable[int]) -> None:
        self._exhausted.setdefault(task, set()).update(numbers)
        partitions = self.replica.partitions(JOB)
        ended = {
            name: None
            for name, mine in partitions.items()
            if len(self._exhausted.get(name, ())) == mine.count
        }
        self.note(f"{task} has exhausted {numbers}")
        self._enter("exhausted", **self._altered(exhausted_inputs=Map(ended)))

    def _stuck(self) -> str:
        tasks = [task for each in self.members.values() for task in each.tasks.values()]
        places = {f"{task.name}/{task.peer}": str(task.phase) for task in tasks}
        return f"{places}, exhausted {self._exhausted}, sealed {self._sealed}"
