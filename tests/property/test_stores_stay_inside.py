"""No store reads, writes or removes anything outside of its root, whatever the names are."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.examples import examples
from tests.support.hostile_names import hostile_names
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.object_stores import ObjectStore

from onyx.errors import OnyxError, UserError
from onyx.ids import GroupId, JobId, TaskName
from onyx.log import documents
from onyx.log.paths import Paths
from onyx.log.zookeeper.chunks import Chunks
from onyx.plugins.parts.folders import parts_at
from onyx.plugins.sql.output import Target
from onyx.spark.child.request import StageRequest
from onyx.spark.stage.frames import folder_of
from onyx.spark.stage.output import FolderWorkspace, run_folder_stage
from onyx.spark.stage.versions import Notes
from onyx.state.location import open_store
from onyx.state.names import LogKey, TaskFolder
from onyx.storage.interface import BlobStore, MemoryBlobStore
from onyx.storage.opening import location_of

SECRET = b"of another"
hostile = settings(
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@contextlib.contextmanager
def surrounded() -> Iterator[Path]:
    """A root in the middle of files of others, none of which may change."""
    with tempfile.TemporaryDirectory(prefix="inside-") as name:
        outside = Path(name)
        for folder in (".", "victim", "a", "job", "b"):
            (outside / folder).mkdir(exist_ok=True)
            (outside / folder / "kept").write_bytes(SECRET)
            (outside / folder / ".hidden").write_bytes(SECRET)
        (outside / "root").mkdir()
        (outside / "root" / "kept").write_bytes(SECRET)
        before = _tree(outside)
        yield outside / "root"
        assert _tree(outside) == before


def _tree(outside: Path) -> dict[str, bytes]:
    """All files but those that are made below the root."""
    files = {path.relative_to(outside): path for path in outside.rglob("*") if path.is_file()}
    return {
        str(name): path.read_bytes()
        for name, path in files.items()
        if "root" not in name.parts or name.name == "kept"
    }


def _try_everything(store: BlobStore, job: str, task: str) -> None:
    """What the engine does with names; that nothing comes from elsewhere."""
    place = TaskFolder(job, task)
    for name in (job, f"{job}/{task}", f"{job}/kept", place.chunk(LogKey(1, 0), 0)):
        with contextlib.suppress(UserError):
            assert store.read(name) != SECRET
            store.create(name, b"ours")
            store.delete(name)
    for prefix in (f"{job}/", place.prefix):
        with contextlib.suppress(UserError):
            for each in store.list(prefix):
                assert store.read(each.name) != SECRET
    with contextlib.suppress(UserError):
        store.remove_tree(job)


@hostile
@given(job=hostile_names, task=hostile_names)
def test_of_chunks_in_a_directory(job: str, task: str) -> None:
    with surrounded() as root:
        _try_everything(open_store(str(root)), job, task)


@hostile
@given(job=hostile_names, task=hostile_names)
def test_of_chunks_in_an_object_store(fake_store: ObjectStore, job: str, task: str) -> None:
    for key in ("kept", "state-2/kept", "victim/kept"):
        fake_store.put(key, SECRET)
    _try_everything(open_store(f"{fake_store.url}/state"), job, task)
    for key in ("kept", "state-2/kept", "victim/kept"):
        assert fake_store.get(key) == SECRET


@hostile
@given(job=hostile_names, task=hostile_names)
def test_the_twin_of_these_stores_refuses_the_same_names(job: str, task: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        answers = [
            _accepts(store, f"{job}/{task}") for store in (open_store(folder), MemoryBlobStore())
        ]
    assert answers[0] == answers[1]


def _accepts(store: BlobStore, name: str) -> bool:
    try:
        return store.create(name, b"-")
    except UserError:
        return False


@hostile
@given(job=hostile_names, task=hostile_names, writer=hostile_names, part=hostile_names)
def test_of_parts_in_a_directory(job: str, task: str, writer: str, part: str) -> None:
    context = replace(plugin_context({}), job=JobId(job), task=TaskName(task))
    with surrounded() as root, contextlib.suppress(UserError):
        place = parts_at(location_of(str(root)), context)
        place.create("part-1").file.write(b"ours")
        with contextlib.suppress(UserError):
            place.finish({"writer": writer, "name": part})
        place.fence([])
        place.close()


@hostile
@given(job=hostile_names, task=hostile_names)
def test_of_parts_in_an_object_store(fake_store: ObjectStore, job: str, task: str) -> None:
    context = replace(plugin_context({}), job=JobId(job), task=TaskName(task))
    fake_store.put("victim/kept", SECRET)
    with contextlib.suppress(UserError):
        place = parts_at(location_of(f"{fake_store.url}/out"), context)
        place.create("part-1")
        place.fence([GroupId("another")])
        place.close()
    assert fake_store.get("victim/kept") == SECRET


@hostile
@given(job=hostile_names)
def test_of_the_parts_and_results_of_a_stage(job: str) -> None:
    with surrounded() as root, contextlib.suppress(OnyxError):
        place = FolderWorkspace(location_of(str(root)), JobId(job), permitted=lambda: True)
        assert Notes(place.location).where(JobId(job)).local == root / "parts" / job
        staging = root / "staging"
        staging.mkdir()
        request = StageRequest("m:f", name="n")
        run_folder_stage(place, lambda: staging, request, _no_runner, 1.0)


def _no_runner(*_: object) -> None:
    raise AssertionError("there are no parts")


@hostile
@given(
    name=hostile_names,
    path=st.sampled_from([documents.frontiers, documents.location, documents.exception]),
)
def test_of_nodes_in_zookeeper(name: str, path: object) -> None:
    paths = Paths("tenancy")
    makers = (
        lambda: paths.document(path(JobId(name))),  # type: ignore[operator]
        lambda: paths.folder(path(JobId(name))),  # type: ignore[operator]
        lambda: paths.pulse(GroupId(name)),
        lambda: paths.chunk(name),
    )
    for make in makers:
        with contextlib.suppress(UserError):
            node = make()
            assert node.startswith("/onyx/tenancy/")
            assert not {"", ".", ".."} & set(node.split("/")[1:])
            assert len(node) < 1_000


@hostile
@given(tenancy=hostile_names)
def test_of_tenancies_in_zookeeper(tenancy: str) -> None:
    with contextlib.suppress(UserError):
        assert Paths(tenancy).root.split("/") == ["", "onyx", tenancy]


# --- links that somebody puts where we remove ----------------------------------------------------


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A folder of somebody else, which may not change."""
    folder = tmp_path / "victim"
    for name in ("00000000000000000001-00000", "log", "dead.0"):
        (folder / name).mkdir(parents=True)
        (folder / name / "00000000").write_bytes(SECRET)
    before = _tree(tmp_path)
    yield folder
    after = _tree(tmp_path)
    assert {name: after.get(name) for name in before} == before
    assert not set(after) - set(before)


@pytest.mark.parametrize("where", ["job", "job/task", "job/task/00000000000000000001-00000"])
def test_state_behind_a_link_is_neither_read_nor_written_nor_removed(
    tmp_path: Path, victim: Path, where: str
) -> None:
    root = tmp_path / "root"
    (root / where).parent.mkdir(parents=True)
    target = victim / "log" if where.endswith("-00000") else victim
    (root / where).symlink_to(target, target_is_directory=True)
    store = open_store(str(root))
    chunk = TaskFolder("job", "task").chunk(LogKey(1, 0), 0)

    for use in (lambda: store.create(chunk, b"ours"), lambda: store.read(chunk)):
        with pytest.raises(UserError, match="ONYX_STATE_URL"):
            use()
    with contextlib.suppress(UserError):
        store.remove_tree("job")
    with contextlib.suppress(UserError):
        store.delete(chunk)


def test_a_chunk_that_is_a_link_is_not_read_and_of_it_the_link_is_removed(
    tmp_path: Path, victim: Path
) -> None:
    folder = tmp_path / "root" / "job" / "task"
    folder.mkdir(parents=True)
    (folder / "1").symlink_to(victim / "log" / "00000000")
    store = open_store(str(tmp_path / "root"))

    assert store.list("job/") == []
    with pytest.raises(UserError):
        store.read("job/task/1")
    store.delete("job/task/1")
    assert not (folder / "1").is_symlink()


@pytest.mark.parametrize("where", [".staging", ".staging/job-1.work"])
def test_a_link_in_the_place_of_staging_is_refused_and_nothing_behind_it_is_removed(
    tmp_path: Path, victim: Path, where: str
) -> None:
    root = tmp_path / "root"
    (root / where).parent.mkdir(parents=True)
    (root / where).symlink_to(victim, target_is_directory=True)
    if where == ".staging":
        (victim / "job-1.work").mkdir()
    place = parts_at(location_of(str(root)), plugin_context({}))

    for use in (lambda: place.fence([]), lambda: place.create("part-1")):
        with pytest.raises(
            UserError, match="is a link, but must be a directory of Onyx: remove it"
        ):
            use()
    place.close()


def test_links_below_staging_are_removed_and_what_they_point_to_is_not(
    tmp_path: Path, victim: Path
) -> None:
    staging = tmp_path / "root" / ".staging" / "job-1.work"
    (staging / "dead.1").mkdir(parents=True)
    for link in (staging / "dead.0", staging / "gone.dead.2", staging / "dead.1" / "inner"):
        link.symlink_to(victim, target_is_directory=True)
    place = parts_at(location_of(str(tmp_path / "root")), plugin_context({}))

    place.fence([])

    assert list(staging.iterdir()) == []


def test_digests_of_documents_in_zookeeper_are_names_too() -> None:
    chunks = Chunks(None, Paths("t"), 1_000)  # type: ignore[arg-type] # no request is ever made
    with pytest.raises(UserError, match="digest of a document"):
        chunks.get("../../other")


@hostile
@given(hostile_names)
def test_a_frame_is_a_folder_below_its_result_or_none(name: str) -> None:
    place = Path("/data/out")
    with contextlib.suppress(UserError):
        found = folder_of(place, name)
        assert found.resolve() == place / "frames" / name
        assert name.isidentifier()


@hostile
@given(hostile_names)
def test_a_table_is_no_path(name: str) -> None:
    for table, schema, positions in ((name, None, "p"), ("t", name, "p"), ("t", None, name)):
        with contextlib.suppress(UserError):
            Target(table, schema, None, (), positions)
            assert not set("/\\\0\n;\"'") & set(name)
            assert ".." not in name
