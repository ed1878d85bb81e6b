"""The log of a run, kept in a folder: nobody else has it at the same time, and it must be there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onyx.cli import local_server as module
from onyx.cli.local_server import kept_server, local_server
from onyx.errors import OnyxError, SettingsError, UserError
from onyx.settings import Settings


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are what is tested; a server takes a second."""

    @contextmanager
    def launched(_: Settings, folder: Path) -> Iterator[Any]:
        yield folder

    monkeypatch.setattr(module, "_launched", launched)


def kept(folder: Path) -> Path:
    (folder / "version-2").mkdir(parents=True)
    (folder / "version-2" / "log.1").touch()
    return folder


def test_a_log_that_is_not_kept_goes_with_its_run() -> None:
    with local_server(Settings()) as server:
        assert server.exists()
    assert not server.exists()


def test_a_kept_log_stays_and_is_found_again(tmp_path: Path) -> None:
    with local_server(Settings(), tmp_path / "new" / "log") as server:
        kept(server)
    with kept_server(Settings(), tmp_path / "new" / "log") as again:
        assert again == server
    assert (server / "version-2" / "log.1").exists()


def test_a_log_in_use_is_refused_until_its_user_has_ended(tmp_path: Path) -> None:
    folder = kept(tmp_path / "log")
    for opened in (local_server, kept_server):
        with (
            local_server(Settings(), folder),
            pytest.raises(SettingsError, match="in use: end that `onyx run`"),
            opened(Settings(), folder),
        ):
            raise AssertionError
    with local_server(Settings(), folder):
        pass


@pytest.mark.parametrize("what", ["nothing", "folder", "file"])
def test_without_a_kept_log_it_is_said_how_to_keep_one(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "log"
    if what == "folder":
        folder.mkdir()
    if what == "file":
        folder.touch()
    with pytest.raises(UserError, match="onyx run --keep"), kept_server(Settings(), folder):
        raise AssertionError


def test_a_log_is_not_kept_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with (
        pytest.raises(OnyxError, match="no log can be kept in"),
        local_server(Settings(), tmp_path / "log"),
    ):
        raise AssertionError
