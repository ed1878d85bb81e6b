"""What the data folder of a ZooKeeper server holds, by its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from onyx.errors import SettingsError
from onyx.log.server.config import Ensemble
from onyx.log.server.data_folder import (
    Holding,
    allow_empty,
    claim,
    forget_no_epoch,
    found,
    read_holding,
    serves,
)

THIRD = Ensemble(3, ("a:1:2", "b:1:2", "c:1:2"))


def write_data(folder: Path) -> None:
    (folder / "version-2").mkdir()
    (folder / "version-2" / "snapshot.0").write_bytes(b"x")


def files(folder: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in folder.iterdir() if each.is_file()}


def test_a_server_of_a_new_ensemble_from_the_beginning(tmp_path: Path) -> None:
    claim(tmp_path, THIRD)
    assert read_holding(tmp_path) is Holding.NOTHING
    write_data(tmp_path)
    claim(tmp_path, THIRD)
    assert read_holding(tmp_path) is Holding.BEGUN
    serves(tmp_path, 3)
    assert read_holding(tmp_path) is Holding.SHARED
    claim(tmp_path, THIRD)
    assert files(tmp_path) == {"myid": "3\n", "ensemble": "3\n"}


def test_a_server_that_stood_alone_founds_an_ensemble(tmp_path: Path) -> None:
    claim(tmp_path, None)
    write_data(tmp_path)
    claim(tmp_path, None)
    claim(tmp_path, THIRD)
    assert read_holding(tmp_path) is Holding.ALONE
    claim(tmp_path, THIRD)
    assert read_holding(tmp_path) is Holding.ALONE, "until it has been let"
    found(tmp_path, 3)
    assert read_holding(tmp_path) is Holding.FOUNDING
    serves(tmp_path, 3)
    assert read_holding(tmp_path) is Holding.SHARED


def test_a_record_without_the_data_counts_for_nothing(tmp_path: Path) -> None:
    claim(tmp_path, THIRD)
    serves(tmp_path, 3)
    assert read_holding(tmp_path) is Holding.NOTHING


@pytest.mark.parametrize("record", [None, "3", "1 to 3"])
def test_one_of_three_is_not_left_alone(tmp_path: Path, record: str | None) -> None:
    claim(tmp_path, THIRD)
    write_data(tmp_path)
    if record:
        (tmp_path / "ensemble").write_text(f"{record}\n")
    with pytest.raises(SettingsError, match=r"one of 3 ZooKeeper servers.*write 1 into"):
        claim(tmp_path, None)


def test_a_person_may_decide_to_go_on_with_what_one_server_has(tmp_path: Path) -> None:
    claim(tmp_path, THIRD)
    write_data(tmp_path)
    serves(tmp_path, 3)
    (tmp_path / "ensemble").write_text("1")
    claim(tmp_path, None)
    claim(tmp_path, THIRD)
    assert read_holding(tmp_path) is Holding.ALONE


def test_a_record_that_says_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "ensemble").write_text("three")
    with pytest.raises(SettingsError, match="holds 'three' and not the number of servers"):
        claim(tmp_path, THIRD)


def test_leave_to_vote_while_empty_does_not_outlast_the_start_that_it_was_for(
    tmp_path: Path,
) -> None:
    allow_empty(tmp_path, allowed=True)
    assert (tmp_path / "initialize").exists()
    allow_empty(tmp_path, allowed=False)
    assert not (tmp_path / "initialize").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        ({"currentEpoch": "-1", "acceptedEpoch": "-1"}, {}),
        ({"currentEpoch": "-1\n", "acceptedEpoch": "4"}, {"acceptedEpoch": "4"}),
        ({"currentEpoch": "0", "acceptedEpoch": "1"}, {"currentEpoch": "0", "acceptedEpoch": "1"}),
        (
            {"currentEpoch": "", "acceptedEpoch": "\xff"},
            {"currentEpoch": "", "acceptedEpoch": "\xff"},
        ),
    ],
)
def test_only_an_epoch_that_says_that_there_is_none_is_forgotten(
    tmp_path: Path, before: dict[str, str], after: dict[str, str]
) -> None:
    forget_no_epoch(tmp_path)
    write_data(tmp_path)
    for name, text in before.items():
        (tmp_path / "version-2" / name).write_bytes(text.encode("latin-1"))
    forget_no_epoch(tmp_path)
    (tmp_path / "version-2" / "snapshot.0").unlink()
    left = (tmp_path / "version-2").iterdir()
    assert {each.name: each.read_bytes().decode("latin-1") for each in left} == after
