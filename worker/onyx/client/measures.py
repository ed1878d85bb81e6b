"""Asks the workers of a job, or of a cluster, what they measure, and joins their answers.

All are asked at once, over gRPC, with the certificates and the token by which states are asked for:
who may see the one may see the other. Who does not answer in time is named in the answer, and what
the others say stands: a page about a cluster in trouble is most wanted while a worker hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from onyx.base.on_demand import OnDemand
from onyx.base.structs import UNREADABLE
from onyx.client.reader import JobReader
from onyx.client.statuses import JobStatus
from onyx.errors import OnyxError, UserError
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.replica.state import Replica
from onyx.reports.measures import (
    JobMeasures,
    Measures,
    PeerMeasures,
    TaskMeasures,
    WorkerDiagnostics,
    WorkerMeasures,
    of_jobs,
)
from onyx.settings import Settings
from onyx.transport.state_asking import asking
from onyx.transport.state_queries import DIAGNOSTICS, MEASURES, StateAnswer, StateQuery

if TYPE_CHECKING:  # what submits jobs takes longer to import than `onyx jobs` to answer
    from onyx.client.client import Client

TIMEOUT_S = 2.0
"""By then whoever has not answered counts as silent."""
ASKED_AT_ONCE = 64
"""Workers that are asked at the same time, of those that answer."""
HANGING_MAX = 512
"""So many more may hang and keep no other one waiting."""
SILENT = "no answer in time"
Ask = Callable[[str, StateQuery, float], StateAnswer]
"""Ask the group at an address, within so many seconds; raises as `state_asking.ask`."""
T = TypeVar("T")
_decoder = msgspec.json.Decoder(WorkerMeasures)
_diagnostics = msgspec.json.Decoder(WorkerDiagnostics)
_CONNECT: OnDemand[Callable[[Settings], Client]] = OnDemand("onyx.client.connection:connect")


class MeasureReader:
    """Asks any number of times."""

    def __init__(self, client: JobReader, tenancy: str, ask: Ask) -> None:
        self._client = client
        self._tenancy = tenancy
        self._ask = ask

    def read(
        self,
        job: JobId | None = None,
        timeout_s: float = TIMEOUT_S,
        replica: Replica | None = None,
    ) -> Measures:
        """What the workers of a job measure, or all of the cluster; at the latest after about
        `timeout_s`. Of a job without peers nothing.

        Args:
            replica: which workers there are; None to look.
        """
        replica = self._client.replica() if replica is None else replica
        groups = groups_of(replica, job)
        found, silent = self._answers(groups, MEASURES, job, timeout_s, _decoder)
        return Measures(tuple(found.values()), silent)

    def diagnostics(
        self, replica: Replica, job: JobId, timeout_s: float = TIMEOUT_S
    ) -> tuple[dict[GroupId, WorkerDiagnostics], dict[str, str]]:
        """The metrics of all workers and their last log lines, those about the job and about none;
        and who did not answer, with the reason."""
        groups = groups_of(replica, None)
        return self._answers(groups, DIAGNOSTICS, job, timeout_s, _diagnostics)

    def _answers(
        self,
        groups: Mapping[GroupId, str],
        what: str,
        job: JobId | None,
        timeout_s: float,
        decoder: msgspec.json.Decoder[T],
    ) -> tuple[dict[GroupId, T], dict[str, str]]:
        found, silent = dict[GroupId, T](), dict[str, str]()
        if not groups:
            return found, silent

        def ask(group: GroupId, address: str) -> T:
            return self._answer(group, address, what, job, timeout_s, decoder)

        for group, answer in _asked(groups, ask, timeout_s).items():
            if not answer.done() or answer.cancelled():
                silent[str(group)] = f"{SILENT}: {timeout_s:g} s"
            elif (error := answer.exception()) is None:
                found[group] = answer.result()
            elif isinstance(error, OnyxError):
                silent[str(group)] = str(error)
            elif isinstance(error, ValueError):  # of an address that is none
                silent[str(group)] = f"cannot be asked at {groups[group]!r}: {error}"
            else:
                raise error
        return found, silent

    def _answer(
        self,
        group: GroupId,
        address: str,
        what: str,
        job: JobId | None,
        timeout_s: float,
        decoder: msgspec.json.Decoder[T],
    ) -> T:
        query = StateQuery(
            self._tenancy,
            group,
            PeerId(""),
            job or JobId(""),
            AllocationVersion(0),
            what,
            b"",
            1,
        )
        data = self._ask(address, query, timeout_s).data
        try:
            return decoder.decode(data)
        except UNREADABLE as error:
            raise UserError(
                f"the worker at {address} measures in another way: run the same version of Onyx "
                f"everywhere ({error})"
            ) from error


def _asked(
    groups: Mapping[GroupId, str], ask: Callable[[GroupId, str], T], timeout_s: float
) -> dict[GroupId, Future[T]]:
    """The answers, as far as they have come in time. Who hangs gives its place to the next one
    after a little of that time."""
    until_s = time.monotonic() + timeout_s
    pool = ThreadPoolExecutor(min(len(groups), ASKED_AT_ONCE + HANGING_MAX), "onyx-measures")
    free, patience_s = threading.Semaphore(ASKED_AT_ONCE), timeout_s / (2 * HANGING_MAX)
    asked: dict[GroupId, Future[T]] = {}
    for group, address in groups.items():
        free.acquire(timeout=patience_s)
        asked[group] = pool.submit(ask, group, address)
        asked[group].add_done_callback(lambda _: free.release())
    wait(asked.values(), max(0.0, until_s - time.monotonic()))
    pool.shutdown(wait=False, cancel_futures=True)
    return asked


def measure_reader(
    client: JobReader, settings: Settings, token: Callable[[], str] | None = None
) -> MeasureReader:
    """A reader that asks over gRPC.

    Args:
        token: gives the token that is shown to workers; None: the one that settings name.

    Raises:
        SettingsError: the certificates that settings name are not good.
    """
    return MeasureReader(client, settings.tenancy_id, asking(settings, token))


def measures(
    settings: Settings, job: JobId | None = None, timeout_s: float = TIMEOUT_S
) -> Measures:
    """What the workers of a job (its id or the beginning of that, or its name) measure, or all of
    the cluster.

    Raises:
        UserError: there is no such job.
        Unavailable: ZooKeeper cannot be reached.
    """
    with _CONNECT.load()(settings) as client:
        named = None if job is None else client.named(job)
        return measure_reader(client, settings).read(named, timeout_s)


def with_measures(
    statuses: Iterable[JobStatus], measured: Measures, replica: Replica
) -> list[JobStatus]:
    """Statuses with what workers measure of the jobs that have peers, of those that were asked."""
    tasks: dict[str, list[TaskMeasures]] = {}
    for task in measured.tasks:
        tasks.setdefault(task.job, []).append(task)
    peers: dict[str, list[PeerMeasures]] = {}
    for peer in measured.peers:
        peers.setdefault(peer.job, []).append(peer)
    jobs = of_jobs(chain.from_iterable(tasks.values()), measured.edges)

    def measured_of(status: JobStatus) -> JobStatus:
        mine = groups_of(replica, status.id) if measured.silent else {}
        silent = {group: why for group, why in measured.silent.items() if group in mine}
        its = jobs.get(status.id, JobMeasures() if silent else None)
        return replace(
            status,
            measured=None if its is None else replace(its, silent=silent),
            tasks=tuple(tasks.get(status.id, ())),
            at_work=tuple(peers.get(status.id, ())),
        )

    return [measured_of(each) if each.peers else each for each in statuses]


def groups_of(replica: Replica, job: JobId | None) -> dict[GroupId, str]:
    """The groups that work on a job, or all, each with its address."""
    peers = (
        list(replica.peer_sites)
        if job is None
        else [peer for each in replica.run(job).allocation.values() for peer in each]
    )
    return {
        replica.groups_reverse_index[peer]: str(replica.peer_sites[peer].get("address", ""))
        for peer in sorted(peers)
    }
