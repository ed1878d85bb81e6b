"""A job whose segments clients hand over, in a simulated world: their requests go to any process,
which may die, be cut off or lag; journals are in the store that fails.

Beside tasks, routers, mailboxes and journals with their threads are real. When all clients know
what became of their requests, or sooner, the job drains, and has to end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast
from unittest import mock

from immutables import Map
from msgspec.structs import replace
from tests.sim.requests.checks import JournalStorage, RequestChecks
from tests.sim.requests.clients import Client
from tests.sim.requests.loop import VirtualLoop
from tests.sim.requests.network import Calls
from tests.sim.requests.process import RequestProcess
from tests.sim.requests.story import RequestStory, draw
from tests.sim.requests.threads import Threads
from tests.sim.windows.process import Process
from tests.sim.windows.world import Options, World

from onyx.ids import TaskName
from onyx.journal import journal
from onyx.journal.journal import Journal
from onyx.model.retention import Retention
from onyx.plugins.journalled import partition, partitions
from onyx.plugins.journalled.partition import Feed, JournalledPartition
from onyx.plugins.options import JournalOptions
from onyx.plugins.requests import request_queue

SLOW_SHARE = 0.3
SLOWING = {"slow", "late", "lag"}
"""Families of faults after which a job takes long to be ready."""


class RequestWorld(World):
    """One run."""

    process = RequestProcess
    made_storage = JournalStorage
    made_checks = RequestChecks  # type: ignore[assignment]
    story: RequestStory
    checks: RequestChecks
    read = TaskName("read")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.draining = False
        self.choice_of_clients = random.Random(f"{seed}/clients")
        self.choice_of_checks = random.Random(f"{seed}/checks")
        self._limits = random.Random(f"{seed}/limits")
        self.keeps = random.Random(f"{seed}/retention").random() < 0.25
        """Whether journals keep what is processed."""
        self.threads: Threads = cast(Threads, None)
        self.calls: Calls = cast(Calls, None)
        self.loops: list[VirtualLoop] = []
        """Of all processes that there ever were."""
        super().__init__(seed)
        choice = self.choice_of_clients
        rounds = self.options.rounds
        self.begin_rounds = choice.choice((1, rounds // 2, rounds))
        self.drains_in = choice.randrange(rounds // 3, rounds) if choice.random() < 0.3 else None
        """The round of chaos in which the job is told to drain."""
        self.clients = [
            Client(self, asked, random.Random(f"{seed}/client {number}"))
            for number, asked in enumerate(self.story.asked)
        ]
        cast(JournalStorage, self.storage).checks = self.checks

    def draw(self, seed: int) -> RequestStory:
        return draw(seed)

    def draw_options(self, seed: int) -> Options:
        """In some runs everything is quick, so that clients are answered between two faults: else
        hardly any is before the last one."""
        drawn, choice = super().draw_options(seed), random.Random(f"{seed}/quick")
        if choice.random() < SLOW_SHARE:
            return drawn
        self.steps = (0, 6, 15, 60)
        return replace(
            drawn,
            on=drawn.on - SLOWING,
            rounds=choice.choice((200, 400)),
            fault_rounds=choice.choice((50, 100, 100)),
        )

    @contextmanager
    def patched(self) -> Iterator[None]:
        limits = self._limits.choice
        constants: list[tuple[Any, str, Any]] = [
            (journal, "COLLECTED_CHUNKS_MIN", limits((1, 1, 3, 256))),
            (partitions, "COLLECT_INTERVAL_S", limits((0.1, 0.5, 5.0))),
            (partition, "TAIL_SEGMENTS_MAX", limits((1, 5, 200_000))),
            (request_queue, "CHUNK_BYTES_MAX", limits((1, 200, 8_388_608))),
            (request_queue, "WAITING_REQUESTS_MAX", limits((2, 10_000))),
        ]
        if limits((True, False)):  # then each has to wait until others are collected
            constants.append((partitions, "COLLECT_INTERVAL_S", 0.1))
            constants.append((partitions, "JournalledPartition", _holding(limits((1, 1_000)))))
        if self.keeps:
            constants.append((JournalOptions, "retention", Retention(size_bytes=2**40)))
        with ExitStack() as stack:
            stack.enter_context(super().patched())
            stack.callback(self._end_loops)
            stack.enter_context(self.threads.patched())
            for module, name, value in constants:
                stack.enter_context(mock.patch.object(module, name, value))
            yield

    def round(self) -> None:
        self.threads.chaos = self.chaos
        self._serve()
        for client in self.clients:
            client.turn()
        if not self.draining and self._is_to_drain():
            self.note("the job drains")
            self.draining = True
            self._enter("draining", **self._altered(draining=True))
        super().round()

    def interleave(self) -> None:
        if self.threads.current is not None:
            self.threads.pause()
        else:
            super().interleave()

    def as_requests(self, process: Process) -> RequestProcess:
        """What all processes are here."""
        return cast(RequestProcess, process)

    def peers_of(self, task: TaskName) -> int:
        """Of a job that keeps the order one for each task, or there is none."""
        wanted = super().peers_of(task)
        return 1 if self.story.all_after and not self.story.windowed else wanted

    def _evict(self) -> Process:
        """Half of the time one that owns journals: nothing happens to those of others."""
        owners = [
            each
            for each in self.members.values()
            if any(task.name == self.read for task in each.tasks.values())
        ]
        if owners and self.choice_of_clients.random() < 0.5:
            return self.members.pop(self.choice_of_clients.choice(owners).group)
        return super()._evict()

    def _end_loops(self) -> None:
        for loop in self.loops:
            loop.end()

    def _is_to_drain(self) -> bool:
        if self.chaos:
            return self.drains_in is not None and self.rounds >= self.drains_in
        return all(client.done for client in self.clients)

    def _serve(self) -> None:
        """Threads, requests and event loops go on."""
        share = self.options.delivered if self.chaos and "slow" in self.options.on else 0.8
        self.threads.turn(share if self.chaos else 1.0)
        late = self.chaos and "late" in self.options.on
        self.calls.deliver(self.options.delivered if late else 0.9)
        for process in list(self.network.processes.values()):
            self.as_requests(process).loop.turn()

    def _work(self, share: float) -> None:
        super()._work(share)
        self._serve()

    def _join(self) -> None:
        if self.calls is None:
            self.threads = Threads(self.clock, random.Random(f"{self.seed}/threads"))
            self.calls = Calls(self.network, random.Random(f"{self.seed}/calls"))
        super()._join()

    def _allocation(self, slots: Any) -> dict[str, Any]:
        found = super()._allocation(slots)
        sites = {
            peer: Map({"address": str(each.group)})
            for each in self.members.values()
            for peer in each.peers
        }
        return {**found, "peer_sites": Map(sites)}

    def _stuck(self) -> str:
        open_ = [client.asked.id for client in self.clients if not client.done]
        return f"{super()._stuck()}, draining {self.draining}, clients wait for {open_}"


def _holding(bytes_max: int) -> Callable[..., JournalledPartition]:
    """Makes partitions whose journals have no room for more; an option cannot ask for so little."""

    def made(
        journal: Journal, feed: Feed, wake: Callable[[], None], _: int, name: str
    ) -> JournalledPartition:
        return JournalledPartition(journal, feed, wake, bytes_max, name)

    return made
