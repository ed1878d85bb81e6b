"""Where commands look for the log: in the folder or at the ZooKeeper that is given, or that the
variables name, and nothing of ZooKeeper is imported for a folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.log.logs import served

from onyx.cli.options import READING_PATIENCE_S, LogPlace
from onyx.errors import SettingsError, Unavailable
from onyx.log.opening import open_log
from onyx.processes.surroundings import settings

READS = """
import json, sys
from onyx.client.connection import connect
from onyx.processes.surroundings import settings
with connect(settings()) as client:
    client.statuses()
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONYX_LOG_FOLDER", "/of/variable")
    monkeypatch.setenv("ONYX_ZOOKEEPER_ADDRESS", "of-variable:2181")


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({}, "/of/variable"),
        ({"log_folder": Path("/given")}, "/given"),
        ({"log_folder": Path("here")}, str(Path.cwd() / "here")),
        ({"zookeeper": "given:2181"}, "given:2181"),
    ],
)
def test_what_is_given_comes_before_what_variables_say(given: dict, place: str) -> None:
    assert settings(**given).log_place == place


def test_a_folder_and_an_address_are_too_much() -> None:
    with pytest.raises(SettingsError, match="give --log or --zookeeper"):
        settings("given:2181", log_folder=Path("/given"))


def test_for_a_log_in_a_folder_no_client_of_zookeeper_is_imported(tmp_path: Path) -> None:
    with served(tmp_path / "log"):
        done = subprocess.run(
            [sys.executable, "-c", READS],
            env={"ONYX_LOG_FOLDER": str(tmp_path / "log")},
            capture_output=True,
            text=True,
            check=True,
        )
    loaded = json.loads(done.stdout)

    assert "onyx.log.local.log" in loaded
    assert [each for each in loaded if each.startswith("kazoo") or "zookeeper" in each] == []


def test_a_command_that_only_reads_has_less_patience_unless_a_variable_says_how_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = LogPlace(log_folder=Path("/given"))
    assert place.settings().zookeeper.connect_timeout_s == 15.0
    assert place.to_read().zookeeper.connect_timeout_s == READING_PATIENCE_S
    monkeypatch.setenv("ONYX_ZOOKEEPER_CONNECT_TIMEOUT_S", "40")
    assert place.to_read().zookeeper.connect_timeout_s == 40.0


@pytest.mark.parametrize(
    ("there", "given", "tenancy"),
    [
        (["run"], None, "run"),
        (["run"], "other", "other"),
        (["default"], None, "default"),
        (["default", "run"], None, "default"),
        ([], None, "default"),
    ],
)
def test_who_only_reads_a_folder_takes_the_one_tenancy_that_is_there(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    there: list[str],
    given: str | None,
    tenancy: str,
) -> None:
    for each in there:
        (tmp_path / f"{each}.sqlite").touch()
    place = LogPlace(None, tmp_path, given)
    assert place.to_read().tenancy_id == tenancy
    said = f"of tenancy run, the only one in {tmp_path}\n" if tenancy == "run" else ""
    assert capsys.readouterr().err == said
    assert place.settings().tenancy_id == (given or "default"), "of who changes something"


@pytest.mark.parametrize("place", ["zookeeper", "folder"])
def test_where_no_log_is_it_is_said_how_to_give_another_place(place: str, tmp_path: Path) -> None:
    given = LogPlace("127.0.0.1:1") if place == "zookeeper" else LogPlace(None, tmp_path)
    found = given.settings()
    found = replace(found, zookeeper=replace(found.zookeeper, connect_timeout_s=0.1))
    with pytest.raises(Unavailable) as raised:
        open_log(found)
    for word in ("--zookeeper", "--log FOLDER", found.log_place):
        assert word in str(raised.value)
    kept = "read by `onyx events`, `bundle` and `console` with --kept FOLDER"
    assert (kept in str(raised.value)) is (place == "folder")
