"""Three ZooKeeper servers: the leader may die at any time, and the job does not notice. Empty
servers never decide over one that has the data, whoever is away when they start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.jobs.chaos_files import ChaosFiles
from tests.support.log.logs import settings_for
from tests.support.log.markers import marker
from tests.support.servers.cluster import Cluster
from tests.support.servers.ensemble import Ensemble, RunningEnsemble, Server

from onyx.ids import NO_POSITION
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.processes.ends import ExitCode
from onyx.settings import Settings

pytestmark = pytest.mark.server

MakeCluster = Callable[..., Cluster]


@pytest.mark.slow
def test_a_job_goes_on_when_the_leader_of_zookeeper_dies_twice(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    files = ChaosFiles(tmp_path, files=4, records=15_000)
    with (
        RunningEnsemble(tmp_path / "zookeeper") as ensemble,
        make_cluster(ensemble.address, session_timeout_s=6.0) as cluster,
    ):
        cluster.start_workers(3, peers=3)
        job = cluster.submit(files.manifest())
        version = cluster.await_ready(job)
        groups = cluster.replica.groups

        for released in 5_000, 10_000:
            files.open_gate(released)
            files.await_some()
            leader = ensemble.leader()
            leader.kill()
            files.await_reflected(released)
            ensemble.await_ready([each for each in ensemble.servers if each is not leader])
            leader.start()
            ensemble.await_ready(ensemble.servers)

        assert cluster.replica.run(job).allocation_version == version
        files.open_gate()
        cluster.await_completed(job)
        assert cluster.replica.groups == groups
        assert cluster.entries_named("group-leave-cluster") == []
        assert [each.stop() for each in ensemble.servers] == [0, 0, 0]

    files.check_complete()


@pytest.mark.slow
def test_a_server_that_stood_alone_grows_to_three_with_its_job(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """The new servers come first, as in a StatefulSet, and wait for the one that has the data."""
    files = ChaosFiles(tmp_path, files=4, records=10_000)
    with Ensemble(tmp_path / "zookeeper") as ensemble:
        first, second, third = ensemble.servers
        first.port = ensemble.alone.port
        ensemble.start(ensemble.alone)
        addresses = ",".join(each.address for each in (ensemble.alone, second, third))
        with make_cluster(addresses, session_timeout_s=20.0) as cluster:
            workers = cluster.start_workers(2, peers=3)
            job = cluster.submit(files.manifest())
            cluster.await_ready(job)
            files.open_gate(5_000)
            files.await_some()

            second.start()
            third.start()
            for new in second, third:
                ensemble.await_obstacle(new, "waiting for the other ZooKeeper servers")
            files.await_reflected(5_000)
            assert ensemble.alone.stop() == 0
            ensemble.start(first)
            ensemble.await_ready(ensemble.servers)

            ensemble.leader().kill()
            files.open_gate()
            cluster.await_completed(job)
            assert all(worker.running for worker in workers)
    files.check_complete()


@pytest.mark.slow
def test_empty_servers_do_not_elect_themselves_while_the_one_with_the_data_is_away(
    tmp_path: Path,
) -> None:
    with Ensemble(tmp_path / "zookeeper") as ensemble:
        first, second, third = ensemble.servers
        ensemble.start(ensemble.alone)
        settings = settings_for(ensemble.alone.address)
        append(settings, "kept")
        ensemble.alone.stop()

        for new in second, third:
            new.start()
        for new in second, third:
            ensemble.await_obstacle(new, "server 1: 127.0.0.1")
        ensemble.start(first)
        ensemble.await_ready(ensemble.servers)

        assert names(settings, first, second, third) == [["kept"]] * 3


@pytest.mark.slow
def test_a_server_that_lost_its_volume_receives_the_data_from_the_others(tmp_path: Path) -> None:
    with RunningEnsemble(tmp_path / "zookeeper") as ensemble:
        settings = settings_for(ensemble.servers[0].address)
        append(settings, "a")
        ensemble.servers[1].lose_volume()
        append(settings, "b")
        ensemble.start(ensemble.servers[1])
        assert names(settings, *ensemble.servers) == [["a", "b"]] * 3

        ensemble.servers[0].lose_volume()
        ensemble.start(ensemble.servers[0])
        assert names(settings, *ensemble.servers) == [["a", "b"]] * 3


@pytest.mark.slow
def test_a_majority_that_lost_its_volumes_does_not_outvote_the_server_that_has_the_data(
    tmp_path: Path,
) -> None:
    with RunningEnsemble(tmp_path / "zookeeper") as ensemble:
        first, second, third = ensemble.servers
        settings = settings_for(first.address)
        third.stop()  # without it nothing is committed that the first has not on its disk
        append(settings, "kept")
        first.kill()
        for lost in second, third:
            lost.lose_volume()
            lost.start()
        for lost in second, third:
            ensemble.await_obstacle(lost, "one of them may hold the data")
        first.start()
        for each in ensemble.servers:
            ensemble.await_obstacle(each, "no leader is elected")
        for lost in second, third:
            ensemble.await_output(lost, "Unexpected empty data tree")

        for each in ensemble.servers:
            each.stop()
        (first.folder / "ensemble").write_text("1")  # as the documentation says
        ensemble.start()
        assert names(settings, *ensemble.servers) == [["kept"]] * 3


@pytest.mark.slow
def test_a_server_that_died_when_it_had_just_received_the_data_starts_again(
    tmp_path: Path,
) -> None:
    """ZooKeeper writes the snapshot of a leader first and the epoch after it."""
    with RunningEnsemble(tmp_path / "zookeeper") as ensemble:
        first = ensemble.servers[0]
        settings = settings_for(first.address)
        append(settings, "kept")
        first.lose_volume()
        ensemble.start(first)
        first.kill()
        (first.folder / "ensemble").unlink(missing_ok=True)
        (first.folder / "version-2" / "currentEpoch").write_text("-1")
        ensemble.start(first)
        assert names(settings, *ensemble.servers) == [["kept"]] * 3


@pytest.mark.slow
def test_one_of_three_servers_refuses_to_stand_alone(tmp_path: Path) -> None:
    with RunningEnsemble(tmp_path / "zookeeper") as ensemble:
        for each in ensemble.servers:
            each.stop()
        ensemble.alone.start()
        assert ensemble.alone.wait() == ExitCode.INVALID
        assert "holds the data of one of 3 ZooKeeper servers" in ensemble.alone.output()


def append(settings: Settings, name: str) -> None:
    with closing(ZooKeeperClientLog(settings)) as log:
        log.append(marker(name))


def names(settings: Settings, *servers: Server) -> list[list[str]]:
    """What each of these servers has in the log."""
    found = []
    for server in servers:
        zookeeper = replace(settings.zookeeper, address=server.address)
        with closing(ZooKeeperClientLog(replace(settings, zookeeper=zookeeper))) as log:
            found.append([entry.command.id for entry in log.read(NO_POSITION)])
    return found
