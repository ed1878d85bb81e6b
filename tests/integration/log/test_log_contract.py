"""The contract of the log: the same tests over memory, a folder of this machine and a real
ZooKeeper, with and without TLS and a user."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.log.logs import (
    Inbox,
    end_session,
    expire_session,
    served,
    settings_for,
    settings_of,
)
from tests.support.log.markers import marker
from tests.support.log.memory_log import MemoryLog
from tests.support.log.submissions import submit_job

from onyx.errors import Fenced, Unavailable, UserError
from onyx.ids import NO_POSITION, GroupId, Position
from onyx.log.interface import ChunkGone, Document, GroupLog, Origin, Session
from onyx.log.local.log import LocalClientLog, LocalGroupLog
from onyx.log.local.requests import AppendOnce
from onyx.log.tenancy import NoRoom
from onyx.log.zookeeper.group_log import ZooKeeperGroupLog
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.replica.command import Command
from onyx.settings import LogSettings, Settings

LIMITS = LogSettings(entry_bytes_max=20_000, chunk_bytes_max=50_000, tenancy_bytes_max=1_000_000)


class World:
    """Opens sessions of one kind of log and closes them at the end."""

    def __init__(
        self,
        open_group: Callable[[GroupId], Any],
        open_client: Callable[[], Any],
        expire: Callable[[Any], None],
        append_raw: Callable[[bytes], None],
    ) -> None:
        self._stack = ExitStack()
        self._open_group = open_group
        self._open_client = open_client
        self.expire = expire
        self.append_raw = append_raw

    def group(self, name: str, pulse: bool = True) -> Any:
        log = self._stack.enter_context(closing(self._open_group(GroupId(name))))
        if pulse:
            log.register_pulse()
        return log

    def client(self) -> Any:
        return self._stack.enter_context(closing(self._open_client()))

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(
    params=[
        "memory",
        "folder",
        pytest.param("zookeeper", marks=pytest.mark.server),
        pytest.param("secure zookeeper", marks=[pytest.mark.server, pytest.mark.slow]),
    ]
)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        memory = MemoryLog(LIMITS)
        opened = World(
            memory.group,
            memory.client,
            lambda log: memory.expire(log.group),
            lambda data: (memory.append_raw(data), None)[1],
        )
    elif request.param == "folder":
        folder = request.getfixturevalue("tmp_path") / "log"
        request.getfixturevalue("stack").enter_context(served(folder))
        opened = folder_world(settings_of(folder, log=LIMITS))
    elif request.param == "zookeeper":
        address = request.getfixturevalue("zookeeper").address
        opened = zookeeper_world(settings_for(address, log=LIMITS))
    else:
        secure = request.getfixturevalue("secure_zookeeper")
        settings = settings_for(secure.address, log=LIMITS)
        opened = zookeeper_world(replace(settings, zookeeper=secure))
    with closing(opened):
        yield opened


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def folder_world(settings: Settings) -> World:
    def append_raw(data: bytes) -> None:
        with closing(LocalClientLog(settings)) as log:
            log._ask(AppendOnce(data, (), data))

    return World(
        lambda group: LocalGroupLog(settings, group),
        lambda: LocalClientLog(settings),
        lambda log: end_session(log, settings),
        append_raw,
    )


def zookeeper_world(settings: Settings) -> World:
    def append_raw(data: bytes) -> None:
        with closing(ZooKeeperClientLog(settings)) as log:
            log._session.perform(
                lambda client: client.create_async(log._paths.entry_prefix, data, sequence=True)
            )

    return World(
        lambda group: ZooKeeperGroupLog(settings, group),
        lambda: ZooKeeperClientLog(settings),
        lambda log: expire_session(log, settings.zookeeper.address),
        append_raw,
    )


def follow(log: Any, after: int = NO_POSITION) -> Inbox:
    inbox = Inbox()
    log.subscribe(Position(after), inbox)
    return inbox


def noise(size: int) -> bytes:
    """Bytes that do not shrink."""
    return random.Random(size).randbytes(size)


def commands(*names: str) -> list[Command]:
    return [marker(name) for name in names]


def test_everyone_reads_what_a_group_appends_in_order_with_writer_sequence_and_parent(world):
    writer, reader, client = world.group("g1"), world.group("g2"), world.client()
    inboxes = [follow(log) for log in (writer, reader, client)]
    writer.append(commands("a", "b"))
    writer.append([marker("c", x=1)], parent=Position(1))
    first, second, third = inboxes[0].take(3)
    assert [first.position, second.position, third.position] == [0, 1, 2]
    assert [first.command.id, second.command.id] == ["a", "b"]
    assert (first.writer, first.sequence, first.parent) == ("g1", 1, None)
    assert (third.writer, third.sequence, third.parent) == ("g1", 3, 1)
    assert third.command == marker("c", x=1)
    for inbox in inboxes[1:]:
        assert inbox.take(3) == [first, second, third]


def test_a_client_knows_the_position_of_what_it_appended(world):
    client = world.client()
    assert [client.append(marker("a")), client.append(marker("b"))] == [0, 1]
    assert [entry.writer for entry in client.read(NO_POSITION)] == ["", ""]


def test_an_entry_has_who_did_it_and_when(world):
    client = world.client()
    inbox = follow(client)
    client.append(marker("a"), "kubernetes:alice\n")
    client.append(marker("b"))
    for by_alice, other in (inbox.take(2), client.read(NO_POSITION)):
        assert (by_alice.by, by_alice.at_ms > 0) == (r"kubernetes:alice\n", True)
        assert (other.by, other.at_ms) == ("", 0)


def test_reading_starts_after_a_position_and_is_bounded(world):
    client = world.client()
    for name in "abcd":
        client.append(marker(name))
    assert [e.command.id for e in client.read(Position(0), entries_max=2)] == ["b", "c"]
    assert client.read(Position(3)) == []
    assert follow(client, after=1).names(2) == ["c", "d"]


def test_a_burst_from_two_groups_reaches_a_reader_completely_and_in_each_writers_order(world):
    writers = [world.group("g1"), world.group("g2")]
    inbox = follow(world.client())
    for number in range(300):
        writers[number % 2].append([marker("n", number=number)])
    entries = inbox.take(300)
    assert [entry.position for entry in entries] == list(range(300))
    for writer in ("g1", "g2"):
        assert [e.sequence for e in entries if e.writer == writer] == list(range(1, 151))


def test_a_reader_that_raises_is_told_nothing_more_and_what_it_raised_is_told(world):
    client, log = world.client(), world.group("g1")
    told: list[str] = []
    failures = Inbox()

    def deliver(entry: Any) -> None:
        told.append(entry.command.id)
        if told == ["a", "b"]:
            raise SystemExit("no more of this")

    for name in "abcd":
        client.append(marker(name))
    log.subscribe(NO_POSITION, deliver, failures)
    other = follow(log)
    assert [str(each) for each in failures.take(1)] == ["no more of this"]
    assert other.names(4) == ["a", "b", "c", "d"]
    client.append(marker("e"))
    assert other.names(1) == ["e"]
    assert told == ["a", "b"]


def test_after_unsubscribing_nothing_more_is_delivered(world):
    client = world.client()
    stopped, other = Inbox(), follow(client)
    client.subscribe(NO_POSITION, stopped)()
    client.append(marker("a"))
    assert other.names(1) == ["a"]
    assert stopped.is_empty


def test_bytes_that_are_no_entry_keep_their_position_and_do_not_stop_a_reader(world):
    client = world.client()
    inbox = follow(client)
    client.append(marker("a"))
    world.append_raw(b"\x00not an entry")
    client.append(marker("b"))
    assert inbox.names(3) == ["a", "undecodable", "b"]


def test_a_group_without_a_pulse_writes_nothing(world):
    group, client = world.group("g1", pulse=False), world.client()
    heard = Inbox()
    group.on_session(heard)
    group.append(commands("a"))
    assert heard.take() == [Session.LOST]
    assert client.read(NO_POSITION) == []
    with pytest.raises(Fenced):
        group.append(commands("b"))


def test_an_expired_group_hears_it_and_writes_neither_entries_nor_documents(world):
    group, client = world.group("g1"), world.client()
    heard = Inbox()
    group.on_session(heard)
    group.append(commands("before"))
    follow(client).names(1)
    world.expire(group)
    heard.take_until(Session.LOST)
    with pytest.raises(Fenced):
        group.append(commands("after"))
    with pytest.raises(Fenced):
        group.put_document("frontier", b"1", None)
    client.append(marker("end"))
    assert [e.command.id for e in client.read(NO_POSITION)] == ["before", "end"]
    assert client.get_document("frontier") is None


def test_a_watcher_hears_once_that_a_pulse_is_gone(world):
    watched, watcher = world.group("g1"), world.group("g2")
    gone = Inbox()
    watcher.watch_pulse(GroupId("g1"), gone)
    assert watcher.pulse_exists(GroupId("g1"))
    client = world.client()
    assert client.pulse_exists(GroupId("g1"))
    assert gone.is_empty
    watched.close()
    assert gone.take() == ["g1"]
    assert not watcher.pulse_exists(GroupId("g1"))
    assert not client.pulse_exists(GroupId("g1"))


def test_a_watcher_of_a_pulse_that_is_not_there_hears_it_at_once(world):
    watcher, gone = world.group("g1"), Inbox()
    watcher.watch_pulse(GroupId("never"), gone)
    assert gone.take() == ["never"]


def test_an_expired_pulse_is_reported_and_an_unwatched_one_is_not(world):
    first, second, watcher = world.group("g1"), world.group("g2"), world.group("g3")
    gone = Inbox()
    watcher.watch_pulse(GroupId("g1"), gone)
    watcher.watch_pulse(GroupId("g2"), gone)
    watcher.unwatch_pulse(GroupId("g1"))
    world.expire(first)
    world.expire(second)
    assert gone.take() == ["g2"]


def test_closing_writes_first_what_was_enqueued(world):
    group, client = world.group("g1"), world.client()
    group.append(commands("a"))
    group.append(commands("group-leave-cluster"))
    group.close()
    assert [e.command.id for e in client.read(NO_POSITION)] == ["a", "group-leave-cluster"]


def test_a_closed_log_says_so(world):
    client = world.client()
    client.close()
    with pytest.raises(Unavailable, match="closed"):
        client.read(NO_POSITION)


def test_a_reader_behind_a_collection_gets_the_origin_and_then_the_rest(world):
    client = world.client()
    for name in "abcde":
        client.append(marker(name))
    assert client.collect(Origin(Position(3), b"replica after d"))
    assert [e.position for e in client.read(NO_POSITION)] == [4]
    inbox = follow(client, after=1)
    assert inbox.take() == [Origin(Position(3), b"replica after d")]
    assert inbox.names(1) == ["e"]
    assert client.append(marker("f")) == 5
    assert inbox.names(1) == ["f"]


def test_a_reader_finds_the_origin_of_a_log_that_was_collected_entirely(world):
    client = world.client()
    client.append(marker("a"))
    client.collect(Origin(Position(0), b"r"))
    inbox = follow(client)
    assert inbox.take() == [Origin(Position(0), b"r")]
    assert client.append(marker("b")) == 1
    assert inbox.names(1) == ["b"]


def test_a_reader_that_is_not_behind_does_not_notice_a_collection(world):
    client = world.client()
    inbox = follow(client)
    client.append(marker("a"))
    assert inbox.names(1) == ["a"]
    client.collect(Origin(Position(0), b"r"))
    client.append(marker("b"))
    assert inbox.names(1) == ["b"]


def test_the_origin_only_goes_forward(world):
    client = world.client()
    assert client.origin() == Origin(NO_POSITION, b"")
    for name in "abc":
        client.append(marker(name))
    large = b"r" * 120_000
    assert client.collect(Origin(Position(2), large))
    assert not client.collect(Origin(Position(1), b"older"))
    assert client.collect(Origin(Position(2), large)), "idempotent"
    assert client.origin() == Origin(Position(2), large)
    assert client.origin(above=Position(1)) == Origin(Position(2), large)
    assert client.origin(above=Position(2)) == Origin(NO_POSITION, b"")


@pytest.mark.parametrize("position", [0, 41, 1_203])
def test_an_empty_log_begins_with_a_replica_and_goes_on_behind_it(world, position):
    client, origin = world.client(), Origin(Position(position), b"restored")
    assert client.begin_with(origin)
    assert client.begin_with(origin), "idempotent"
    assert not client.begin_with(Origin(Position(position), b"another one"))
    inbox = follow(client)
    assert inbox.take() == [origin]
    assert client.append(marker("a")) == position + 1
    assert inbox.names(1) == ["a"]
    assert [each.command.id for each in world.client().read(Position(position))] == ["a"]


def test_a_log_that_held_an_entry_does_not_begin_again(world):
    client = world.client()
    client.append(marker("a"))
    assert not client.begin_with(Origin(Position(5), b"restored"))
    client.collect(Origin(Position(0), b"r"))
    assert not client.begin_with(Origin(Position(5), b"restored"))
    assert client.origin() == Origin(Position(0), b"r")
    assert client.append(marker("b")) == 1


def test_documents_are_written_only_by_who_knows_their_version(world):
    group, client = world.group("g1"), world.client()
    assert group.get_document("frontiers/job/0") is None
    assert group.put_document("frontiers/job/0", b"10", None) == 0
    assert client.put_document("frontiers/job/0", b"other", None) is None
    assert client.put_document("frontiers/job/0", b"20", 0) == 1
    assert group.put_document("frontiers/job/0", b"15", 0) is None
    assert group.get_document("frontiers/job/0") == Document(b"20", 1)
    assert group.put_document("frontiers/job/1", b"1", 3) is None, "there is none to replace"


def test_a_folder_lists_its_documents_sorted(world):
    client = world.client()
    assert list(client.list_documents("exceptions")) == []
    for path in ("exceptions/b", "exceptions/a", "exceptions/a/deep", "other"):
        assert client.put_document(path, b"", None) == 0
    assert list(client.list_documents("exceptions")) == ["a", "b"]
    assert list(client.list_documents("exceptions/a")) == ["deep"]
    assert client.get_document("exceptions/a") == Document(b"", 0)


def test_documents_are_deleted_with_those_in_the_folder_of_their_name(world):
    client = world.client()
    for path in ("of/a", "of/b", "of", "of/a/deep", "off"):
        client.put_document(path, b"", None)
    client.delete_documents("of")
    client.delete_documents("of")
    assert list(client.list_documents("of")) == []
    assert client.get_document("of") is None
    assert client.get_document("of/a/deep") == client.get_document("off") == Document(b"", 0)
    client.delete_documents("of/a")
    assert client.get_document("of/a/deep") is None
    assert client.put_document("of/a", b"", None) == 0


@pytest.mark.parametrize("size", [0, 1, 50_000, 50_001, 170_000])
def test_chunks_of_every_size_come_back_under_their_content_address(world, size):
    client = world.client()
    data = noise(size)
    digest = client.put_chunk(data)
    assert client.put_chunk(data) == digest, "idempotent"
    assert client.get_chunk(digest) == data


def test_a_chunk_that_is_missing_is_unavailable(world):
    with pytest.raises(Unavailable, match="chunk 00"):
        world.client().get_chunk("00" * 32)


def test_a_tenancy_belongs_to_who_says_so_first_until_it_is_passed_on(world):
    client, group = world.client(), world.group("g1")
    assert client.claim("a") == group.claim("b") == world.client().claim("c") == "a"
    assert not client.pass_on("b", "c")
    assert client.claim("b") == "a"
    assert client.pass_on("a", "b")
    assert not client.pass_on("a", "c")
    assert group.claim("a") == "b"


def test_what_a_tenancy_holds_is_counted_compressed_and_goes_when_it_is_deleted(world):
    client = world.client()
    before = client.usage().bytes
    client.put_chunk(b"x" * 500_000)
    packed = client.usage().bytes - before
    client.put_chunk(noise(500_000))
    client.put_document("d", noise(40_000), None)
    client.append(marker("a", x="y" * 10_000))
    held = client.usage().bytes - before
    assert 500 < packed < 20_000
    assert 550_000 < held < 575_000
    client.delete_documents("d")
    client.sweep_chunks(tuple, age_s=-60)
    assert 10_000 < client.usage().bytes - before < 15_000
    assert client.usage().bytes_max == 1_000_000


def test_a_chunk_for_which_there_is_no_room_is_refused_and_what_is_there_is_not(world):
    client, group = world.client(), world.group("g1")
    data = noise(600_000)
    digest = client.put_chunk(data, if_room=True)
    assert client.put_chunk(data, if_room=True) == digest
    for log in (client, group):
        with pytest.raises(NoRoom, match=r"may hold 1,000,000.* ONYX_LOG_TENANCY_BYTES_MAX"):
            log.put_chunk(noise(600_001), if_room=True)
    with pytest.raises(Unavailable):
        client.get_chunk(hashlib.sha256(noise(600_001)).hexdigest())
    client.put_chunk(noise(600_002))
    with pytest.raises(NoRoom):
        client.put_chunk(b"small", if_room=True)


def test_chunks_that_nothing_names_go_once_they_are_old(world):
    client = world.client()
    small, large = client.put_chunk(b"s"), client.put_chunk(noise(170_000))
    kept = client.put_chunk(b"kept")
    client.collect(Origin(Position(3), b"replica"))
    assert client.sweep_chunks(lambda: {kept}, age_s=3_600) == 0
    assert client.sweep_chunks(lambda: {kept}, age_s=-60) == 2
    for digest in (small, large):
        with pytest.raises(Unavailable, match=f"chunk {digest}"):
            client.get_chunk(digest)
    assert client.get_chunk(kept) == b"kept"
    assert client.origin().replica == b"replica"
    assert client.put_chunk(noise(170_000)) == large
    assert client.get_chunk(large) == noise(170_000)


@pytest.mark.parametrize("size", [1, 170_000])
@pytest.mark.parametrize("how", ["put again", "named by an entry", "named by a document"])
def test_a_chunk_that_somebody_wants_while_chunks_are_swept_stays(world, size, how):
    client, other = world.client(), world.client()
    data = noise(size)
    digest = other.put_chunk(data)

    def named():
        if how == "put again":
            other.put_chunk(data)
        elif how == "named by an entry":
            other.append(submit_job("j", "in", digest=digest))
        else:
            version = None if (found := other.get_document("d")) is None else found.version
            other.put_document("d", b"", version, [digest])
        return ()

    client.sweep_chunks(named, age_s=-60)
    assert client.get_chunk(digest) == data


def test_what_would_name_a_chunk_that_is_gone_is_not_written(world):
    client, group = world.client(), world.group("g1")
    digest = client.put_chunk(b"x")
    client.sweep_chunks(tuple, age_s=-60)
    with pytest.raises(ChunkGone, match="submit-job"):
        client.append(submit_job("j", "in", digest=digest))
    for log in (client, group):
        with pytest.raises(ChunkGone, match="document d"):
            log.put_document("d", b"", None, [digest])
    heard = Inbox()
    group.on_session(heard)
    group.append([submit_job("j", "in", digest=digest)])
    assert heard.take(1) == [Session.LOST]
    assert list(client.read(NO_POSITION)) == []
    assert client.get_document("d") is None


def test_folders_are_listed_beside_documents(world):
    client = world.client()
    for path in ("of/a/1", "of/b/1/2", "of/c", "of", "off/x"):
        client.put_document(path, b"", None)
    assert list(client.list_folders("of")) == ["a", "b"]
    assert list(client.list_folders("")) == ["of", "off"]
    assert list(client.list_folders("nowhere")) == []


def test_a_dead_incarnation_deletes_no_documents(world):
    group, client = world.group("g1", pulse=False), world.client()
    client.put_document("of/a", b"", None)
    with pytest.raises(Fenced):
        group.delete_documents("of")
    assert list(client.list_documents("of")) == ["a"]


def test_what_is_too_large_is_refused_before_it_is_sent(world):
    group, client = world.group("g1"), world.client()
    large = marker("b", x="y" * 20_000)
    with pytest.raises(UserError, match="at most 20000"):
        group.append([large])
    with pytest.raises(UserError, match="at most 20000"):
        client.append(large)
    with pytest.raises(UserError, match="at most 50000"):
        client.put_document("d", b"x" * 50_001, None)


def test_the_first_one_establishes_the_parameters_for_all(world):
    first, second = world.group("g1"), world.client()
    assert first.establish({"job-scheduler": "greedy"}) == {"job-scheduler": "greedy"}
    assert second.establish({"job-scheduler": "balanced"}) == {"job-scheduler": "greedy"}


def test_a_session_is_confirmed_again_and_again(world):
    group: GroupLog = world.group("g1")
    before = group.confirmed_s()
    assert group.session_timeout_s == 6.0
    group.pulse_exists(GroupId("g1"))
    assert group.confirmed_s() > before
