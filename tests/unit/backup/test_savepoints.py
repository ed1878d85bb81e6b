"""Savepoints: how they are made, named and damaged, and which jobs have none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.jobs.yaml_jobs import manifest
from tests.support.servers.object_stores import ObjectStore
from tests.unit.backup.test_backup_points import FILES, ID, JOB, World, empty_log

from onyx.backup.savepoints import SavepointMaker
from onyx.cli.commands.backup import backup, restore, savepoint
from onyx.client.client import Client
from onyx.errors import StateError, UserError
from onyx.ids import JobId
from onyx.log import documents
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.replica.commands import KillJob
from onyx.replica.commands.load_job import loaded_for
from onyx.settings import Settings
from onyx.state.savepoint import Savepoint, SavepointManifest, SavepointPlace
from onyx.task.recovery.savepoint import savepoint_problems
from onyx.upgrade.plan import beginning_with

NOON = "noon"


class Savepoints(World):
    """A cluster with a job, and a place for savepoints."""

    def save(self, job: JobId = ID, name: str = NOON, to: str = "") -> SavepointManifest:
        place = SavepointPlace(to or str(self.to))
        maker = SavepointMaker(
            self.client, self.settings, place, self.said.append, lambda: self.now_ms
        )
        return maker.make(job, name)

    @property
    def noon(self) -> str:
        return f"{self.to}/{NOON}"


@pytest.fixture
def world(tmp_path: Path) -> Savepoints:
    return Savepoints(tmp_path)


def named(id: str, **spec: Any) -> Job:
    return parse_mapping({**JOB, "spec": {**JOB["spec"], "metadata": {"jobId": id}, **spec}})


def begins(world: Savepoints, change: Callable[[Job], Job] = lambda job: job) -> list[str]:
    """What a worker has against a job that begins with the savepoint."""
    job = change(beginning_with(parse_mapping(JOB), world.noon))
    settings = replace(world.settings, job_paths=(str(world.to),))
    return savepoint_problems(job, settings)


def test_it_has_the_job_and_what_lies_beside_the_log_without_the_name_of_the_location(
    world: Savepoints,
) -> None:
    made = world.save()
    found = Savepoint(world.noon)
    assert found.manifest == made
    assert found.job().name == parse_mapping(JOB).name
    held = {f"{ID}/{each.name}": found.blob(each) for each in made.files}
    assert held == {name: data for name, data in FILES.items() if "location" not in name}
    assert (made.frontiers, made.tenancy, made.job) == ({0: b'{"position":3}'}, "test", ID)
    assert made.kinds == {"read": "input", "count": "reduce", "write": "output"}
    assert made.publishes, "nobody works on the job"
    assert SavepointPlace(str(world.to)).names() == [NOON]
    assert begins(world) == []


def test_it_is_the_same_in_a_bucket(world: Savepoints, fake_store: ObjectStore) -> None:
    made = world.save(to=f"{fake_store.url}/points")
    assert Savepoint(f"{fake_store.url}/points/{NOON}").manifest == made


@pytest.mark.parametrize("name", ["../..", "..", "a/b", "", ".hidden", "x" * 200, "a\nb"])
def test_a_name_that_is_none_makes_nothing(world: Savepoints, name: str) -> None:
    with pytest.raises(UserError, match="cannot be the name of a savepoint"):
        world.save(name=name)
    assert not world.to.exists()
    with pytest.raises(UserError, match="cannot be the name of a savepoint"):
        Savepoint(f"{world.to}/..")


def test_a_name_is_used_once_even_if_whoever_used_it_was_killed(world: Savepoints) -> None:
    world.save()
    (world.to / NOON / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"has a savepoint noon already, or what is left of one"):
        world.save()
    with pytest.raises(UserError, match="there is no savepoint"):
        begins(world)


def test_its_path_may_end_with_a_slash_as_shells_complete_it(world: Savepoints) -> None:
    world.save(to=f"{world.to}/")
    assert Savepoint(f"{world.noon}/").manifest == Savepoint(world.noon).manifest
    assert SavepointPlace(f"{world.to}//").path == str(world.to)


def test_a_list_has_all_that_can_be_read_and_says_what_cannot(
    world: Savepoints, capsys: pytest.CaptureFixture[str]
) -> None:
    world.save()
    world.save(name="damaged")
    (world.to / "damaged" / "manifest.json").write_bytes(b"")
    savepoint(to=str(world.to), listed=True)
    said = capsys.readouterr()
    assert f"{world.noon}: job {ID}" in said.out
    assert "damaged/manifest.json is damaged" in said.err
    restore(str(world.to), listed=True)
    assert f"there is none in {world.to}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "run", [lambda: savepoint(to="", job=ID), lambda: backup(to=""), lambda: restore("")]
)
def test_an_empty_place_is_not_the_folder_in_which_the_command_runs(
    run: Callable[[], None],
) -> None:
    with pytest.raises(UserError, match="the place is empty"):
        run()


def test_a_killed_job_is_saved_as_it_was_left(world: Savepoints) -> None:
    before = world.save()
    world.log.append(KillJob(job=ID))
    after = world.save(name="later")
    assert (after.files, after.frontiers) == (before.files, before.frontiers)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"guarantee": "at-most-once"}, "has guarantee at-most-once, which keeps no state"),
        ({"engine": "spark"}, "is one query on Spark, which holds nothing before its end"),
    ],
)
def test_a_job_without_state_to_carry_over_is_not_saved(
    world: Savepoints, change: dict[str, Any], why: str
) -> None:
    other = named("other", **change)
    world.client.submit(other)
    with pytest.raises(UserError, match=why):
        world.save(JobId("other"))
    assert not world.to.exists()


def test_a_job_that_takes_over_a_savepoint_is_not_saved_before_it_has(world: Savepoints) -> None:
    world.save()
    world.client.submit(named("b", upgrade={"savepoint": world.noon}))
    with pytest.raises(
        UserError, match=f"not carried over the state of job {loaded_for(JobId('b'))}"
    ):
        world.save(JobId("b"), "again")


def edited(world: Savepoints, change: Callable[[dict[str, Any]], object]) -> None:
    file = Path(world.noon) / "manifest.json"
    manifest = json.loads(file.read_bytes())
    change(manifest)
    file.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda it: it.update(format=2), "has format 2, this version of Onyx reads 1"),
        (lambda it: it.update(kind="backup"), "is that of a backup, and of no savepoint"),
        (lambda it: it["content"].update(tenancy="b"), "is damaged: its digest is another one"),
        (lambda it: it.pop("sha256"), "is damaged"),
    ],
)
def test_a_manifest_that_is_another_one_is_refused(
    world: Savepoints, change: Callable[[dict[str, Any]], object], why: str
) -> None:
    world.save()
    edited(world, change)
    with pytest.raises(StateError, match=why):
        begins(world)
    with pytest.raises(StateError, match=why):
        Client(empty_log(), "balanced").submit(beginning_with(parse_mapping(JOB), world.noon))


def test_files_of_another_layout_are_refused_with_the_version_that_wrote_them(
    world: Savepoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = {"chunk of state": 99}
    monkeypatch.setattr("onyx.backup.savepoints.LAYOUTS", newer)
    world.save()
    with pytest.raises(StateError, match="has chunk of state of format 99, which this version"):
        begins(world)


def test_a_worker_reads_only_savepoints_that_jobs_may_name(world: Savepoints) -> None:
    world.save()
    job = beginning_with(parse_mapping(JOB), world.noon)
    with pytest.raises(UserError, match="lies outside of the folders that jobs may name"):
        savepoint_problems(job, replace(Settings(), job_paths=(str(world.state),)))


def test_what_does_not_fit_is_refused_by_key(world: Savepoints) -> None:
    world.save()

    def wider(job: Job) -> Job:
        return replace(job, windows=(replace(job.windows[0], aggregation="sum"),))

    (problem,) = begins(world, wider)
    assert problem.startswith("spec.upgrade.windows.w: needs an answer: aggregation was")


def test_a_job_that_would_take_over_nothing_has_the_wrong_savepoint(world: Savepoints) -> None:
    world.save()
    entries = ["- {name: lines, plugin: sequence}", "- {name: away, plugin: blackhole}"]
    other = manifest("\n".join(["workflow: [[lines, away]]", "catalog:", *entries]))
    (problem,) = begins(world, lambda job: replace(parse_mapping(other), upgrade=job.upgrade))
    assert problem.startswith("spec.upgrade.savepoint: the job takes over nothing of the saved one")


def test_a_job_on_spark_begins_only_where_nothing_was_in_flight_on_peers(world: Savepoints) -> None:
    path = documents.frontier(ID, 0)
    world.log.put_document(path, b'{"position":3,"sent":5}', world.log.get_document(path).version)
    world.save()
    job = replace(beginning_with(parse_mapping(JOB), world.noon), engine="spark")
    found = [each for each in world.client.examine(job).problems if each.path == "spec.engine"]
    assert "stopped with segments in flight" in found[0].message
    assert found[0].hint.startswith("take the savepoint while nothing comes")
