"""Bugs planted on purpose where requests and journals are worked on: the simulator must find each.

R1 a request counts as journalled when the writer of the journal has taken it; R2 one in the journal
counts as processed; R3 so does one that a new owner knows from before; R4 other content under an id
is not looked at; R5 who takes a journal over does not end the logs of before; R6 he ends one at the
number of a collected chunk; R7 what is in doubt is appended again under the next number; R8 chunks
go when their segments are read; R9 ids go with their chunks; R10 a chunk that cannot be read loses
what was read before it; R11 what functions want read again is acked all the same; R12 a source that
keeps the order on retry goes on while something rests; R13 it reads only what has failed again; R14
the last retry that a function asks for is not made; R15 what is to be kept goes with its chunks;
R16 who goes on in a journal has its ids in the order of chunks; R17 a function with state acks what
its log has; R18 who takes over an output takes for published what is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace
from tests.sim.planting import FoundBy, Plants, planted_of
from tests.sim.windows.bugs import ack_all, no_fence, only_what_failed

from onyx.base.runs import Numbers
from onyx.flow.batch import as_dicts
from onyx.flow.segment import Segment
from onyx.journal import journal as journals
from onyx.journal.journal import IndexedChunk, Journal
from onyx.journal.logs import ChunkPlace, Content, JournalLogs, JournalSummary, RememberedRequest
from onyx.ledger.pending import OrderedPositions, PendingPositions
from onyx.plugins.journalled.partitions import JournalledPartitions
from onyx.plugins.journalled.reader import JournalReader
from onyx.plugins.protocol import Token
from onyx.plugins.requests import request_queue
from onyx.plugins.requests.request_queue import RequestQueue
from onyx.requests.request import Request, Status
from onyx.state.shard_states import ShardState
from onyx.storage.fenced_log import Listed
from onyx.task.phases import send
from onyx.task.recovery import output
from onyx.task.state.chunks import Columns, PendingChunk
from onyx.task.state.held_acks import HeldAcks

_take = RequestQueue.take
_appended = RequestQueue.appended
_init = RequestQueue.__init__
_again = RequestQueue._again
_append = Journal.append
_replace = Journal._replace
_retry_roots = PendingPositions.retry_roots


def _journalled_early(box: RequestQueue, first: int, wait_s: float) -> Content | None:
    """R1."""
    content = _take(box, first, wait_s)
    for each in content.requests if content is not None else ():
        if each.outcomes is not None:
            continue
        entry = box._taken[each.id]
        waiting, entry.journalled = entry.journalled, ()
        request_queue.settle(request_queue.answers_of(waiting, Status.JOURNALLED, entry.count))
    return content


def _processed_early(box: RequestQueue, content: Content) -> None:
    """R2."""
    known = [box._taken[each.id] for each in content.requests if each.outcomes is None]
    _appended(box, content)
    for entry in known:
        waiting, entry.processed = entry.processed, ()
        request_queue.settle(request_queue.answers_of(waiting, Status.PROCESSED, entry.count))


def _processed_before(box: RequestQueue, *arguments: Any, **named: Any) -> None:
    """R3."""
    _init(box, *arguments, **named)
    for entry in box._open:
        entry.left = 0
    box._open.clear()


def _any_content(box: RequestQueue, request: Request, entry: Any) -> Any:
    """R4."""
    return _again(box, replace(request, digest=entry.digest), entry)


def _fence_anywhere(logs: JournalLogs, key: int, log: Listed, replaced: bool = False) -> int:
    """R6."""
    seq = max(log.sizes)
    while not logs.read(key, seq).is_fence:
        seq += 1
        if logs.store.create(logs.folder.chunk(key, seq), logs.fence_data(key, seq)):
            break
    return seq


def _append_anew(journal: Journal, content: Content) -> int:
    """R7."""
    log = journal._log
    if log.doubtful is not None:
        log.doubtful = None
        if journal._logs.find(journal._version, log.last + 1) is not None:
            log.last += 1
    return _append(journal, content)


def _collect_what_is_read(partitions: JournalledPartitions) -> None:
    """R8."""
    for owned in partitions._open.values():
        owned.journal.collect(owned.end, owned.feed.remembered, all_of_it=True)


def _forget_ids(journal: Journal, place: ChunkPlace, summary: JournalSummary) -> None:
    """R9."""
    _replace(journal, place, replace(summary, requests=[]))


def _lose_what_was_read(reader: JournalReader, segments_max: int) -> list[Segment]:
    """R10."""
    found: list[Segment] = []
    while len(found) < segments_max and reader._fill():
        found += as_dicts(reader._take(segments_max - len(found)))
    return found


def _one_less(window: PendingPositions, roots: Numbers, retries_max: int, now_s: float) -> None:
    """R14."""
    _retry_roots(window, roots, max(1, retries_max - 1), now_s)


def _keep_nothing(journal: Journal, passed: Sequence[IndexedChunk]) -> None:
    """R15."""


def _by_chunks(requests: Iterable[RememberedRequest]) -> list[RememberedRequest]:
    """R16."""
    return list({each.id: each for each in requests}.values())


def _ack_what_is_logged(held: HeldAcks, durable: PendingChunk) -> list[Columns]:
    """R17."""
    return durable.values


def _published(shards: Iterable[ShardState]) -> list[Token]:
    """R18."""
    return []


PLANTS: Plants = {
    "R1": (RequestQueue, "take", _journalled_early),
    "R2": (RequestQueue, "appended", _processed_early),
    "R3": (RequestQueue, "__init__", _processed_before),
    "R4": (RequestQueue, "_again", _any_content),
    "R5": (JournalLogs, "fence", no_fence),
    "R6": (JournalLogs, "fence", _fence_anywhere),
    "R7": (Journal, "append", _append_anew),
    "R8": (JournalledPartitions, "_collect_once", _collect_what_is_read),
    "R9": (Journal, "_replace", _forget_ids),
    "R10": (JournalReader, "read", _lose_what_was_read),
    "R11": (send, "acked", ack_all),
    "R12": (OrderedPositions, "waits", False),
    "R13": (OrderedPositions, "_from", only_what_failed),
    "R14": (PendingPositions, "retry_roots", _one_less),
    "R15": (Journal, "_keep", _keep_nothing),
    "R16": (journals, "each_once", _by_chunks),
    "R17": (HeldAcks, "hold", _ack_what_is_logged),
    "R18": (output, "last_tokens", _published),
}
FOUND_BY: FoundBy = {
    "R1": {"J1"},
    "R2": {"J1"},
    "R3": {"J1"},
    "R4": {"J3"},
    "R5": {"J2"},
    "R6": {"J2", "J5"},
    "R7": {"J2"},
    "R8": {"J4"},
    "R9": {"J5"},
    "R10": {"C5", "J2"},
    "R11": {"C5"},
    "R12": {"O1"},
    "R13": {"O1"},
    "R14": {"D2"},
    "R15": {"J8"},
    "R16": {"J5"},
    "R17": {"J1"},
    "R18": {"J1", "J2"},
}
planted = partial(planted_of, PLANTS)
