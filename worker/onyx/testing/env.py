"""`with_test_env`: a whole cluster around a block of test code, always taken down again.

    with with_test_env(4, modules=["my_package.tasks"]) as env:
        assert env.run(manifest)

Real ZooKeeper, real log, real peers, in one process. Started once for several tests it costs about
a second.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onyx import api
from onyx.client.statuses import JobStatus
from onyx.peer.membership import PeerGroup
from onyx.telemetry.interface import NULL_GROUP, GroupMetrics

JOB_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class TestEnv:
    """What the block gets."""

    __test__ = False

    settings: api.Settings
    group: PeerGroup
    client: api.Client

    def submit(self, job: api.Job | Mapping[str, Any]) -> api.JobId:
        return api.submit_job(self.settings, job).job

    def run(self, job: api.Job | Mapping[str, Any], timeout_s: float = JOB_TIMEOUT_S) -> JobStatus:
        """Submit a job and wait until it has ended."""
        submitted = self.submit(job)
        self.client.wait(submitted, timeout_s)
        return self.client.status(submitted)


@contextmanager
def with_test_env(
    peers: int,
    modules: Sequence[str] = (),
    settings: api.Settings | None = None,
    metrics: GroupMetrics = NULL_GROUP,
) -> Iterator[TestEnv]:
    """Start ZooKeeper, a peer group and so many virtual peers; stop them when the block ends.

    Args:
        peers: virtual peers.
        modules: modules whose functions the jobs may name.
        settings: what else holds.
        metrics: what the group reports about itself goes here.
    """
    folder = Path(tempfile.mkdtemp(prefix="onyx-test-"))
    chosen = dataclasses.replace(settings or api.Settings(), modules=tuple(modules))
    env = api.start_env(chosen, folder)
    try:
        group = api.start_peer_group(env.settings, metrics)
        try:
            api.start_peers(peers, group)
            with api.connect(env.settings) as client:
                yield TestEnv(env.settings, group, client)
        finally:
            api.shutdown_peer_group(group)
    finally:
        api.shutdown_env(env)
        shutil.rmtree(folder, ignore_errors=True)
