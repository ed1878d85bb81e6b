"""Backups and restores whose process is killed, whose files are damaged, or whose job is moving."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.jobs.yaml_jobs import manifest
from tests.support.log.markers import marker
from tests.support.log.memory_log import MemoryLog
from tests.support.servers.object_stores import ObjectStore

from onyx.backup.capture import Moved, cut_logs
from onyx.backup.making import BackupMaker
from onyx.backup.place import BackupPlace
from onyx.backup.restoring import Restorer
from onyx.client.client import Client
from onyx.errors import StateError, UserError
from onyx.ids import NO_POSITION, JobId
from onyx.journal.journal import Journal
from onyx.journal.logs import Content, PartitionFolder
from onyx.log import documents
from onyx.model.parsing.job import parse_mapping
from onyx.replica import canonical
from onyx.replica.commands import DrainJob, KillJob
from onyx.settings import LogSettings, Settings, StateSettings
from onyx.state.location import open_store
from onyx.storage.interface import ListedFile

START_MS = 1_700_000_000_000
JOB = manifest(
    """
    workflow: [[read, count], [count, write]]
    catalog:
      - {name: read, type: input, plugin: sequence, options: {segments: 10}}
      - {name: count, type: reduce, groupByKey: k, fluxPolicy: continue}
      - {name: write, type: output, plugin: blackhole}
    windows: [{id: w, task: count, type: global, aggregation: count}]
    triggers: [{windowId: w, type: segment, threshold: [1, element], emit: "f:nothing"}]
    """,
    jobId="flights",
)
ID = JobId("flights")
LOG = "flights/count/00000000000000000001-00000"
FILES = {
    "flights/location.id": b"here",
    f"{LOG}.end": b"000000000002",
    f"{LOG}/00000000": b"opened",
    f"{LOG}/00000001": b"first",
    f"{LOG}/00000002": b"second",
}
LATER = {f"{LOG}/00000003": b"third", f"{LOG}.end": b"000000000003"}


class World:
    """A cluster with a job, what it has beside its log, and a place for backups."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.to = folder / "backups"
        self.settings = Settings(
            state=StateSettings(url=str(self.state)), data_dir=str(folder), tenancy_id="test"
        )
        self.now_ms = START_MS
        self.said: list[str] = []
        self.log = MemoryLog(LogSettings()).client()
        self.client = Client(self.log, "balanced")
        self.client.submit(parse_mapping(JOB))
        self.log.put_document(documents.location(ID), b"here", None)
        self.log.put_document(documents.frontier(ID, 0), b'{"position":3}', None)
        self.write(FILES)

    @property
    def place(self) -> BackupPlace:
        return BackupPlace(str(self.to))

    def write(self, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            (self.state / name).parent.mkdir(parents=True, exist_ok=True)
            (self.state / name).write_bytes(data)

    def stored(self) -> dict[str, bytes]:
        found = (each for each in self.state.rglob("*") if each.is_file())
        return {str(each.relative_to(self.state)): each.read_bytes() for each in found}

    def backup(self, client: Any = None, place: BackupPlace | None = None) -> str:
        self.now_ms += 1_000
        maker = BackupMaker(
            client or self.client,
            self.settings,
            place or self.place,
            self.said.append,
            lambda: self.now_ms,
        )
        return maker.make()[0]

    def restored(
        self, name: str, log: Any, discard_later: bool = True, place: BackupPlace | None = None
    ) -> None:
        of = place or self.place
        Restorer(log, self.settings, of, name, self.said.append).restore(discard_later)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def empty_log() -> Any:
    return MemoryLog(LogSettings()).client()


class Killed(BaseException):
    """The process is killed before a call."""


class Dying:
    """Something of whose methods the process dies at the n-th call of those that write."""

    def __init__(self, inner: Any, left: list[int], writes: tuple[str, ...]) -> None:
        self._inner, self._left, self._writes = inner, left, writes

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._writes:
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self._left[0] -= 1
            if self._left[0] < 0:
                raise Killed(name)
            return found(*arguments, **named)

        return call


OF_LOG = ("put_chunk", "put_document", "begin_with", "append")
OF_FILES = ("create", "delete", "copy")


def steps(act: Callable[[list[int]], None]) -> Iterator[int]:
    """Kill an act before each of its writes, until it comes through."""
    for step in range(100):
        try:
            act([step])
        except Killed:
            yield step
        else:
            return
    raise AssertionError("it never ends")


def test_a_backup_that_is_killed_at_any_write_is_none_and_the_next_one_is_whole(world):
    def make(left: list[int]) -> None:
        place = world.place
        place.location = Dying(place.location, left, OF_FILES)
        world.backup(place=place)

    killed = [step for step in steps(make) if world.place.names() == []]
    assert len(killed) > len(FILES)
    (name,) = world.place.names()
    world.write(LATER)
    log = empty_log()
    world.restored(name, log)
    assert world.stored() == FILES


def test_a_restore_that_is_killed_at_any_write_is_repeated(world):
    name = world.backup()
    before = world.client.replica()
    log = empty_log()

    def restore(left: list[int]) -> None:
        world.write(LATER)
        restorer = Restorer(
            Dying(log, left, OF_LOG), world.settings, world.place, name, world.said.append
        )
        restorer._store = Dying(restorer._store, left, OF_FILES)
        restorer.restore(discard_later=True)

    for _ in steps(restore):
        assert log.origin().position == NO_POSITION, "nobody finds half of it"
        assert not log.read(NO_POSITION)
    assert world.stored() == FILES
    found = Client(log, "balanced").replica()
    assert found.records == before.records
    assert log.get_document(documents.frontier(ID, 0)).data == b'{"position":3}'
    assert Client(log, "balanced").job(ID).name == "job"
    assert Client(log, "balanced").status(ID).state == world.client.status(ID).state


def test_what_was_written_later_goes_only_if_somebody_says_so(world):
    name = world.backup()
    world.write(LATER)
    with pytest.raises(UserError, match=r"1 files were written .*00000003.*--discard-later"):
        world.restored(name, log := empty_log(), discard_later=False)
    assert world.stored() == {**FILES, **LATER}
    assert log.origin().position == NO_POSITION


@pytest.mark.parametrize("used", ["entry", "origin"])
def test_a_log_in_which_anything_has_happened_is_refused_and_state_stays(world, used):
    name = world.backup()
    log = empty_log()
    if used == "entry":
        log.append(marker("a"))
    else:
        world.restored(name, log)
    world.write(LATER)
    with pytest.raises(UserError, match="is not empty"):
        world.restored(name, log)
    assert world.stored() == {**FILES, **LATER}


def test_damage_anywhere_is_found_before_anything_is_changed(world):
    name = world.backup()
    world.write(LATER)
    for file in sorted((world.to / name).rglob("*")):
        if not file.is_file():
            continue
        whole = file.read_bytes()
        for damaged in (whole[:-1], whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:], None):
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            with pytest.raises((StateError, UserError)) as found:
                world.restored(name, log := empty_log())
            assert name in str(found.value)
            assert log.origin().position == NO_POSITION
        file.write_bytes(whole)
    assert world.stored() == {**FILES, **LATER}
    world.restored(name, empty_log())


def test_a_manifest_that_somebody_has_edited_is_refused(world):
    name = world.backup()
    file = world.to / name / "manifest.json"
    edited = json.loads(file.read_bytes())
    edited["content"]["position"] += 1
    file.write_text(json.dumps(edited))
    with pytest.raises(StateError, match="digest is another one"):
        world.restored(name, empty_log())


def test_a_damaged_backup_does_not_keep_the_next_one_from_being_taken(world):
    damaged = world.backup()
    (world.to / damaged / "manifest.json").write_bytes(b"{}")
    world.restored(world.backup(), log := empty_log())
    assert log.origin().position > NO_POSITION


def test_so_many_backups_are_kept_and_each_is_whole_without_the_others(world):
    names = [world.backup() for _ in range(4)]
    links = {file.stat().st_nlink for file in (world.to / names[-1] / "blobs").iterdir()}
    assert links == {4}, "what has not changed takes no room"
    assert world.place.keep(2) == names[:2]
    assert world.place.names() == names[2:]
    assert not (world.to / names[0]).exists()
    world.restored(world.place.newest(), empty_log())


def test_what_killed_processes_have_left_goes_after_a_day(world):
    (world.to / "20231113T000000Z/blobs").mkdir(parents=True)
    (world.to / "20231113T000000Z/blobs/half").write_bytes(b"x")
    (world.to / "of somebody else").mkdir()
    name = world.backup()
    assert world.place.names() == [name]
    world.place.keep(5)
    assert sorted(each.name for each in world.to.iterdir()) == [name, "of somebody else"]


class Meddling:
    """A log in which something happens while it is read: once, at a call."""

    def __init__(self, inner: Any, at: Callable[[str, tuple[Any, ...]], bool], act: Any) -> None:
        self._inner, self._at, self._act = inner, at, act

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            value = found(*arguments, **named)
            if self._act is not None and self._at(name, arguments):
                act, self._act = self._act, None
                act()
            return value

        return call


def meddled(world: World, name: str, argument: str, act: Callable[[], None]) -> Client:
    def at(called: str, arguments: tuple[Any, ...]) -> bool:
        return called == name and argument in arguments

    return Client(Meddling(world.log, at, act), "balanced")


def test_a_frontier_that_is_stored_meanwhile_does_not_go_with_older_state(world):
    def advance() -> None:
        world.write({f"{LOG}/00000003": b"forgets below 7", f"{LOG}.end": b"000000000003"})
        world.log.put_document(documents.frontier(ID, 0), b'{"position":7}', 0)

    client = meddled(world, "get_document", documents.location(ID), advance)
    found = world.place.read(world.backup(client))
    names = [each.name for each in found.jobs[0].files]
    assert (f"{LOG}/00000003" in names) == (
        dict(found.documents)["frontier/flights/0"] == b'{"position":7}'
    )
    assert f"{LOG}/00000003" in names


def test_a_job_whose_record_changes_meanwhile_is_copied_again(world):
    def end() -> None:
        world.log.append(KillJob(job=ID))

    client = meddled(world, "get_document", documents.committed_query(ID), end)
    found = world.place.read(name := world.backup(client))
    replica = canonical.decode(world.place.blob(name, found.replica))
    assert replica.killed_jobs == (ID,)


def test_state_that_is_elsewhere_is_no_backup_without_state(world):
    world.settings = replace(world.settings, state=StateSettings(url=str(world.to / "other")))
    with pytest.raises(UserError, match="ONYX_STATE_URL"):
        world.backup()
    assert world.place.names() == []


@pytest.mark.parametrize("at", [0, 1], ids=["before it began", "while it is made"])
def test_a_job_that_has_completed_has_no_state_and_keeps_no_backup_from_being_made(world, at):
    """A worker removes its state as soon as it has completed; what says where that was stays."""

    def end() -> None:
        world.log.append(DrainJob(job=ID))
        shutil.rmtree(world.state)

    client = meddled(world, "get_document", documents.location(ID), end)
    if not at:
        end()
        client = world.client
    found = world.place.read(name := world.backup(client))
    replica = canonical.decode(world.place.blob(name, found.replica))
    assert (replica.completed_jobs, [*found.jobs[0].files]) == ((ID,), [])
    world.restored(name, empty_log())


def listed(*names: str) -> list[ListedFile]:
    return [ListedFile(name, 1) for name in names]


A, J = "j/t/00000000000000000005-00000", "j/journal.inputs/t/00000/00000000000000000005"


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        pytest.param([f"{A}/0000000{n}" for n in (0, 1, 2)], [0, 1, 2], id="all of it"),
        pytest.param([f"{A}/0000000{n}" for n in (0, 1, 2, 4)], [0, 1, 2], id="up to a gap"),
        pytest.param(
            [f"{A}/00000000", f"{A}/00000002", f"{A}/00000005", f"{A}/00000006",
             f"{A}/00000005.whole"], [0, 5, 6], id="from a snapshot on",
        ),
        pytest.param([f"{A}/00000009"], [9], id="the fence of a log that is gone"),
        pytest.param(
            [f"{J}/000000000000", f"{J}/000000000008", f"{J}/000000000007.summary"], [0, 8],
            id="behind a summary whose chunk is gone",
        ),
        pytest.param(
            [f"{J}/000000000000", f"{J}/000000000007.summary"], [0], id="nothing but a summary",
        ),
    ],
)  # fmt: skip
def test_of_a_log_is_taken_what_is_listed_without_a_gap(there, taken):
    logs, others = cut_logs(listed(*there, "j/location.id"))
    (log,) = logs.values()
    assert (log.chunks(), others) == (taken, ["j/location.id"])


@pytest.mark.parametrize(
    "there",
    [
        [f"{A}/00000000", f"{A}/00000006", f"{A}/00000005.whole"],
        [f"{A}/00000000", f"{A}/00000005.whole"],
        [f"{J}/000000000009", f"{J}/000000000007.summary"],
    ],
)
def test_a_log_without_its_beginning_is_looked_at_again(there):
    (log,) = cut_logs(listed(*there))[0].values()
    with pytest.raises(Moved):
        log.chunks()


def test_a_job_that_is_never_quiet_is_paused_for_a_look_and_goes_on(world, monkeypatch):
    monkeypatch.setattr("onyx.backup.making.PAUSE_S", 0.0)
    number = iter(range(1_000_000))

    def busy(name: str, arguments: tuple[Any, ...]) -> bool:
        moving = name == "get_document" and documents.location(ID) in arguments
        return moving and not world.client.replica().run(ID).is_paused

    class Busy(Meddling):
        def __getattr__(self, name: str) -> Any:
            self._act = advance
            return super().__getattr__(name)

    def advance() -> None:
        path = documents.frontier(ID, 0)
        before = world.log.get_document(path)
        world.log.put_document(path, b'{"position":%d}' % next(number), before.version)

    found = world.place.read(name := world.backup(Client(Busy(world.log, busy, None), "balanced")))
    assert [said for said in world.said if "paused for a moment" in said]
    run = canonical.decode(world.place.blob(name, found.replica)).run(ID)
    assert not run.is_paused
    assert not world.client.replica().run(ID).is_paused


def test_state_and_backups_may_be_in_a_bucket(world, fake_store: ObjectStore):
    world.settings = replace(world.settings, state=StateSettings(url=f"{fake_store.url}/state"))
    for name, data in FILES.items():
        fake_store.put(f"state/{name}", data)
    place = BackupPlace(f"{fake_store.url}/backups")
    first, second = world.backup(place=place), world.backup(place=place)
    for name, data in LATER.items():
        fake_store.put(f"state/{name}", data)
    assert place.keep(1) == [first]
    assert place.names() == [second]
    assert not fake_store.keys(f"backups/{first}/")
    world.restored(second, log := empty_log(), place=place)
    assert {key: fake_store.get(f"state/{key}") for key in FILES} == FILES
    assert len(fake_store.keys("state/")) == len(FILES)
    assert ID in Client(log, "balanced").replica().records


def test_a_journal_goes_on_behind_the_point_with_what_was_not_processed_there(world):
    def journal(version: int) -> Journal:
        store = open_store(str(world.state))
        return Journal(store, PartitionFolder("flights", "read", 0), version, f"w{version}")

    taken = journal(5)
    for n in range(6):
        taken.append(Content([[{"n": n}]]))
    taken.collect(3, lambda: (), all_of_it=True)
    world.log.put_document(documents.frontier(ID, 0), b'{"position":3}', 0)
    name = world.backup()
    taken.append(Content([[{"n": "later"}]]))
    taken.collect(6, lambda: (), all_of_it=True)
    world.log.put_document(documents.frontier(ID, 0), b'{"position":6}', 1)

    world.restored(name, log := empty_log())
    again = journal(9)
    assert again.end == 6
    assert log.get_document(documents.frontier(ID, 0)).data == b'{"position":3}'
    assert [again.read(n)[1] for n in range(3, 6)] == [[[{"n": n}]] for n in range(3, 6)]
    assert again.append(Content([[{"n": "anew"}]])) == 6


def test_parts_that_exactly_once_outputs_wrote_later_go_and_no_others(world):
    out = Path(world.settings.data_dir) / "out"
    out.mkdir()
    spec = {**JOB["spec"], "guarantee": "exactly-once"}
    write = {"name": "write", "type": "output", "plugin": "files",
             "options": {"path": "out", "format": "jsonl"}}  # fmt: skip
    spec["catalog"] = [*spec["catalog"][:2], write]
    exact = {**JOB, "spec": {**spec, "metadata": {"jobId": "exact"}}}
    world.client.submit(parse_mapping(exact))

    def part(number: int, job: str = "exact") -> Path:
        return out / f"part-write--{job}--0-0123456789ab-{number:06d}.jsonl"

    part(0).write_text("before")
    part(0, "flights").write_text("of another job, at least once")
    name = world.backup()
    for later in (part(1), part(1, "flights"), part(0, "exact-2"), out / "mine.txt"):
        later.write_text("later")

    with pytest.raises(UserError, match=r"out/part-write--exact--.*000001"):
        world.restored(name, empty_log(), discard_later=False)
    world.restored(name, empty_log())
    assert not part(1).exists()
    assert len([*out.iterdir()]) == 5
