"""A user id without a name gets one, or the message says who must act."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onyx.errors import SettingsError
from onyx.spark.child import environment


def nameless(user: int) -> None:
    raise KeyError(f"getpwuid(): uid not found: {user}")


def test_a_user_with_a_name_needs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pwd.getpwuid", lambda user: ("me", user))
    assert environment.named_user(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_a_user_without_a_name_gets_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "libnss_wrapper.so"
    library.touch()
    monkeypatch.setattr("pwd.getpwuid", nameless)
    monkeypatch.setattr(environment, "LIBRARIES", (str(tmp_path),))
    monkeypatch.setenv("LD_PRELOAD", "other.so")
    found = environment.named_user(tmp_path)
    assert found["LD_PRELOAD"] == f"other.so {library}"
    last = Path(found["NSS_WRAPPER_PASSWD"]).read_text().splitlines()[-1]
    assert last.split(":")[2:4] == [str(os.getuid()), str(os.getgid())]


def test_without_the_library_it_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pwd.getpwuid", nameless)
    monkeypatch.setattr(environment, "LIBRARIES", (str(tmp_path),))
    with pytest.raises(SettingsError, match=r"has no name.*libnss-wrapper"):
        environment.named_user(tmp_path)
