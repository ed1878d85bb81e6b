"""When a server makes an archive of its classes, when it uses one, and whose that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from onyx.java import Java
from onyx.log.server.java_command import ClassArchive


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "onyx"


def java(folder: Path, version: int = 17, own_classes: bool = True) -> Java:
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    if not (folder / "bin" / "java").exists():
        (folder / "bin" / "java").touch()
    if own_classes:
        (folder / "lib" / "server").mkdir(parents=True, exist_ok=True)
        (folder / "lib" / "server" / "classes.jsa").touch()
    return Java(folder, version, frozenset())


def jar(folder: Path, content: str = "") -> Path:
    path = folder / "a.jar"
    path.write_text(content)
    return path


def test_the_first_server_makes_it_and_the_next_one_uses_it(tmp_path: Path, cache: Path) -> None:
    first = ClassArchive.of(java(tmp_path), [jar(tmp_path)])
    assert first is not None
    assert first.missing
    made = first.flags()[-1].removeprefix("-XX:ArchiveClassesAtExit=")
    Path(made).write_text("classes")
    first.keep()

    second = ClassArchive.of(java(tmp_path), [tmp_path / "a.jar"])
    assert second is not None
    assert not second.missing
    (kept,) = cache.iterdir()
    assert second.flags()[-1] == f"-XX:SharedArchiveFile={kept}"
    assert kept.read_text() == "classes"


def test_one_that_could_not_be_made_is_not_tried_again(tmp_path: Path, cache: Path) -> None:
    first = ClassArchive.of(java(tmp_path), [jar(tmp_path)])
    assert first is not None
    first.keep()
    second = ClassArchive.of(java(tmp_path), [tmp_path / "a.jar"])
    assert second is not None
    assert (second.missing, second.flags()) == (False, [])
    assert len([*cache.iterdir()]) == 1


def test_other_jars_have_another_one(tmp_path: Path, cache: Path) -> None:
    first = ClassArchive.of(java(tmp_path), [jar(tmp_path)])
    assert first is not None
    first.keep()
    second = ClassArchive.of(java(tmp_path), [jar(tmp_path, "of a newer version")])
    assert second is not None
    assert second.missing


@pytest.mark.parametrize(("version", "own_classes"), [(11, True), (17, False)])
def test_a_java_that_cannot_make_one_goes_without(
    tmp_path: Path, cache: Path, version: int, own_classes: bool
) -> None:
    assert ClassArchive.of(java(tmp_path, version, own_classes), [jar(tmp_path)]) is None


def test_a_folder_that_others_may_write_is_not_used(tmp_path: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert ClassArchive.of(java(tmp_path), [jar(tmp_path)]) is None


def test_without_a_folder_for_caches_it_goes_without(tmp_path: Path, cache: Path) -> None:
    cache.parent.touch()
    assert ClassArchive.of(java(tmp_path), [jar(tmp_path)]) is None
