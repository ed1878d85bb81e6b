"""`with_test_env`: a whole cluster around a block of test code, always taken down again.

    with with_test_env(4, modules=["my_package.tasks"]) as env:
        assert env.run(manifest)

Real log, real peers: in one process, this one, so that breakpoints and what a test
replaces hold for functions too; or in worker processes, as on a cluster, which may be killed.
Started once for several tests it costs about a second.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from onyx import api
from onyx.client.statuses import JobStatus
from onyx.errors import Unavailable
from onyx.peer.membership import PeerGroup
from onyx.processes.child import worker_launcher
from onyx.processes.forking import Launcher
from onyx.processes.supervisor import Supervisor, dealt
from onyx.processes.surroundings import interrupted_by_sigterm
from onyx.rights import of_its_author

JOB_TIMEOUT_S = 60.0
JOIN_TIMEOUT_S = 60.0
_LOOK_S = 0.1


class TestEnv(msgspec.Struct, frozen=True):
    """What the block gets."""

    __test__ = False

    settings: api.Settings
    client: api.Client
    peers: PeerGroup | Supervisor
    """The group of this process, or what looks after worker processes."""

    @property
    def group(self) -> PeerGroup:
        """The group of this process; there is none when peers are in worker processes."""
        assert isinstance(self.peers, PeerGroup), "the peers are in worker processes"
        return self.peers

    @property
    def pids(self) -> list[int]:
        """The worker processes that run now; a test may kill one, and another takes its place."""
        return self.peers.pids if isinstance(self.peers, Supervisor) else []

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
    metrics: api.GroupMetrics | None = None,
    processes: int = 0,
) -> Iterator[TestEnv]:
    """Start a log and so many virtual peers; stop them when the block ends.

    Args:
        peers: virtual peers.
        modules: modules whose functions the jobs may name, beside those of the settings.
        settings: what else holds.
        metrics: what the group reports about itself goes here; worker processes report nothing.
        processes: worker processes that the peers are dealt to; 0: they are in this process.

    Raises:
        OnyxError: a module is wrong, or worker processes did not join.
    """
    with interrupted_by_sigterm(), ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="onyx-test-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        chosen = settings or api.Settings()
        named = tuple(dict.fromkeys((*chosen.modules, *modules)))
        # Whoever writes a test writes the code too.
        chosen = of_its_author(replace(chosen, modules=named))
        where = None if chosen.zookeeper_server.data_dir else folder
        env = api.start_env(chosen, where, durable=False)
        stack.callback(api.shutdown_env, env)
        if processes:
            workers = Supervisor(env.settings, dealt(peers, processes), _launcher())
            stack.callback(workers.stop)
            workers.start()
            client = stack.enter_context(api.connect(env.settings))
            _await(client, peers, workers)
            yield TestEnv(env.settings, client, workers)
        else:
            group = api.start_peer_group(env.settings, metrics)
            stack.callback(api.shutdown_peer_group, group)
            api.start_peers(peers, group)
            client = stack.enter_context(api.connect(env.settings))
            yield TestEnv(env.settings, client, group)


@cache
def _launcher() -> Launcher:
    """What starts worker processes: one for all environments, because it imports for a second."""
    made = worker_launcher(api.Settings())
    atexit.register(made.close)
    return made


def _await(client: api.Client, peers: int, workers: Supervisor) -> None:
    """Wait until all peers of the worker processes are members."""
    joined = threading.Event()

    def look(_: object, replica: Any) -> None:
        if len(replica.peers) == peers:
            joined.set()

    with client.follow(look, failed=joined.set):
        for _ in range(int(JOIN_TIMEOUT_S / _LOOK_S)):
            if joined.wait(_LOOK_S):
                return
            if workers.failure is not None:
                raise workers.failure
    raise Unavailable(f"worker processes have not joined within {JOIN_TIMEOUT_S:.0f} s")
