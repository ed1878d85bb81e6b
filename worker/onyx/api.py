"""The Core API, with the names of the user guide.

    env = start_env(settings)                        # an embedded ZooKeeper, for tests and laptops
    group = start_peer_group(settings)               # join the cluster
    peers = start_peers(4, group)                    # offer four virtual peers
    job = submit_job(settings, parse_manifest(text, "job.yaml"))
    await_job_completion(settings, job.job)
    shutdown_peers(peers); shutdown_peer_group(group); shutdown_env(env)

`onyx.testing.with_test_env` does all of that around a block.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.client.query import window_state
from onyx.client.submissions import Submission
from onyx.code_hash import code_hash
from onyx.codes import CODE
from onyx.errors import Unavailable
from onyx.history.collection import Collected
from onyx.ids import NO_POSITION, GroupId, JobId, PeerId, Position
from onyx.log.interface import Origin
from onyx.log.server.environment import Env, shutdown_env, start_env
from onyx.log.zookeeper.client_log import ZooKeeperClientLog
from onyx.log.zookeeper.dialler import zookeeper_certificates
from onyx.log.zookeeper.group_log import ZooKeeperGroupLog
from onyx.model.job import Job
from onyx.model.notices import notices
from onyx.model.parsing.job import parse_manifest, parse_mapping
from onyx.model.workflow import Edge, edges_of
from onyx.peer.context import new_context
from onyx.peer.membership import PeerGroup
from onyx.recorder import Recorder
from onyx.replica.entry import Entry
from onyx.resolve import Resolver
from onyx.settings import Settings
from onyx.telemetry.interface import NULL_GROUP, GroupMetrics
from onyx.tls.files import GROUPS, CertificateFiles
from onyx.transport.grpc_transport import GrpcTransport

__all__ = [
    "Client",
    "Env",
    "Job",
    "JobId",
    "Peer",
    "Settings",
    "Subscription",
    "await_job_completion",
    "connect",
    "drain_job",
    "gc",
    "kill_job",
    "map_set_workflow_to_workflow",
    "open_peer_group",
    "parse_manifest",
    "resume_job",
    "shutdown_env",
    "shutdown_peer",
    "shutdown_peer_group",
    "shutdown_peers",
    "shutdown_subscription",
    "start_env",
    "start_peer_group",
    "start_peers",
    "submit_job",
    "subscribe_to_log",
    "suspend_job",
    "window_state",
]

JOIN_TIMEOUT_S = 60.0
logger = logging.getLogger("onyx.client")


@dataclass(frozen=True, slots=True)
class Peer:
    """A virtual peer that this process offers."""

    id: PeerId
    group: PeerGroup


@dataclass(frozen=True, slots=True)
class Subscription:
    """A reader of the log; end it with `shutdown_subscription`."""

    close: Callable[[], None]


def start_peer_group(
    settings: Settings,
    metrics: GroupMetrics = NULL_GROUP,
    site: Mapping[str, Any] | None = None,
    recorder: Recorder | None = None,
) -> PeerGroup:
    """Make this process a member of the cluster; returns when it has joined.

    Raises:
        SettingsError: as `open_peer_group`.
        Unavailable: it could not join within a minute.
    """
    group = open_peer_group(settings, metrics, site, recorder)
    waited = threading.Event()
    for _ in range(int(JOIN_TIMEOUT_S / 0.01)):
        if group.joined:
            return group
        if group.failure is not None:
            raise group.failure
        waited.wait(0.01)
    group.stop()
    raise Unavailable(
        f"this peer group could not join tenancy {settings.tenancy_id!r} at "
        f"{settings.zookeeper.address} within {JOIN_TIMEOUT_S:.0f} s"
    )


def open_peer_group(
    settings: Settings,
    metrics: GroupMetrics = NULL_GROUP,
    site: Mapping[str, Any] | None = None,
    recorder: Recorder | None = None,
) -> PeerGroup:
    """Start a peer group and do not wait: it tries to join for as long as it takes.

    Args:
        settings: of the process.
        metrics: receives the metrics of the group.
        site: announced with every peer beside its address and the hash of its code.

    Raises:
        SettingsError: a setting or a module in `modules` is wrong.
    """
    certificates = CertificateFiles.named_by(settings.tls, GROUPS, serves=True)
    for_zookeeper = zookeeper_certificates(settings.zookeeper)

    def open_log(group: GroupId, identity: int | None) -> ZooKeeperGroupLog:
        return ZooKeeperGroupLog(settings, group, identity, for_zookeeper)

    def open_transport() -> GrpcTransport:
        return GrpcTransport(settings.transport, settings.tenancy_id, certificates)

    resolver = Resolver(settings.modules)
    code = code_hash(settings.modules)
    announced = {**(site or {}), **({CODE: code} if code else {})}
    context = new_context(settings, resolver, metrics, announced, recorder=recorder)
    group = PeerGroup(context, open_log, open_transport)
    group.start()
    return group


def shutdown_peer_group(group: PeerGroup) -> bool:
    """Leave the cluster; what its peers did goes to others. False when `leave_timeout_s` was not
    enough: then others notice when the session expires."""
    return group.stop()


def start_peers(count: int, group: PeerGroup) -> list[Peer]:
    """Offer `count` virtual peers."""
    return [Peer(each, group) for each in group.add_peers(count)]


def shutdown_peer(peer: Peer) -> None:
    """Withdraw one virtual peer; its task goes to another one."""
    peer.group.remove_peer(peer.id)


def shutdown_peers(peers: Iterable[Peer]) -> None:
    """Withdraw virtual peers."""
    for peer in peers:
        shutdown_peer(peer)


def submit_job(settings: Settings, job: Job | Mapping[str, Any]) -> Submission:
    """Submit a job (a `Job`, or a manifest as a mapping); idempotent by `metadata.jobId`. Keys that
    have no effect are logged as warnings."""
    read = job if isinstance(job, Job) else parse_mapping(job)
    for each in notices(read):
        logger.warning("job %s: %s", read.name, each)
    with connect(settings) as client:
        return client.submit(read)


def await_job_completion(settings: Settings, job: JobId, timeout_s: float | None = None) -> bool:
    """True when the job has completed, False when it was killed; TimeoutError otherwise."""
    with connect(settings) as client:
        return client.wait(job, timeout_s)


def kill_job(settings: Settings, job: JobId) -> None:
    """End a job; what it has in flight is dropped."""
    with connect(settings) as client:
        client.kill(job)


def suspend_job(settings: Settings, job: JobId) -> None:
    """Take its peers from a job until `resume_job`; what it has done stays."""
    with connect(settings) as client:
        client.suspend(job)


def resume_job(settings: Settings, job: JobId) -> None:
    """Let a suspended job ask for peers again."""
    with connect(settings) as client:
        client.resume(job)


def drain_job(settings: Settings, job: JobId) -> None:
    """Let a job read nothing new, complete what is pending, seal its outputs and complete."""
    with connect(settings) as client:
        client.drain(job)


def gc(settings: Settings) -> Collected:
    """Forget the jobs that have ended, and trim the log."""
    with connect(settings) as client:
        return client.gc()


def subscribe_to_log(
    settings: Settings,
    deliver: Callable[[Entry | Origin], None],
    after: Position = NO_POSITION,
) -> Subscription:
    """Call `deliver` with every entry after a position, in order, on a thread of the log."""
    log = ZooKeeperClientLog(settings)
    unsubscribe = log.subscribe(after, deliver)

    def close() -> None:
        unsubscribe()
        log.close()

    return Subscription(close)


def shutdown_subscription(subscription: Subscription) -> None:
    """Stop reading the log."""
    subscription.close()


def map_set_workflow_to_workflow(targets: Mapping[str, Iterable[str]]) -> tuple[Edge, ...]:
    """The workflow of a job that is more easily said as `{task: {children}}`."""
    return edges_of(targets)
