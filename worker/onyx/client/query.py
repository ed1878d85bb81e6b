"""Asks for a state of a job: peers over gRPC, with the certificates and the token of the settings;
or reads it where it is kept.

Nobody collects states: the replica says which peers work on the task that has it, in which version
of their allocation, and where their groups listen. Each is asked for its first extents, all at
once. The answer of one peer is one moment of it; those of several are moments that lie close
together.

The question names the allocation version, and a peer of another one refuses it. So an answer never
misses a group that has moved meanwhile, nor has it twice: the question is asked again as a whole.

Where no peer works on the task, because the job was killed or is suspended, its log has the state.
Where Spark runs the job, it is in the chunks of the last commit. Where it aggregates the window, it
is in files that the log names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec.structs import replace

from onyx.base.seams import Clock, SystemClock
from onyx.client.connection import connect
from onyx.client.reader import JobReader
from onyx.client.states.state import State
from onyx.client.stored_state import KeptStates
from onyx.client.window_view import EXTENTS_DEFAULT, Question, WindowView, asked_of, view_of
from onyx.codec.questions import decode_extents, encode_selection
from onyx.errors import Unavailable
from onyx.ids import AllocationVersion, JobId, TaskName
from onyx.keystate.selection import EVERYTHING, Answer, Selection, merge
from onyx.model.job import Job
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx.task.channels.wiring import Site, sites_of
from onyx.transport.state_asking import asking
from onyx.transport.state_queries import StateAnswer, StateQuery

TIMEOUT_S = 10.0
"""Until then a question is repeated that nobody could answer, as while a job is re-allocated."""
WAIT_FIRST_S = 0.1
WAIT_MAX_S = 1.0
ASKED_AT_ONCE = 16
Ask = Callable[[str, StateQuery, float], StateAnswer]
"""Ask the group at an address, within so many seconds; raises as `state_asking.ask`."""
ReadKept = Callable[[JobReader, Job, Question], Answer]
"""Read a question's answer where the state is kept, because no peer can be asked."""


class StateReader:
    """Answers any number of questions."""

    def __init__(
        self,
        client: JobReader,
        tenancy: str,
        ask: Ask,
        kept: ReadKept,
        clock: Clock | None = None,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """`wait` passes so many seconds."""
        self._client = client
        self._tenancy = tenancy
        self._ask = ask
        self._kept = kept
        self._clock = clock or SystemClock()
        self._wait = wait or threading.Event().wait

    def read(self, question: Question, timeout_s: float = TIMEOUT_S) -> WindowView:
        """The answer to a question.

        Raises:
            UserError: there is no such job or state, it state is not kept, the question makes no
                sense.
            Unavailable: not all peers concerned could answer within `timeout_s`.
        """
        job = self._client.job(question.job)
        state = asked_of(job, question)
        answer = self._patiently(job, question, state, timeout_s)
        return view_of(question, state, answer)

    def pages(self, question: Question, timeout_s: float = TIMEOUT_S) -> Iterator[WindowView]:
        """The answer to a question and all pages behind it, each of a moment of its own. Raises
        like `read`."""
        while True:
            view = self.read(question, timeout_s)
            yield view
            if view.next is None:
                return
            question = replace(question, select=replace(question.select, after=view.next))

    def _patiently(self, job: Job, question: Question, state: State, timeout_s: float) -> Answer:
        ends_s = self._clock.monotonic_s() + timeout_s
        wait_s = WAIT_FIRST_S
        while True:
            left_s = max(WAIT_FIRST_S, ends_s - self._clock.monotonic_s())
            try:
                return self._answer(job, question, state, left_s)
            except Unavailable as error:
                if self._clock.monotonic_s() + wait_s >= ends_s:
                    raise Unavailable(f"no answer within {timeout_s:g} s: {error}") from error
            self._wait(wait_s)
            wait_s = min(2 * wait_s, WAIT_MAX_S)

    def _answer(self, job: Job, question: Question, state: State, left_s: float) -> Answer:
        replica = self._client.replica()
        owners = owners_of(replica, question.job, state, question.select.key)
        if not owners:
            return self._kept(self._client, job, question)
        version = AllocationVersion(replica.run(question.job).allocation_version)

        def ask(site: Site) -> Answer:
            address = str(replica.peer_sites[site.peer].get("address", ""))
            got = self._ask(address, self._query(question, state, site, version), left_s)
            return Answer(decode_extents(got.data), got.more)

        with ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="onyx-asking") as pool:
            return merge(pool.map(ask, owners), question.extents_max)

    def _query(
        self, question: Question, state: State, site: Site, version: AllocationVersion
    ) -> StateQuery:
        return StateQuery(
            self._tenancy,
            site.group,
            site.peer,
            question.job,
            version,
            state.asked_as,
            encode_selection(question.select),
            question.extents_max,
            question.durable,
        )


def owners_of(replica: Replica, job: JobId, state: State, key: Any) -> Sequence[Site]:
    """The peers that have what is asked for of a group, or of ALL, in the order of their slots;
    none: no peer works on the task, or none has all of the state."""
    task = TaskName(state.task)
    if state.in_store or not replica.run(job).allocation.get(task):
        return ()
    sites = sites_of(replica, job, task)
    ranks = {shard % len(sites) for shard in state.shards(key)}
    return [sites[rank] for rank in sorted(ranks)]


def state_reader(
    client: JobReader, settings: Settings, token: Callable[[], str] | None = None
) -> StateReader:
    """A reader that asks over gRPC, and reads logs where nobody can be asked.

    Args:
        token: gives the token that is shown to workers; None: the one that settings name.

    Raises:
        SettingsError: the certificates that settings name are not good.
    """
    return StateReader(client, settings.tenancy_id, asking(settings, token), KeptStates(settings))


def window_state(
    settings: Settings,
    job: JobId,
    window: str,
    select: Selection = EVERYTHING,
    extents_max: int = EXTENTS_DEFAULT,
    durable: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> WindowView:
    """What a window, or another state of a job, is at this moment, asked of the peers that have it;
    of a job that was killed or is suspended, what its state log says; of one on Spark, what the
    last micro-batch has committed.

    Args:
        settings: those of a worker: what leads to ZooKeeper and to the state, and the certificates
            of `tls`; and the token of `client`.
        job: its id or the beginning of that, or its name.
        window: its id; `task.state` for a state of a function; the name of a table, a join of
            streams, or a task with a processor.
        select: which groups and extents; all without.
        extents_max: the first so many extents, by group and lower bound; `next` of the answer leads
            to those behind.
        durable: only what no crash takes back; comes up to `ONYX_STATE_CHUNK_INTERVAL_S` later.
        timeout_s: how long a job that is being re-allocated is waited for.

    Raises:
        UserError: there is no such job or state, it is not kept, the question makes no sense.
        Unavailable: not all peers concerned could answer in time.
    """
    with connect(settings) as client:
        reader = state_reader(client, settings)
        question = Question(client.named(job), window, select, extents_max, durable)
        return reader.read(question, timeout_s)


def window_pages(
    settings: Settings,
    job: JobId,
    window: str,
    select: Selection = EVERYTHING,
    extents_max: int = EXTENTS_DEFAULT,
    durable: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> Iterator[WindowView]:
    """All that a window has gathered, in pages of so many extents. Each page is of a moment of its
    own: an extent that is there all the time comes once. See `window_state`."""
    with connect(settings) as client:
        reader = state_reader(client, settings)
        question = Question(client.named(job), window, select, extents_max, durable)
        yield from reader.pages(question, timeout_s)
