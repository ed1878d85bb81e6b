"""The log of a run, kept in a folder: nobody else has it at the same time, and it must be there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.log.markers import marker

from onyx.cli import local_server as module
from onyx.cli.commands.run import run
from onyx.cli.local_server import TENANCY, KeptPlace, local_log
from onyx.errors import OnyxError, SettingsError, UserError
from onyx.ids import NO_POSITION
from onyx.log.opening import open_log
from onyx.settings import Settings


class NoLauncher:
    """Folders and logs are what is tested; what starts workers takes a second."""

    def __init__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "worker_launcher", NoLauncher)


@contextmanager
def begun(folder: Path | None) -> Iterator[Settings]:
    with local_log(Settings().of(TENANCY), folder) as (led, _):
        yield led


@contextmanager
def looked_at(folder: Path | None) -> Iterator[Settings]:
    with KeptPlace(kept=folder).opened() as led:
        yield led


def noted(led: Settings) -> list[str]:
    log = open_log(led)
    try:
        return [each.command.id for each in log.read(NO_POSITION)]
    finally:
        log.close()


def note(led: Settings, name: str) -> None:
    log = open_log(led)
    log.append(marker(name))
    log.close()


def test_a_log_that_is_not_kept_goes_with_its_run() -> None:
    with begun(None) as led:
        note(led, "a")
        assert Path(led.log.folder).is_dir()
        assert Path(led.state.url).parent == Path(led.log.folder)
    assert not Path(led.log.folder).exists()


def test_a_kept_log_stays_and_is_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "log"
    with begun(folder) as led:
        note(led, "a")
    with looked_at(folder) as led:
        assert noted(led) == ["a"]
    with begun(folder) as led:
        note(led, "b")
        assert noted(led) == ["a", "b"]


def test_a_log_in_use_is_refused_until_its_user_has_ended(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with begun(folder) as led:
        note(led, "a")
        for opened in (begun, looked_at):
            with pytest.raises(SettingsError, match="in use: end that `onyx run`"), opened(folder):
                raise AssertionError
    with begun(folder):
        pass


@pytest.mark.parametrize("what", ["nothing", "folder", "file"])
def test_without_a_kept_log_it_is_said_how_to_keep_one(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "log"
    if what == "folder":
        folder.mkdir()
    if what == "file":
        folder.touch()
    with pytest.raises(UserError, match="onyx run --keep"), looked_at(folder):
        raise AssertionError


def test_a_log_is_not_kept_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with pytest.raises(OnyxError, match="no log can be kept in"), begun(tmp_path / "log"):
        raise AssertionError


@pytest.mark.parametrize("other", [("host:2181", None), (None, Path("other"))])
def test_a_kept_log_and_another_one_are_too_much(
    tmp_path: Path, other: tuple[str | None, Path | None]
) -> None:
    place = KeptPlace(*other, kept=tmp_path)
    with pytest.raises(SettingsError, match="give --"), place.opened():
        raise AssertionError


def test_a_run_resumes_nothing_where_nothing_is_kept_and_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="new has no log of run: `onyx run --keep"):
        run(tmp_path / "job.yaml", keep=tmp_path / "new", resume=True)
    assert list(tmp_path.iterdir()) == []


def test_a_job_goes_on_with_what_it_has_written(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--replace would remove"):
        run(tmp_path / "job.yaml", keep=tmp_path / "log", resume=True, replace=True)
