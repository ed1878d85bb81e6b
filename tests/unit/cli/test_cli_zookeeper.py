"""What `onyx zookeeper` does when its server has ended."""

from __future__ import annotations

from typing import Any, cast

import pytest

from onyx.cli.commands import zookeeper
from onyx.errors import SettingsError, Unavailable

FULL = "disk full: 0 of 9 bytes are free for its data"


class EndedServer:
    """A server that has ended; `disk` says what is found on its disk, question by question."""

    address = "zk:2181"
    exit_code = 10

    def __init__(self, *disk: str, refusals: int = 0) -> None:
        self._disk = list(disk)
        self._refusals = refusals
        self.starts = 0

    def full_disk(self) -> str:
        return self._disk.pop(0) if self._disk else ""

    def kill(self) -> None:
        """It has ended already."""

    def launch(self) -> None:
        self.starts += 1
        if self.starts <= self._refusals:
            raise SettingsError("zoo.cfg cannot be written")


class AskedToEnd:
    """An event that is set at this question."""

    def __init__(self, at: int = 1_000) -> None:
        self._left = at

    def wait(self, timeout_s: float) -> bool:
        self._left -= 1
        return self._left <= 0


def started_again(server: EndedServer, stop: AskedToEnd | None = None) -> None:
    zookeeper._start_again(cast(Any, server), cast(Any, stop or AskedToEnd()))


def test_one_that_ended_on_a_full_disk_starts_when_there_is_room(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = EndedServer(FULL, FULL, FULL, "")
    started_again(server)
    assert server.starts == 1
    assert capsys.readouterr().out == (
        f"ZooKeeper at zk:2181 has ended with code 10: {FULL}; it starts again when there is room\n"
    )


def test_it_is_tried_after_a_while_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "FULL_WAIT_S", 0.0)
    server = EndedServer(FULL, FULL)
    started_again(server)
    assert server.starts == 1


def test_it_waits_on_when_not_even_its_configuration_can_be_written() -> None:
    server = EndedServer(FULL, "", FULL, FULL, "", refusals=1)
    started_again(server)
    assert server.starts == 2


def test_what_is_wrong_without_a_full_disk_is_raised() -> None:
    with pytest.raises(SettingsError):
        started_again(EndedServer(FULL, "", "", refusals=1))
    with pytest.raises(Unavailable, match="has ended with code 10: see above"):
        started_again(EndedServer())


def test_who_is_asked_to_end_meanwhile_starts_nothing() -> None:
    server = EndedServer(*[FULL] * 9)
    started_again(server, AskedToEnd(at=3))
    assert server.starts == 0
