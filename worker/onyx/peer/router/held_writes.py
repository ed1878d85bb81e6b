"""Requests of clients that are held back, and their commits: on the event loop of the router.

What is held lies in the store of the cluster's state, which all workers see. So whichever worker is
asked does it, and one that dies leaves nothing that the next one does not find.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TypeVar

from msgspec.structs import replace

from onyx.base.path_names import ALPHABET, is_path_name
from onyx.base.seams import Clock
from onyx.journal.held_requests import BatchDecision, HeldBatch, HeldName, HeldRoom, NotHeld
from onyx.ledger.outcomes import failure_text
from onyx.model.retention import JOURNAL_BYTES_MAX
from onyx.peer.router.inputs import RequestInput, RequestInputs
from onyx.requests.content import Decoding, parts_of
from onyx.requests.request import Answer, Append, Commit, HeldRequest, Level, Status
from onyx.storage.interface import BlobStore

T = TypeVar("T")
THREADS = 4
ROOMS_MAX = 256
"""Inputs of which it is remembered how much is held for them."""
BUSY_RETRY_S = 1.0
WRITERS_AT_ONCE = 8
"""Writers of a batch whose requests are taken at once. Those of one writer are taken in order."""


class HeldWrites:
    """For the router: `hold` and `commit` are called on its loop."""

    def __init__(
        self,
        inputs: RequestInputs,
        store: Callable[[], BlobStore],
        clock: Clock,
        take: Callable[[Append], Awaitable[Answer]],
        decoding: Decoding,
    ) -> None:
        """
        Args:
            store: opens the store of the cluster's state; it may block.
            take: answers a request that is not held back.
        """
        self._inputs = inputs
        self._store = store
        self._clock = clock
        self._take = take
        self._decoding = decoding
        self._lock = threading.Lock()
        self._rooms: dict[tuple[str, str], HeldRoom] = {}
        self._threads = ThreadPoolExecutor(THREADS, "onyx-held-writes")

    async def answer(
        self, found: RequestInput, append: Append, write: HeldRequest | Commit
    ) -> Answer:
        """The answer to a request of a write. Raises what the router answers for."""
        stopped = self._inputs.stopped(found) or self._inputs.drains(found)
        if stopped is not None:
            return stopped
        if isinstance(write, HeldRequest):
            return await self._hold(found, append, write)
        return await self._commit(found, append, write)

    def stop(self) -> None:
        """Begin nothing more. Does not wait."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _hold(self, found: RequestInput, append: Append, held: HeldRequest) -> Answer:
        # What cannot be taken is refused now: it could not be when the batch is committed.
        segments, _ = await self._decoding.decoded(append.payload)
        parts_of(segments, found.partition_key, 0, 2)
        if not is_path_name(held.writer):
            return Answer(Status.INVALID, f"a writer of a write is named by {ALPHABET}")
        name, size_bytes = HeldName(held.writer, held.number), len(append.payload.data)
        room = await self._blocking(lambda: self._no_room(found, size_bytes))
        if room:
            return Answer(Status.BUSY, room, BUSY_RETRY_S)
        if not await self._blocking(lambda: self._batch(found, held).hold(name, append.payload)):
            reason = f"writer {held.writer} holds another request {held.number} already"
            return Answer(Status.CONFLICT, reason)
        return Answer(Status.JOURNALLED, segments=len(segments))

    async def _commit(self, found: RequestInput, append: Append, commit: Commit) -> Answer:
        now_ms = self._clock.wall_ms()
        batch = await self._blocking(lambda: self._batch(found, commit))
        try:
            decision = await self._blocking(lambda: batch.commit(commit.writers, now_ms))
        except NotHeld as error:
            return Answer(Status.INVALID, str(error))
        left = await self._blocking(lambda: batch.left(decision))
        too_late = self._too_late(found, commit, decision, now_ms) if left else ""
        if too_late:
            return Answer(Status.INVALID, too_late)
        whole = replace(append, job=found.job, task=found.task, write=None)
        processed = append.level is Level.ACK
        taken = await self._all(left, batch, commit, replace(whole, level=Level.JOURNAL))
        if processed and taken.status.reached:
            # All are in the journal, in order, so now they may be waited for in any order.
            alone = [[name] for names in left for name in names]
            taken = await self._all(alone, batch, commit, whole)
        if not taken.status.reached:
            return taken
        await self._blocking(batch.sweep)
        if taken.outcomes.final_failures:
            reason = failure_text(taken.outcomes)
            return replace(taken, status=Status.FAILED, reason=reason)
        return replace(taken, status=Status.PROCESSED if processed else Status.JOURNALLED)

    async def _all(
        self,
        left: list[list[HeldName]],
        batch: HeldBatch,
        commit: Commit,
        whole: Append,
    ) -> Answer:
        """Have all requests taken, those of one list in order."""
        room = asyncio.Semaphore(WRITERS_AT_ONCE)

        async def of_writer(names: list[HeldName]) -> Answer:
            async with room:
                taken = Answer(Status.JOURNALLED)
                for name in names:
                    answer = await self._one(name, batch, commit, whole)
                    if not answer.status.final:
                        return answer
                    taken = _added(taken, answer)
                return taken

        answers = await asyncio.gather(*map(of_writer, left))
        open_ = next((each for each in answers if not each.status.final), None)
        return open_ or reduce(_added, answers, Answer(Status.JOURNALLED))

    async def _one(self, name: HeldName, batch: HeldBatch, commit: Commit, whole: Append) -> Answer:
        payload = await self._blocking(lambda: batch.read(name))
        if payload is None:
            return Answer(Status.JOURNALLED)
        number = f"{commit.batch.batch}/{name.writer}/{name.number}"
        id = f"held/{commit.batch.digest}/{number}"
        return await self._take(replace(whole, payload=payload, id=id))

    def _too_late(
        self, found: RequestInput, commit: Commit, decision: BatchDecision, now_ms: int
    ) -> str:
        """Why a commit that was cut off cannot go on: the journal may have forgotten the ids of
        what it took then."""
        remembered_s = int(found.entry.options.get("rememberSeconds", 3_600))
        if now_ms - decision.wall_ms < 1_000 * remembered_s:
            return ""
        return (
            f"the commit of batch {commit.batch.batch} of write {commit.batch.write!r} was cut off "
            f"more than {remembered_s} s ago (rememberSeconds), and it is not known any more which "
            "of its rows were taken: see what the job has made of them, and go on with the next one"
        )

    def _no_room(self, found: RequestInput, size_bytes: int) -> str:
        """Why nothing more can be held for an input; empty if it can. Blocks."""
        key = (found.job, found.task)
        with self._lock:
            room = self._rooms.get(key)
            if room is None:
                if len(self._rooms) >= ROOMS_MAX:
                    self._rooms.clear()
                versions, clock_s = self._inputs.versions(found), self._clock.monotonic_s
                room = self._rooms[key] = HeldRoom(self._store(), versions, found.task, clock_s)
        bytes_max = int(found.entry.options.get("journalBytesMax", JOURNAL_BYTES_MAX))
        waits = self._inputs.waits(found) is not None
        partitions = 1 if waits else self._inputs.partitions(found)
        return room.take(size_bytes, bytes_max * partitions)

    def _batch(self, found: RequestInput, write: HeldRequest | Commit) -> HeldBatch:
        return HeldBatch(self._store(), self._inputs.versions(found), found.task, write.batch)

    async def _blocking(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _added(taken: Answer, answer: Answer) -> Answer:
    """With what one request more was answered. Numbers of its segments mean nothing outside."""
    outcomes = taken.outcomes + answer.outcomes.at(None)
    return replace(taken, segments=taken.segments + answer.segments, outcomes=outcomes)
