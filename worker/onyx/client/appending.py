"""An appender for a cluster that is known by its ZooKeeper, where its peers have announced their
workers.
"""

from __future__ import annotations

from onyx.client.appender import (
    Appender,
    NotTaken,
    NotYetTaken,
    RequestFailed,
    Segments,
)
from onyx.client.connection import connect
from onyx.errors import Unavailable
from onyx.replica.state import Replica
from onyx.requests.request import Answer, Level
from onyx.settings import Settings


def appender(settings: Settings, job: str, task: str = "") -> Appender:
    """An appender to the input of a job, by way of the workers that the log names.

    Args:
        settings: those of a worker: what leads to ZooKeeper, the tenancy, the certificates of
            `tls`, and the token of `client`.
        job: its id, or its name if only one job of this name runs.
        task: the input; empty if the job has only one that takes requests.

    Raises:
        SettingsError: the certificates are not good.
    """
    client = connect(settings)
    try:
        return Appender(
            lambda: addresses_of(client.replica()),
            job,
            task,
            settings.tls,
            on_close=client.close,
            client=settings.client,
            tenancy=settings.tenancy_id,
        )
    except BaseException:
        client.close()
        raise


def append_once(
    replica: Replica,
    settings: Settings,
    job: str,
    task: str,
    segments: Segments,
    level: Level,
    id: str,
    timeout_s: float,
) -> Answer:
    """The answer to one request, whatever it is.

    Args:
        replica: says where workers are.

    Raises:
        SettingsError: the certificates are not good.
        SegmentError: a segment cannot travel.
        Unavailable: there is no worker.
    """
    with Appender(
        addresses_of(replica),
        job,
        task,
        settings.tls,
        client=settings.client,
        tenancy=settings.tenancy_id,
    ) as opened:
        try:
            return opened.append(segments, level, id, timeout_s)
        except (NotTaken, RequestFailed, NotYetTaken) as error:
            return error.answer


def addresses_of(replica: Replica) -> list[str]:
    """Where the workers listen, `host:port`, each once, in the order of joining.

    Raises:
        Unavailable: there is no worker.
    """
    sites = [replica.peer_sites[peer] for peer in replica.peers if peer in replica.peer_sites]
    found = dict.fromkeys(str(site["address"]) for site in sites if site.get("address"))
    if not found:
        raise Unavailable("the cluster has no worker: start one with `onyx worker`")
    return list(found)
