"""A client over a log in memory: reading the replica while others write and collect."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.support.log.memory_log import MemoryLog
from tests.support.log.raw_entries import raw_entry
from tests.support.log.submissions import submit_job

from onyx.client.client import Client
from onyx.errors import UserError
from onyx.history import collection
from onyx.ids import JobId, Position
from onyx.log.interface import ClientLog
from onyx.model.parsing.job import parse_mapping
from onyx.replica import canonical
from onyx.replica.command import Command, Entry
from onyx.replica.commands import Gc, KillJob

JOB = {
    "apiVersion": "onyx.dev/v1beta1",
    "kind": "OnyxJob",
    "metadata": {"name": "j"},
    "spec": {
        "workflow": [["in", "out"]],
        "catalog": [
            {"name": "in", "type": "input", "plugin": "generator", "batchSize": 1,
             "options": {"segments": 1}},
            {"name": "out", "type": "output", "plugin": "stdout", "batchSize": 1},
        ],
    },
}  # fmt: skip


def job(number: int) -> JobId:
    return JobId(f"job-{number}")


def submit(client: Client, number: int) -> JobId:
    spec = {**JOB["spec"], "metadata": {"jobId": job(number)}}  # type: ignore[dict-item]
    return client.submit(parse_mapping({**JOB, "spec": spec})).job


class Meddling:
    """The log; before each read but the first, something happens to it."""

    def __init__(self, log: ClientLog, meddle: Callable[[], None]) -> None:
        self._log, self._meddle = log, meddle

    def read(self, after: Position, entries_max: int = 10_000) -> Sequence[Entry]:
        self._meddle()
        return self._log.read(after, min(entries_max, 2))

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


@pytest.fixture
def memory() -> MemoryLog:
    return MemoryLog()


@pytest.mark.parametrize("when", range(4))
def test_a_collection_while_the_replica_is_read_goes_by_unnoticed(
    memory: MemoryLog, when: int
) -> None:
    other = Client(memory.client(), "balanced")
    for number in range(6):
        submit(other, number)
    other.kill(job(0))
    wanted = other.replica()
    reads = 0

    def meddle() -> None:
        nonlocal reads
        if reads == when:
            other.gc()
        reads += 1

    log = Meddling(memory.client(), meddle)
    found = Client(log, "balanced").replica()  # type: ignore[arg-type]
    assert found.jobs == wanted.jobs
    assert found.version >= wanted.version
    assert canonical.digest(found) == canonical.digest(other.replica(at=found.version))


def test_a_log_that_was_collected_entirely_still_has_its_replica(memory: MemoryLog) -> None:
    other = Client(memory.client(), "balanced")
    submit(other, 0)

    def meddle() -> None:
        if len(memory.client().read(Position(-1))) > 0:
            other.gc()

    found = Client(Meddling(memory.client(), meddle), "balanced").replica()  # type: ignore[arg-type]
    assert found.jobs == (job(0),)


def test_collection_forgets_ended_jobs_and_what_lies_beside_the_log(
    memory: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "FORGOTTEN_AT_ONCE", 2)
    client = Client(memory.client(), "balanced")
    for number in range(6):
        submit(client, number)
        client.log.put_document(f"frontier/{job(number)}/0", b"{}", None)
        client.log.put_document(f"exception/{job(number)}", b"{}", None)
    for number in range(5):
        client.kill(job(number))
    collected = client.gc()
    assert collected.jobs == tuple(map(job, range(5)))
    assert client.log.origin().position == collected.position == client.replica().version
    assert client.log.read(Position(-1)) == []
    assert [status.id for status in client.statuses()] == [job(5)]
    left = [n for n in range(6) if client.log.get_document(f"frontier/{job(n)}/0")]
    assert left == [n for n in range(6) if client.log.get_document(f"exception/{job(n)}")] == [5]


def test_a_job_that_ends_while_garbage_is_collected_is_kept(memory: MemoryLog) -> None:
    client = Client(memory.client(), "balanced")
    submit(client, 0)
    submit(client, 1)
    client.kill(job(0))
    log = memory.client()
    append = log.append

    def late(command: Command, by: str = "") -> Position:
        if isinstance(command, Gc):
            append(KillJob(job=job(1)))
        return append(command)

    log.append = late  # type: ignore[method-assign]
    assert Client(log, "balanced").gc().jobs == (job(0),)
    assert client.status(job(1)).state == "killed"


def test_collecting_when_there_is_nothing_only_trims_the_log(memory: MemoryLog) -> None:
    client = Client(memory.client(), "balanced")
    collected = client.gc()
    again = client.gc()
    assert (collected.jobs, again.jobs) == ((), ())
    assert again.position > collected.position


# --- names that are no names ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["/etc", "..", "a/b", "a" * 3_000, "\u00e9"], ids=lambda name: ascii(name)[:12]
)
def test_an_entry_with_a_name_that_no_path_can_have_breaks_no_reader(
    memory: MemoryLog, name: str
) -> None:
    with Client(memory.client(), "greedy") as client:
        sound = submit(client, 1)
        for fn, args in (
            (
                "submit-job",
                {"id": name, "spec": {"tasks": [{"name": "in"}], "task-scheduler": "x"}},
            ),
            ("kill-job", {"job": name}),
            ("submit-job", {"id": "j", "spec": {"tasks": [{"name": name}], "task-scheduler": "x"}}),
            ("group-leave-cluster", {"id": name}),
        ):
            memory.append_raw(raw_entry(fn, args))

        assert [status.id for status in client.statuses()] == [sound]
        assert client.replica().rejected == 4
        client.kill(sound)
        assert client.gc().jobs == (sound,)
        assert client.statuses() == []


def test_a_job_whose_manifest_cannot_be_read_is_listed_beside_the_others(
    memory: MemoryLog,
) -> None:
    with Client(memory.client(), "greedy") as client:
        sound = submit(client, 1)
        garbage = client.log.put_chunk(b"garbage")
        lost = client.log.put_chunk(b"lost")
        for name, digest in (("lost", lost), ("garbage", garbage)):
            client.log.append(submit_job(name, "in", digest=digest))
        client.log.sweep_chunks(lambda: {garbage, client.replica().spec(sound).digest}, 0.0)

        found = {status.id: status for status in client.statuses()}
        assert found[sound].name == "j"
        assert sorted(found) == ["garbage", sound, "lost"]
        client.kill(JobId("lost"))
        client.kill(JobId("garbage"))
        remarks = [client.status(JobId(each)).waiting_for for each in ("lost", "garbage")]
        assert all("its manifest cannot be read" in remark for remark in remarks)


@pytest.mark.parametrize("verb", ["kill", "suspend", "resume", "drain", "job", "wait"])
def test_a_command_about_a_name_that_no_job_can_have_says_so(memory: MemoryLog, verb: str) -> None:
    client = Client(memory.client(), "greedy")
    with pytest.raises(UserError, match=r"'\.\./x' cannot be the id of a job: use letters"):
        getattr(client, verb)(JobId("../x"))


@pytest.mark.parametrize("engine", ["peers", "spark"])
def test_a_status_says_what_runs_the_job(engine: str) -> None:
    client = Client(MemoryLog().client(), "balanced")
    submitted = client.submit(parse_mapping({**JOB, "spec": {**JOB["spec"], "engine": engine}}))
    assert client.status(submitted.job).engine == engine
