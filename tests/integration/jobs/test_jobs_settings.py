"""Settings that a user's own program gives count as those of `onyx worker` and `onyx zookeeper`."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.jobs.yaml_jobs import FUNCTIONS, channel, manifest
from tests.support.servers.ports import free_port

from onyx import api
from onyx.errors import SettingsError, Unavailable
from onyx.settings import Settings, TelemetrySettings, ZooKeeperServerSettings, ZooKeeperSettings
from onyx.telemetry import logs
from onyx.testing import with_test_env

SEGMENTS = 12


@pytest.fixture
def process_log() -> Iterator[logging.Logger]:
    """The logger of Onyx, which is afterwards as it was."""
    ours = logging.getLogger("onyx")
    handlers, level, followed = ours.handlers[:], ours.level, set(logs._followed)
    yield ours
    for each in set(ours.handlers) - set(handlers):
        ours.removeHandler(each)
        each.close()
    ours.setLevel(level)
    logs._followed.clear()
    logs._followed.update(followed)


@pytest.mark.server
def test_a_group_of_ones_own_follows_modules_metrics_and_log_of_its_settings(
    tmp_path: Path, process_log: logging.Logger
) -> None:
    file, target = tmp_path / "onyx.log", channel()
    telemetry = TelemetrySettings(metrics_port=0, log_file=str(file))
    settings = Settings(modules=(FUNCTIONS,), telemetry=telemetry)
    spec = f"""
        workflow: [[read, work], [work, write]]
        catalog:
          - {{name: read, type: input, plugin: generator, options: {{segments: {SEGMENTS}}}}}
          - {{name: work, type: function, fn: "f:same"}}
          - {{name: write, type: output, plugin: channel, options: {{channel: {target.name}}}}}
    """
    with with_test_env(3, settings=settings) as env:
        assert env.run(manifest(spec)).state == "completed"
        port = env.group.metrics_port
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            metrics = answer.read().decode()
        sites = [dict(site) for site in env.client.replica().peer_sites.values()]
    assert f'task="work"}} {float(SEGMENTS)}' in metrics
    assert {site["metrics"] for site in sites} == {f"127.0.0.1:{port}"}
    assert "joined tenancy" in file.read_text()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/livez")


@pytest.mark.server
def test_an_environment_of_ones_own_has_the_port_and_folder_of_its_settings(
    tmp_path: Path,
) -> None:
    port = free_port()
    server = ZooKeeperServerSettings(port=port, data_dir=str(tmp_path / "data"), heap_mib=64)
    env = api.start_env(Settings(zookeeper_server=server))
    try:
        assert env.settings.zookeeper.address == f"127.0.0.1:{port}"
        assert any((tmp_path / "data").iterdir())
        with api.connect(env.settings) as client:
            assert client.replica().jobs == ()
    finally:
        api.shutdown_env(env)


def test_an_environment_of_ones_own_is_a_log_in_a_folder(tmp_path: Path) -> None:
    env = api.start_env(Settings(), tmp_path / "log")
    try:
        assert env.settings.log.folder == str(tmp_path / "log")
        assert env.settings.state.url == str(tmp_path / "log" / "state")
        with api.connect(env.settings) as client:
            assert client.replica().jobs == ()
    finally:
        api.shutdown_env(env)
    hasty = replace(env.settings.zookeeper, connect_timeout_s=0.1)
    with pytest.raises(Unavailable, match="onyx log-server"):
        api.connect(replace(env.settings, zookeeper=hasty))


def test_an_environment_starts_no_ensemble() -> None:
    server = ZooKeeperServerSettings(servers=("a", "b", "c"))
    with pytest.raises(SettingsError, match=r"zookeeper_server\.servers names 3 servers"):
        api.start_env(Settings(zookeeper_server=server))


def test_a_metrics_port_that_is_taken_is_refused_before_the_group_starts() -> None:
    telemetry = TelemetrySettings(metrics_port=0)
    nowhere = ZooKeeperSettings(address="127.0.0.1:1", connect_timeout_s=0.1)
    group = api.open_peer_group(Settings(telemetry=telemetry, zookeeper=nowhere))
    try:
        taken = TelemetrySettings(metrics_port=group.metrics_port)
        with pytest.raises(Unavailable, match="metrics_port"):
            api.open_peer_group(Settings(telemetry=taken, zookeeper=nowhere))
    finally:
        group.stop()


def test_a_log_file_is_added_once_and_leaves_the_log_of_the_process_alone(
    tmp_path: Path, process_log: logging.Logger
) -> None:
    before = logging.getLogger().handlers[:]
    settings = TelemetrySettings(log_file=str(tmp_path / "log"), log_format="json")
    for _ in range(2):
        logs.follow_settings(settings)
    logging.getLogger("onyx.peer").info("hello")
    assert (tmp_path / "log").read_text().count('"event": "hello"') == 1
    assert logging.getLogger().handlers == before


def test_settings_that_say_nothing_of_the_log_change_nothing(process_log: logging.Logger) -> None:
    before = process_log.level, process_log.handlers[:]
    logs.follow_settings(TelemetrySettings())
    assert (process_log.level, process_log.handlers) == before


@pytest.mark.parametrize("given", [{"log_level": "LOUD"}, {"log_format": "xml"}])
def test_a_log_that_cannot_be_followed_is_refused_by_its_setting(given: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=next(iter(given))):
        api.open_peer_group(Settings(telemetry=TelemetrySettings(**given)))
