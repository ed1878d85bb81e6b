"""The log in a folder under faults: lost answers, a server that starts again, processes that end,
clients that are silent, do not read or say nonsense, a full disk, a file that is damaged."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.log.logs import Inbox, pulse_gone, served, settings_of
from tests.support.log.markers import marker
from tests.support.patience import WAIT_S

from onyx.codec.entries import encode_entry
from onyx.errors import Fenced, LogReplaced, SettingsError, StateError, Unavailable, UserError
from onyx.ids import NO_POSITION, GroupId, Position
from onyx.log.interface import Session
from onyx.log.local import requests as to
from onyx.log.local.connection import AnswerLost
from onyx.log.local.frames import PROTOCOL, LogQuestion, framed, reach
from onyx.log.local.log import LocalClientLog, LocalGroupLog
from onyx.log.local.server import OWED_BYTES_MAX, LocalLogServer, ServerLink
from onyx.log.local.store import ENDED, Pulse, TenancyFile
from onyx.settings import Settings, ZooKeeperSettings

HASTY = ZooKeeperSettings(connect_timeout_s=0.1)
HOLDS_A_PULSE = """
import sys, time
from onyx.ids import GroupId
from onyx.log.local.log import LocalGroupLog
from onyx.settings import from_environment
log = LocalGroupLog(from_environment({"ONYX_LOG_FOLDER": sys.argv[1], "ONYX_TENANCY_ID": "test"}),
                    GroupId("other"))
log.register_pulse()
print("there", flush=True)
time.sleep(600)
"""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


def open_group(stack: ExitStack, settings: Settings, name: str) -> LocalGroupLog:
    log = stack.enter_context(closing(LocalGroupLog(settings, GroupId(name))))
    log.register_pulse()
    return log


def open_client(stack: ExitStack, settings: Settings) -> LocalClientLog:
    return stack.enter_context(closing(LocalClientLog(settings)))


def follow(log: Any) -> Inbox:
    inbox = Inbox()
    log.subscribe(NO_POSITION, inbox)
    return inbox


def stranger(stack: ExitStack, folder: Path, *requests: to.AnyRequest) -> socket.socket:
    """A connection that does only what the test does with it, after these requests."""
    made = stack.enter_context(closing(reach(folder, WAIT_S)))
    made.settimeout(WAIT_S)
    for number, request in enumerate(requests):
        made.sendall(framed(LogQuestion(number, request)))
        assert made.recv(10_000)
    return made


def hello(timeout_s: float = 6.0, pulse: GroupId | None = None) -> to.Greeting:
    return to.Greeting(PROTOCOL, "test", 1, timeout_s, pulse)


def lose_answers(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Connections break when they are owed an answer, which has been written down."""
    lost, flush = [], ServerLink.flush

    def losing(link: ServerLink) -> int:
        if link._owed and link.store is not None and len(lost) < times:
            lost.append(len(link._owed))
            raise ConnectionResetError
        return flush(link)

    monkeypatch.setattr(ServerLink, "flush", losing)
    return lost


def test_a_client_whose_answer_was_lost_has_written_once(folder, stack, monkeypatch):
    stack.enter_context(served(folder))
    client = open_client(stack, settings_of(folder))
    lost = lose_answers(monkeypatch, times=1)
    assert client.append(marker("a")) == 0
    assert len(lost) == 1
    assert client.append(marker("a")) == 1, "another one is another one"
    assert [each.position for each in client.read(NO_POSITION)] == [0, 1]


def test_a_group_whose_answers_were_lost_goes_on_and_each_entry_has_effect_once(
    folder, stack, monkeypatch
):
    stack.enter_context(served(folder))
    settings = settings_of(folder)
    group, client = open_group(stack, settings, "g1"), open_client(stack, settings)
    lost = lose_answers(monkeypatch, times=5)
    for number in range(100):
        group.append([marker("n", number=number)])
    inbox, last, effects = follow(client), 0, []
    while last < 100:
        (entry,) = inbox.take()
        if entry.sequence > last:
            last = entry.sequence
            effects.append(entry.command.peer_site["number"])
    assert effects == list(range(100))
    assert len(lost) == 5


def test_an_entry_that_is_read_after_it_was_asked_again_is_there_once(folder, stack, caplog):
    stack.enter_context(served(folder))
    client = open_client(stack, settings_of(folder))
    entry = to.AppendOnce(encode_entry(marker("a")), (), b"token")
    stranger(stack, folder, hello(), entry)
    stranger(stack, folder, hello(), entry)
    assert [each.command.id for each in client.read(NO_POSITION)] == ["a"]
    assert "cannot be read or written" not in caplog.text


def test_what_is_refused_without_a_connection_is_heard_before_there_is_one(folder, stack):
    """Else who was told that it is back has sent nothing, and hears then that all is lost."""
    with served(folder):
        group = open_group(stack, settings_of(folder), "g1")
    connection, heard = group._connection, []

    def may_connect() -> bool:
        if taken := connection._lock.acquire(blocking=False):
            connection._lock.release()
        return taken

    def done(answer: Any) -> None:
        with ThreadPoolExecutor(1) as other:
            heard.append((answer, other.submit(may_connect).result()))

    suspended = Event()
    group.on_session(lambda _: suspended.set())
    assert connection._socket is None or suspended.wait(WAIT_S)
    connection.ask(to.AppendEntries(GroupId("g1"), [b"x"], ()), done)
    ((answer, may),) = heard
    assert isinstance(answer, AnswerLost)
    assert not may


def test_a_question_that_is_too_large_is_refused_while_nobody_serves_and_ends_nothing(
    folder, stack, monkeypatch
):
    monkeypatch.setattr("onyx.log.local.frames.FRAME_BYTES_MAX", 1_000)
    with served(folder):
        client = open_client(stack, settings_of(folder))
        client.append(marker("a"))
    with pytest.raises(UserError, match="bytes are too many for the log"):
        client.put_document("d", b"x" * 2_000, None)
    stack.enter_context(served(folder))
    assert client.append(marker("b")) == 1


def test_what_nobody_waits_for_any_more_does_not_pile_up_while_nobody_serves(folder, stack):
    with served(folder):
        client = open_client(stack, settings_of(folder))
    for _ in range(3):
        with pytest.raises(Unavailable):
            client._connection.perform(to.HeldBytes(), 0.01)
    assert not client._connection._asked


def test_a_number_that_no_log_counts_to_is_refused_and_others_are_served(folder, stack):
    stack.enter_context(served(folder))
    client = open_client(stack, settings_of(folder))
    for position in (2**63, 2**70):
        with pytest.raises(UserError):
            client.read(Position(position))
    assert client.append(marker("a")) == 0


def test_documents_whose_answers_were_lost_are_ours_and_those_of_others_are_not(
    folder, stack, monkeypatch
):
    stack.enter_context(served(folder))
    client, other = (open_client(stack, settings_of(folder)) for _ in range(2))
    lose_answers(monkeypatch, times=1)
    assert client.put_document("of/a", b"1", None) == 0
    assert other.put_document("of/a", b"2", 0) == 1
    lose_answers(monkeypatch, times=1)
    assert client.put_document("of/a", b"3", 0) is None
    lose_answers(monkeypatch, times=1)
    client.claim("us")
    assert client.pass_on("us", "them")


def test_sessions_survive_a_server_that_starts_again_and_nothing_is_lost(folder, stack):
    settings = settings_of(folder)
    with served(folder) as server:
        group, observer = open_group(stack, settings, "g1"), open_group(stack, settings, "g2")
        inbox, heard, heard_by_client = follow(observer), Inbox(), Inbox()
        group.on_session(heard)
        open_client(stack, settings).on_session(heard_by_client)
        gone = pulse_gone(observer, GroupId("g1"))
        group.append([marker("n", number=0)])
        assert len(inbox.take()) == 1
        server.stop()
        assert heard.take() == [Session.SUSPENDED]
        group.append([marker("n", number=1)])
    with served(folder):
        assert heard.take() == [Session.CONNECTED], "the same session"
        assert [each.command.peer_site["number"] for each in inbox.take()] == [1]
        group.append([marker("n", number=2)])
        assert [each.command.peer_site["number"] for each in inbox.take()] == [2]
        assert not gone.is_set()
        group.close()
        assert gone.wait(WAIT_S)
        observer.close()
        assert heard_by_client.take(2) == [Session.SUSPENDED, Session.CONNECTED]


def test_a_group_that_was_away_for_too_long_is_dead_when_it_comes_back(folder, stack):
    settings = settings_of(folder)
    with served(folder):
        group, heard = open_group(stack, settings, "g1"), Inbox()
        group.on_session(heard)
    with sqlite3.connect(folder / "test.sqlite") as database:
        database.execute("DELETE FROM pulse")
    database.close()
    with served(folder):
        heard.take_until(Session.LOST)
        with pytest.raises(Fenced):
            group.append([marker("late")])
        assert open_client(stack, settings).read(NO_POSITION) == []


def test_a_client_that_is_silent_for_its_session_loses_its_pulse_and_its_connection(folder, stack):
    stack.enter_context(served(folder))
    observer = open_group(stack, settings_of(folder), "g1")
    frozen = stranger(stack, folder, hello(0.2), to.RegisterPulse(GroupId("frozen"), 0.2))
    gone = pulse_gone(observer, GroupId("frozen"))
    assert gone.wait(WAIT_S)
    assert frozen.recv(1) == b"", "it is cut off"
    again = stranger(stack, folder)
    again.sendall(framed(LogQuestion(1, hello(0.2, GroupId("frozen")))))
    assert again.recv(1_000).endswith(b"\xc2\xa0\xa0"), "and hears that it is dead"


@pytest.mark.server
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says when a process has ended")
def test_a_process_that_is_killed_loses_its_pulse_at_once(folder, stack):
    stack.enter_context(served(folder))
    observer = open_group(stack, settings_of(folder, session_timeout_s=600.0), "g1")
    command = [sys.executable, "-c", HOLDS_A_PULSE, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        gone = pulse_gone(observer, GroupId("other"))
        assert not gone.is_set()
        process.kill()
        assert gone.wait(WAIT_S)


def test_who_does_not_read_holds_nobody_up(folder, stack):
    server = stack.enter_context(served(folder))
    client = open_client(stack, settings_of(folder))
    client.put_document("large", b"x" * 500_000, None)
    frozen = stranger(stack, folder, hello(60.0))
    question = framed(LogQuestion(9, to.GetDocument("", "large")))
    frozen.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            frozen.send(question)
    for _ in range(20):
        client.append(marker("a"))
    owed = max(len(link._owed) for link in tuple(server._links))
    assert owed < OWED_BYTES_MAX + 40_000 * 500_000 // len(question)
    assert len(client.read(NO_POSITION)) == 20


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!I", 4_000_000_000),
        struct.pack("!I", 3) + b"\xff\xff\xff",
        framed(LogQuestion(1, to.Ping())),
        framed(LogQuestion(1, hello())) + framed(LogQuestion(2, hello())),
        framed(LogQuestion(1, to.Greeting(PROTOCOL + 1, "test", 1, 6.0, None))),
        framed(LogQuestion(1, to.Greeting(PROTOCOL, "../up", 1, 6.0, None))),
    ],
)
def test_who_says_nonsense_is_cut_off_or_refused_and_others_are_served(folder, stack, nonsense):
    stack.enter_context(served(folder))
    client = open_client(stack, settings_of(folder))
    connection = stranger(stack, folder)
    connection.sendall(nonsense)
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(1_000):
        pass
    assert client.append(marker("a")) == 0
    assert [each.name for each in folder.parent.iterdir()] == ["log"]


def test_two_hundred_clients_read_what_one_writes(folder, stack):
    stack.enter_context(served(folder))
    settings = settings_of(folder)
    inboxes = [follow(open_client(stack, settings)) for _ in range(200)]
    open_group(stack, settings, "g1").append([marker("a"), marker("b")])
    assert [inbox.names(2) for inbox in inboxes] == [["a", "b"]] * 200


def test_on_a_full_disk_writers_wait_and_go_on_and_nothing_is_half_written(
    folder, stack, monkeypatch, caplog
):
    server = stack.enter_context(served(folder))
    settings = settings_of(folder)
    group, client = open_group(stack, settings, "g1"), open_client(stack, settings)
    inbox, change = follow(client), TenancyFile.change
    refused: list[str] = []

    def full(store: TenancyFile, statement: str, *values: Any) -> int:
        done = change(store, statement, *values)  # the last statement is the one that fails
        refused.append(statement)
        raise sqlite3.OperationalError("database or disk is full") if done else AssertionError

    monkeypatch.setattr(TenancyFile, "change", full)
    with pytest.raises(Unavailable, match=r"the log in .* cannot be .*written.*full"):
        client.append(marker("lost"))
    group.append([marker("a"), marker("b")])
    assert client.read(NO_POSITION) == []
    assert client.get_document("d") is None
    while len(refused) < 2:
        client.read(NO_POSITION)
    monkeypatch.setattr(TenancyFile, "change", change)
    assert inbox.names(2) == ["a", "b"]
    assert [each.position for each in client.read(NO_POSITION)] == [0, 1]
    assert server.folder == folder
    assert caplog.text.count("cannot be read or written") == 1


def test_a_server_that_cannot_open_its_file_is_asked_again(folder, stack, monkeypatch):
    stack.enter_context(served(folder))
    store, full = LocalLogServer._store, [1, 2]

    def refusing(server: LocalLogServer, greeting: to.Greeting) -> TenancyFile:
        if full:
            full.pop()
            raise Unavailable("the disk is full")
        return store(server, greeting)

    monkeypatch.setattr(LocalLogServer, "_store", refusing)
    assert open_client(stack, settings_of(folder)).append(marker("a")) == 0
    full.extend(range(1_000))
    with pytest.raises(Unavailable, match="the disk is full"):
        LocalClientLog(replace(settings_of(folder), zookeeper=HASTY))


def test_a_folder_has_one_server(folder, stack):
    stack.enter_context(served(folder))
    with pytest.raises(SettingsError, match="in use: end that `onyx run`"):
        LocalLogServer(folder).start()


def test_a_server_of_a_folder_that_was_deleted_leaves_the_socket_of_the_next_one(folder, stack):
    with served(folder):
        shutil.rmtree(folder)
        stack.enter_context(served(folder))
    assert open_client(stack, settings_of(folder)).append(marker("a")) == 0


def test_a_server_that_has_ended_by_itself_wakes_nobody_else_when_it_is_stopped(
    folder, monkeypatch
):
    monkeypatch.setattr(LocalLogServer, "_turn", lambda *_: 1 / 0)
    server = LocalLogServer(folder)
    pipe = os.fstat(server._woken)
    server._thread.start()
    server._thread.join(WAIT_S)
    assert os.path.samestat(os.fstat(server._woken), pipe), "the number is still that of its pipe"
    server.stop()
    server.stop()
    assert server._woken < 0


def test_an_end_that_cannot_be_written_is_not_tried_at_once(folder, monkeypatch):
    folder.mkdir()
    server, store = LocalLogServer(folder), TenancyFile(folder / "test.sqlite", kept=False)
    with closing(store):
        store.pulses[GroupId("g1")] = pulse = Pulse(1, 6.0)
        store._load = lambda: None  # type: ignore[method-assign]
        pulse.heard_s = ENDED
        server._stores["test"] = store

        def broken(*_: object) -> int:
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(TenancyFile, "change", broken)
        server._look()
        assert server._patience_s() > 0
    server.stop()


def test_without_a_server_it_is_said_how_to_start_one(folder):
    settings = settings_of(folder)
    with pytest.raises(Unavailable, match=r"nobody serves a log in .*onyx log-server .*log"):
        LocalClientLog(replace(settings, zookeeper=HASTY))


def test_the_log_of_another_user_is_refused_at_once(folder, monkeypatch):
    def forbidden(*_: object) -> socket.socket:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("onyx.log.local.connection.reach", forbidden)
    with pytest.raises(SettingsError, match="belongs to another user: Permission denied"):
        LocalClientLog(settings_of(folder))


def test_files_and_socket_are_their_users_alone_also_in_a_folder_of_others(folder, stack):
    folder.mkdir(0o755)
    stack.enter_context(served(folder))
    open_client(stack, settings_of(folder)).append(marker("a"))
    modes = {each.name: each.stat().st_mode & 0o777 for each in folder.iterdir()}
    assert modes == {"socket": 0o600, "test.sqlite": 0o600, "test.sqlite-wal": 0o600}


def test_a_log_is_not_served_where_a_file_is(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"no log can be .* in .*file"):
        LocalLogServer(tmp_path / "file").start()


def test_a_folder_whose_path_is_longer_than_an_address_works(tmp_path, stack):
    deep = tmp_path / ("long" * 30) / ("longer" * 20)
    stack.enter_context(served(deep))
    assert open_client(stack, settings_of(deep)).append(marker("a")) == 0


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"no database" * 1_000, "not a database"), (None, "has format 7"), (b"", None)],
    ids=["text", "newer", "empty"],
)
def test_a_file_that_is_none_of_ours_is_refused_and_not_written(folder, stack, data, why):
    folder.mkdir()
    file = folder / "test.sqlite"
    if data is not None:
        file.write_bytes(data)
    else:
        with closing(sqlite3.connect(file)) as database:
            database.execute("PRAGMA user_version = 7")
    before = file.read_bytes()
    stack.enter_context(served(folder))
    if why is None:
        assert open_client(stack, settings_of(folder)).append(marker("a")) == 0
        return
    with pytest.raises(StateError, match=f"the log in .*test.sqlite cannot be read: .*{why}"):
        LocalClientLog(settings_of(folder))
    assert file.read_bytes() == before


def test_a_log_with_a_hole_in_it_is_refused(folder, stack):
    with served(folder):
        client = open_client(stack, settings_of(folder))
        client.put_chunk(bytes(range(256)) * 1_000)
        for number in range(200):
            client.append(marker("n", number=number))
        client.close()
    file = folder / "test.sqlite"
    data = bytearray(file.read_bytes())
    data[8_192:28_672] = bytes(20_480)
    file.write_bytes(data)
    with (
        served(folder),
        pytest.raises(StateError, match=r"test.sqlite cannot be read: it is damaged.*from a copy"),
    ):
        LocalClientLog(settings_of(folder))


def test_a_log_that_was_made_anew_is_refused_by_who_knew_the_old_one(folder, stack):
    settings = settings_of(folder)
    with served(folder):
        group, heard = open_group(stack, settings, "g1"), Inbox()
        group.on_session(heard)
    shutil.rmtree(folder)
    with served(folder):
        heard.take_until(Session.LOST)
        with pytest.raises(LogReplaced, match="made anew"):
            group.append([marker("a")])
        with pytest.raises(LogReplaced, match="made anew"):
            LocalGroupLog(settings, GroupId("g2"), group.identity)
