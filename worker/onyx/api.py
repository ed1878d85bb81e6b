"""The Core API, with the names of the user guide: all that a user's program needs is here.

    env = start_env(settings)                        # a log in a folder, for tests and laptops
    group = start_peer_group(settings)               # join the cluster
    peers = start_peers(4, group)                    # offer four virtual peers
    job = submit_job(settings, parse_manifest(text, "job.yaml"))
    await_job_completion(settings, job.job)
    shutdown_peers(peers); shutdown_peer_group(group); shutdown_env(env)

`onyx.testing.with_test_env` does all of that around a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from onyx.client.appending import appender
from onyx.client.calls import (
    await_job_completion,
    drain_job,
    gc,
    kill_job,
    resume_job,
    set_options,
    submit_job,
    suspend_job,
)
from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.client.query import window_pages, window_state
from onyx.client.subscription import Subscription, shutdown_subscription, subscribe_to_log
from onyx.ids import JobId, PeerId
from onyx.keystate.selection import Inside, Selection
from onyx.log.interface import Origin
from onyx.log.server.environment import Env, shutdown_env, start_env
from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest
from onyx.model.workflow import Edge, edges_of
from onyx.peer.membership import PeerGroup, open_peer_group, start_peer_group
from onyx.replica.command import Entry
from onyx.replica.needs import peers_needed
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx.telemetry.catalog import Metric
from onyx.telemetry.interface import GroupMetrics, TaskMetrics

__all__ = [
    "Client",
    "Entry",
    "Env",
    "GroupMetrics",
    "Inside",
    "Job",
    "JobId",
    "Metric",
    "Origin",
    "Peer",
    "Replica",
    "Selection",
    "Settings",
    "Subscription",
    "TaskMetrics",
    "appender",
    "await_job_completion",
    "connect",
    "drain_job",
    "gc",
    "kill_job",
    "map_set_workflow_to_workflow",
    "open_peer_group",
    "parse_manifest",
    "peers_needed",
    "resume_job",
    "set_options",
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
    "window_pages",
    "window_state",
]


class Peer(msgspec.Struct, frozen=True):
    """A virtual peer that this process offers."""

    id: PeerId
    group: PeerGroup


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


def map_set_workflow_to_workflow(targets: Mapping[str, Iterable[str]]) -> tuple[Edge, ...]:
    """The workflow of a job that is more easily said as `{task: {children}}`."""
    return edges_of(targets)
