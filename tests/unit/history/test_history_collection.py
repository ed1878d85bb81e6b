"""Collection without anybody asking, a round at a time, over a log in memory."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.log.memory_log import MemoryLog
from tests.support.log.submissions import submit_job

from onyx.client.client import Client
from onyx.errors import Unavailable, UserError
from onyx.history.archive import Archive
from onyx.history.collection import HistoryCollector
from onyx.history.replicas import Replicas
from onyx.ids import NO_POSITION, JobId, Position
from onyx.log.interface import Origin
from onyx.model.parsing.job import parse_mapping, to_mapping
from onyx.replica.commands import ExhaustInput, KillJob, RegisterPartitions, SealOutput
from onyx.replica.state import Replica
from onyx.settings import HistorySettings, Settings
from onyx.spark.result_files import remove_left
from onyx.storage.interface import MemoryBlobStore

HOUR_MS = 3_600_000
SETTINGS = HistorySettings(
    age_s=3_600,
    killed_age_s=7_200,
    jobs_max=100,
    entries_max=1_000,
    remembered_max=3,
    chunk_age_s=0,
)


def manifest(name: str, upgrade: str | None = None) -> Any:
    spec: dict[str, Any] = {
        "workflow": [["in", "out"]],
        "metadata": {"jobId": name},
        "catalog": [
            {"name": "in", "type": "input", "plugin": "sequence", "batchSize": 1},
            {"name": "out", "type": "output", "plugin": "blackhole", "batchSize": 1},
        ],
    }
    spec["catalog"][0]["options"] = {"segments": [{"of": name}]}
    if upgrade is not None:
        spec["upgrade"] = {"from": upgrade}
    return parse_mapping(
        {
            "apiVersion": "onyx.dev/v1beta1",
            "kind": "OnyxJob",
            "metadata": {"name": "j"},
            "spec": spec,
        }
    )


@dataclass
class World:
    """A cluster without workers, of which the test says how its jobs end."""

    settings: HistorySettings = SETTINGS
    memory: MemoryLog = field(default_factory=MemoryLog)
    removed: list[JobId] = field(default_factory=list)
    broken: bool = False
    now_ms: int = 0
    archive: Archive | None = None
    folder: Path = Path("/nowhere")

    def __post_init__(self) -> None:
        self.log = self.memory.client()
        self.client = Client(self.log, "balanced", self.archive)

    def submit(self, name: str, upgrade: str | None = None) -> JobId:
        job = self.client.submit(manifest(name, upgrade)).job
        names = self.log.put_chunk(f'["partition of {name}"]'.encode())
        self.log.append(RegisterPartitions(job=job, task="in", count=1, digest=names))
        self.log.put_document(f"frontier/{job}/0", b"{}", None)
        self.log.put_document(f"location/{job}", b"here", None)
        return job

    def complete(self, name: str) -> JobId:
        job = self.submit(name)
        self.log.append(ExhaustInput(job=job, task="in"))
        self.log.append(SealOutput(job=job, task="out"))
        return job

    def kill(self, name: str) -> JobId:
        job = self.submit(name)
        self.log.append(KillJob(job=job))
        return job

    def remove_state(self, job: JobId) -> None:
        if self.broken:
            raise Unavailable("no store")
        self.removed.append(job)

    def collector(self) -> HistoryCollector:
        return HistoryCollector(
            self.log,
            Replicas(self.log, "balanced", self.archive),
            self.settings,
            self.log.append,
            self.remove_state,
            lambda path, name: remove_left(path, name, Settings(data_dir=str(self.folder))),
            lambda: self.now_ms,
        )

    def rounds(self, count: int, passed_ms: int = HOUR_MS // 2) -> None:
        """As many collectors, each of which dies after its round."""
        for _ in range(count):
            self.now_ms += passed_ms
            self.collector().round(Replica())

    def chunks(self) -> set[str]:
        return set(self.memory._store.chunks)

    def beside(self) -> dict[str, list[str]]:
        return {
            "frontier": list(self.log.list_folders("frontier")),
            "location": list(self.log.list_documents("location")),
        }


def test_a_completed_job_goes_with_all_that_is_its_own_and_its_end_stays_known() -> None:
    world = World()
    world.submit("runs")
    world.rounds(1, 0)
    before = world.chunks()
    job = world.complete("short")
    world.rounds(2)
    assert world.client.status(job).name == "j", "not yet"
    world.rounds(3)
    assert world.beside() == {"frontier": ["runs"], "location": ["runs"]}
    assert world.removed == ["short"]
    assert before <= world.chunks()
    assert len(world.chunks() - before) <= 1, "the replica of the origin"
    assert [each.id for each in world.client.statuses()] == ["runs"]
    assert world.client.wait(job)
    assert world.client.status(job).state == "completed"


def test_a_job_that_is_submitted_again_after_its_collection_does_not_run_again() -> None:
    world = World()
    ends = [world.complete("done"), world.kill("dead")]
    world.rounds(8)
    assert not world.client.replica().records
    for job, completed in zip(ends, (True, False), strict=True):
        assert world.client.submit(manifest(job)).job == job
        assert world.client.wait(job) is completed
    assert not world.client.replica().jobs
    with pytest.raises(
        UserError, match="job dead was killed or has failed, and has been collected since"
    ):
        world.client.kill(JobId("dead"))


def test_no_more_ids_are_remembered_than_is_set_and_those_let_go_are_free() -> None:
    world = World()
    for number in range(5):
        world.complete(f"job-{number}")
        world.rounds(4)
    assert sorted(world.client.replica().completed_before) == ["job-2", "job-3", "job-4"]
    job = world.submit("job-0")
    assert world.client.replica().jobs == (job,)
    with pytest.raises(UserError, match="there is no job job-1"):
        world.client.wait(JobId("job-1"))


def test_a_killed_job_is_kept_longer_for_whoever_upgrades_it() -> None:
    world = World()
    world.kill("old")
    world.rounds(3)
    world.submit("new", upgrade="old")
    assert world.client.replica().upgrades(JobId("new")) == "old"
    world.rounds(3)
    assert "old" not in world.client.replica().records, "new has its own frontier now"
    with pytest.raises(UserError, match="job old has been collected, and its state with it"):
        world.client.submit(manifest("newer", upgrade="old"))


def test_the_old_job_of_an_upgrade_stays_until_its_state_is_carried_over() -> None:
    world = World()
    world.kill("old")
    world.client.submit(manifest("new", upgrade="old"))
    world.rounds(10)
    assert "old" in world.client.replica().records
    assert world.beside()["location"] == ["old"]
    names = world.log.put_chunk(b"[]")
    world.log.append(RegisterPartitions(job="new", task="in", count=1, digest=names))
    world.log.put_document("frontier/new/0", b"{}", None)
    world.rounds(2)
    assert set(world.client.replica().records) == {"new"}
    assert world.beside()["location"] == []


def test_a_suspended_job_is_kept_with_all_it_has_however_old() -> None:
    world = World()
    job = world.submit("sleeps")
    world.client.suspend(job)
    kept = world.chunks()
    for number in range(4):
        world.complete(f"job-{number}")
    world.rounds(20)
    assert kept <= world.chunks()
    assert world.beside() == {"frontier": [job], "location": [job]}
    assert world.client.job(job).name == "j"


def test_state_that_cannot_be_removed_now_is_removed_later_and_keeps_its_id() -> None:
    world = World(broken=True)
    for number in range(5):
        world.complete(f"job-{number}")
    world.rounds(6)
    assert len(world.beside()["location"]) == 5
    assert len(world.client.replica().completed_before) == 5, "none is free"
    world.broken = False
    world.rounds(1)
    assert world.beside()["location"] == []
    assert len(world.removed) == 5


def on_spark(name: str, place: str) -> Any:
    spec = {
        "workflow": [["in", "mid"], ["mid", "out"]],
        "metadata": {"jobId": name},
        "catalog": [
            {"name": "in", "type": "input", "plugin": "spark", "batchSize": 1,
             "options": {"path": place, "format": "csv"}},
            {"name": "mid", "type": "function", "sparkStage": "m:f",
             "options": {"path": place}},
            {"name": "out", "type": "output", "plugin": "blackhole", "batchSize": 1},
        ],
    }  # fmt: skip
    kind = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "j"}}
    return parse_mapping({**kind, "spec": spec})


def test_files_of_spark_go_with_their_job_unless_another_one_reads_on_in_them(
    tmp_path: Path,
) -> None:
    world = World(folder=tmp_path)
    place = tmp_path / "snapshots"
    for name, snapshot in (("old.in", "old.in"), ("old.mid", ""), ("new.in", "old.in"), ("x", "")):
        (place / name).mkdir(parents=True)
        (place / name / "part.parquet").write_bytes(b"")
        if snapshot:
            (place / name / "_onyx.json").write_text(f'{{"snapshot": "{snapshot}"}}')
    for name in ("old", "new"):
        digest = world.log.put_chunk(json.dumps(to_mapping(on_spark(name, "snapshots"))).encode())
        world.log.append(
            submit_job(name, "in mid out", required_tags={"in": ["spark"]}, digest=digest)
        )
    world.log.append(KillJob(job="old"))
    world.rounds(10)
    assert sorted(each.name for each in place.iterdir()) == ["new.in", "old.in", "x"]
    world.log.append(KillJob(job="new"))
    world.rounds(10)
    assert [each.name for each in place.iterdir()] == ["x"]
    assert list(world.log.list_documents("files")) == []


def test_the_store_stays_flat_over_many_jobs() -> None:
    world = World(HistorySettings(jobs_max=5, entries_max=40, remembered_max=10, chunk_age_s=0))
    sizes = []
    for number in range(120):
        (world.complete if number % 5 else world.kill)(f"job-{number}")
        if number % 5 == 4:
            world.rounds(1, 1_000)
            store = world.memory._store
            sizes.append((len(store.entries), len(store.chunks), len(store.documents)))
    for part in range(3):
        late = [size[part] for size in sizes[12:]]
        assert max(late) <= max(size[part] for size in sizes[6:12])
    assert len(world.client.replica().records) <= 10


@pytest.mark.parametrize("calls", range(1, 40))
def test_a_collector_that_is_killed_anywhere_leaves_a_log_that_the_next_one_collects(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(HistorySettings(jobs_max=1, entries_max=10, remembered_max=100, chunk_age_s=0))
    for number in range(6):
        (world.complete if number % 2 else world.kill)(f"job-{number}")
    world.submit("runs")
    before = world.client.replica()

    class Killed(BaseException):
        pass

    left = calls

    def dying(call: Any) -> Any:
        def wrapped(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed
            return call(*arguments)

        return wrapped

    with monkeypatch.context() as patch:
        for name in ("append", "collect", "delete_documents", "put_document", "sweep_chunks"):
            patch.setattr(world.log, name, dying(getattr(world.log, name)))
        patch.setattr(world, "remove_state", dying(world.remove_state))
        with suppress(Killed):
            world.rounds(3)
    assert world.client.replica().spec(JobId("runs")) == before.spec(JobId("runs"))
    assert world.client.job(JobId("runs")).name == "j"
    world.rounds(3)
    assert len(world.beside()["frontier"]) == 2
    assert len(world.beside()["location"]) == 2
    assert {world.client.wait(JobId(f"job-{n}")) == bool(n % 2) for n in range(6)} == {True}
    assert len(world.chunks()) <= 2 * 2 + 1


def test_what_is_trimmed_can_be_read_from_the_archive() -> None:
    store = MemoryBlobStore()
    plain = World()
    world = World(
        HistorySettings(jobs_max=1, entries_max=20, chunk_age_s=0),
        memory=plain.memory,
        archive=Archive(store, "default", plain.log.identity),
    )
    past: dict[int, Replica] = {}
    for number in range(30):
        world.kill(f"job-{number}")
        replica = plain.client.replica()
        past[replica.version] = replica
        if number % 7 == 6:
            world.rounds(1, 1_000)
    origin = plain.log.origin()
    assert origin.position > 60
    for position, replica in past.items():
        assert world.client.replica(Position(position)) == replica
    entries = list(world.client.entries(NO_POSITION))
    assert [entry.position for entry in entries] == list(range(len(entries)))
    assert [e.position for e in world.client.entries(Position(50))][:2] == [51, 52]
    changes = list(world.client.changes())
    assert [each.entry for each in changes] == entries
    assert all(past.get(each.new.version, each.new) == each.new for each in changes)
    short = list(plain.client.changes())
    assert (short[0].old.version, short[0].entry.position) == (origin.position, origin.position + 1)
    assert plain.client.replica(Position(3)).version == origin.position, "without an archive"


def test_an_archive_that_refuses_keeps_the_log_as_it_is() -> None:
    class Refusing(MemoryBlobStore):
        def create(self, name: str, data: bytes) -> bool:
            raise UserError("read only")

    plain = World()
    world = World(
        HistorySettings(jobs_max=1, entries_max=4, chunk_age_s=0),
        memory=plain.memory,
        archive=Archive(Refusing(), "default", plain.log.identity),
    )
    for number in range(4):
        world.complete(f"job-{number}")
    world.rounds(2)
    assert world.log.origin() == Origin(NO_POSITION, b"")
    assert len(world.client.replica().completed_before) == 3, "jobs are forgotten all the same"


def test_an_entry_that_nobody_can_read_is_archived_as_it_was_taken() -> None:
    plain = World()
    archive = Archive(MemoryBlobStore(), "default", 1)
    plain.memory.append_raw(b"no entry")
    plain.memory.append_raw(b'{"v": 2, "fn": "kill-job", "args": {}}')
    plain.log.append(submit_job("j"))
    entries = plain.log.read(NO_POSITION)
    archive.keep(Origin(NO_POSITION, b""), entries)
    assert list(archive.entries(NO_POSITION, Position(9))) == list(entries)
