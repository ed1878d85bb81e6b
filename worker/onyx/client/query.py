"""The state of a window of a running job, asked of the peers that own it.

Nobody collects states: the replica says which peers work on the windowed task, in which version of
their allocation, and where their groups listen. Each is asked for its first extents, all at once.
The answer of one peer is one moment of it; those of several are moments that lie close together.

The question names the allocation version, and a peer of another one refuses it. So an answer never
misses a group that has moved meanwhile, nor has it twice: the question is asked again as a whole.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.codec.extents import decode_extents, encode_key
from onyx.errors import Unavailable, UserError
from onyx.flow.grouping import SHARDS, shard_of
from onyx.ids import AllocationVersion, JobId, TaskName
from onyx.model.job import Job, Window
from onyx.model.report import nearest
from onyx.replica.state import Replica
from onyx.seams import Clock, SystemClock
from onyx.settings import Settings
from onyx.task.channels.wiring import Site, has_one_owner, sites_of
from onyx.tls.files import GROUPS, CertificateFiles
from onyx.transport.grpc_asking import ask
from onyx.transport.state_queries import EXTENTS_MAX, StateAnswer, StateQuery
from onyx.windows.answers import Answer, merge
from onyx.windows.firing import ALL, Extent
from onyx.windows.units import is_time

EXTENTS_DEFAULT = 10_000
TIMEOUT_S = 10.0
"""Until then a question is repeated that nobody could answer, as while a job is re-allocated."""
WAIT_FIRST_S = 0.1
WAIT_MAX_S = 1.0
ASKED_AT_ONCE = 16

Ask = Callable[[str, StateQuery, float], StateAnswer]
"""Ask the group at an address, within so many seconds; raises as `grpc_state.ask`."""


@dataclass(frozen=True, slots=True)
class WindowView:
    """The extents of a window, by group and lower bound."""

    job: JobId
    task: str
    window: str
    extents: tuple[Extent, ...]
    more: bool
    """There are more than were asked for, or than can be sent; these are the first."""
    in_time: bool
    """Bounds are milliseconds since the epoch, in UTC."""


@dataclass(frozen=True, slots=True)
class Question:
    """Extents of a window, of all groups or of one."""

    job: JobId
    window: str
    key: Any = ALL
    extents_max: int = EXTENTS_DEFAULT


class StateReader:
    """Asks for states; any number of questions."""

    def __init__(
        self,
        client: Client,
        tenancy: str,
        ask: Ask,
        clock: Clock | None = None,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """`wait` passes so many seconds."""
        self._client = client
        self._tenancy = tenancy
        self._ask = ask
        self._clock = clock or SystemClock()
        self._wait = wait or threading.Event().wait

    @classmethod
    def over_grpc(cls, client: Client, settings: Settings) -> StateReader:
        """Raises SettingsError when the certificates that settings name are not good."""
        files = CertificateFiles.named_by(settings.tls, GROUPS, serves=False)

        def dial(address: str, query: StateQuery, timeout_s: float) -> StateAnswer:
            return ask(address, query, settings.transport, files, timeout_s)

        return cls(client, settings.tenancy_id, dial)

    def read(self, question: Question, timeout_s: float = TIMEOUT_S) -> WindowView:
        """The answer to a question.

        Raises:
            UserError: there is no such job or window, the job does not run, the key cannot be one.
            Unavailable: not all peers concerned could answer within `timeout_s`.
        """
        if not 1 <= question.extents_max <= EXTENTS_MAX:
            raise UserError(f"from 1 to {EXTENTS_MAX} extents can be asked for")
        job = self._client.job(question.job)
        window = _window(job, question)
        answer = self._patiently(job, window, question, timeout_s)
        amount = window.range or window.timeout_gap
        in_time = amount is not None and is_time(amount)
        extents = tuple(answer.extents)
        return WindowView(question.job, window.task, window.id, extents, answer.more, in_time)

    def _patiently(self, job: Job, window: Window, question: Question, timeout_s: float) -> Answer:
        ends_s = self._clock.monotonic_s() + timeout_s
        wait_s = WAIT_FIRST_S
        while True:
            left_s = max(WAIT_FIRST_S, ends_s - self._clock.monotonic_s())
            try:
                return self._answer(job, window, question, left_s)
            except Unavailable as error:
                if self._clock.monotonic_s() + wait_s >= ends_s:
                    raise Unavailable(f"no answer within {timeout_s:g} s: {error}") from error
            self._wait(wait_s)
            wait_s = min(2 * wait_s, WAIT_MAX_S)

    def _answer(self, job: Job, window: Window, question: Question, left_s: float) -> Answer:
        replica = self._client.replica()
        owners = self._owners(replica, job, window, question)
        version = AllocationVersion(replica.run(question.job).allocation_version)

        def ask(site: Site) -> Answer:
            address = str(replica.peer_sites[site.peer].get("address", ""))
            got = self._ask(address, self._query(question, site, version), left_s)
            return Answer(decode_extents(got.data), got.more)

        with ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="onyx-asking") as pool:
            return merge(pool.map(ask, owners), question.extents_max)

    def _owners(
        self, replica: Replica, job: Job, window: Window, question: Question
    ) -> Sequence[Site]:
        """The peers that have what is asked for."""
        if not replica.run(question.job).allocation.get(TaskName(window.task)):
            status = self._client.status_at(replica, question.job)
            why = f" ({status.waiting_for})" if status.waiting_for else ""
            raise UserError(
                f"job {question.job} is {status.state}{why}: no peer works on it, and only those "
                "have the state of its windows"
            )
        sites = sites_of(replica, question.job, TaskName(window.task))
        if has_one_owner(job, window.task):
            return sites[:1]
        if question.key is ALL:
            return sites[:SHARDS]
        return [sites[shard_of(question.key) % len(sites)]]

    def _query(self, question: Question, site: Site, version: AllocationVersion) -> StateQuery:
        return StateQuery(
            self._tenancy,
            site.group,
            site.peer,
            question.job,
            version,
            question.window,
            encode_key(question.key),
            question.extents_max,
        )


def _window(job: Job, question: Question) -> Window:
    names = [window.id for window in job.windows]
    if question.window not in names:
        has = f"it has {', '.join(names)}" if names else "it has none"
        hint = nearest(question.window, names)
        raise UserError(
            f"job {question.job} has no window {question.window!r}: {has}"
            + (f"; {hint}" if hint else "")
        )
    window = job.windows[names.index(question.window)]
    if question.key is not ALL and has_one_owner(job, window.task):
        raise UserError(
            f"task {window.task} of window {window.id} is not grouped: leave the key out"
        )
    return window


def window_state(
    settings: Settings,
    job: JobId,
    window: str,
    key: Any = ALL,
    extents_max: int = EXTENTS_DEFAULT,
    timeout_s: float = TIMEOUT_S,
) -> WindowView:
    """What a window of a running job has gathered until now, asked of the peers that have it.

    Args:
        settings: those of a worker: what leads to ZooKeeper, and the certificates of `tls`.
        job: its id.
        window: its id.
        key: of one group, as the task's `groupByKey` or `groupByFn` gives it; all groups without.
        extents_max: the first so many extents, by group and lower bound.
        timeout_s: how long a job that is being re-allocated is waited for.

    Raises:
        UserError: there is no such job or window, the job does not run, the key cannot be one.
        Unavailable: not all peers concerned could answer in time.
    """
    with connect(settings) as client:
        reader = StateReader.over_grpc(client, settings)
        return reader.read(Question(job, window, key, extents_max), timeout_s)
