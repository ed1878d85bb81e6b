"""The configuration of a ZooKeeper server, and its place in the ensemble."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from onyx.errors import SettingsError
from onyx.log.server.config import Ensemble, ServerConfig, ensemble_of
from onyx.settings import ZooKeeperServerSettings

HOSTS = ("zk-0.zk", "zk-1.zk", "zk-2.zk")
THREE = ZooKeeperServerSettings(servers=HOSTS)


def lines(**changes: object) -> dict[str, str]:
    config = ServerConfig(Path("/data"), "0.0.0.0", 2181, 500)
    text = replace(config, **changes).text()
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize(
    ("name", "id"), [("zk-0", 1), ("zk-2", 3), ("zk-1.zk.default.svc.cluster.local", 2)]
)
def test_a_server_is_known_by_the_number_in_its_hosts_name(name: str, id: int) -> None:
    ensemble = ensemble_of(THREE, name)

    places = tuple(f"{host}:2888:3888" for host in HOSTS)
    assert ensemble == Ensemble(id, places, tuple((host, 4888) for host in HOSTS))


def test_the_id_and_the_ports_of_each_server_can_be_given() -> None:
    settings = ZooKeeperServerSettings(
        servers=("a", "b:1:2", "c:3:4:5"), id=2, quorum_port=10, election_port=20, formation_port=30
    )

    assert ensemble_of(settings, "laptop") == Ensemble(
        2, ("a:10:20", "b:1:2", "c:3:4"), (("a", 30), ("b", 30), ("c", 5))
    )


@pytest.mark.parametrize("servers", [(), ("zk-0.zk",)])
def test_one_server_stands_alone_wherever_it_runs(servers: tuple[str, ...]) -> None:
    assert ensemble_of(ZooKeeperServerSettings(servers=servers), "laptop") is None
    assert not [key for key in lines() if key.startswith(("server.", "initLimit"))]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (ZooKeeperServerSettings(servers=("a", "b")), "names 2 servers: use 1, 3 or 5"),
        (ZooKeeperServerSettings(servers=("a", "b", "c:1"), id=1), "'c:1' is no server"),
        (ZooKeeperServerSettings(servers=("a", "b", "c\nx=y"), id=1), "is no server"),
        (ZooKeeperServerSettings(servers=HOSTS, id=4), "this is ZooKeeper server 4"),
        (ZooKeeperServerSettings(servers=("a:1:2:3:4", "b", "c"), id=1), "is no server"),
        (ZooKeeperServerSettings(servers=HOSTS), "set ONYX_ZOOKEEPER_SERVER_ID, from 1"),
    ],
)
def test_what_makes_no_ensemble_is_told(settings: ZooKeeperServerSettings, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        ensemble_of(settings, "laptop")


def test_a_second_server_by_its_name_is_not_left_alone() -> None:
    """As when somebody scales the StatefulSet of one server by hand."""
    one = ZooKeeperServerSettings(servers=HOSTS[:1])
    assert ensemble_of(one, "zk-0") is None
    with pytest.raises(SettingsError, match=r"server 2 by its host's name 'zk-1'"):
        ensemble_of(one, "zk-1")


def test_the_file_names_every_server_and_where_this_one_listens() -> None:
    found = lines(ensemble=ensemble_of(THREE, "zk-1"))

    assert [found[f"server.{id}"] for id in (1, 2, 3)] == [f"{host}:2888:3888" for host in HOSTS]
    assert (found["clientPortAddress"], found["quorumListenOnAllIPs"]) == ("0.0.0.0", "true")
    assert (found["tickTime"], found["initLimit"], found["syncLimit"]) == ("500", "40", "10")
    assert found["admin.enableServer"] == "false"
