import msgspec
import pytest
from msgspec.structs import replace
from tests.support.log.replica_log import ReplicaLog

from onyx.client.submissions import submission
from onyx.errors import JobRefused
from onyx.ids import JobId
from onyx.model.job import CatalogEntry, Job, Window
from onyx.replica.commands import Gc, KillJob
from onyx.replica.spec import JobSpec
from onyx.replica.spec_of_job import needs_spark
from onyx.replica.state import Replica

JOB = Job(
    "flights",
    (("read", "parse"), ("parse", "write")),
    (
        CatalogEntry("write", "output", 10, max_peers=1, required_tags=("disk",)),
        CatalogEntry("read", "input", 10, n_peers=2, percentage=30),
        CatalogEntry("parse", "function", 10, min_peers=3, flux_policy="kill", percentage=70),
    ),
)
SHARED = replace(JOB, percentage=40)


def spec(job=JOB, scheduler="balanced"):
    return submission(JobId("j"), job, "d", scheduler).spec


def of_tasks(found, field):
    return {task.name: getattr(task, field) for task in found.tasks}


def test_tasks_stand_in_the_order_of_the_workflow():
    assert [task.name for task in spec().tasks] == ["read", "parse", "write"]
    assert (spec().inputs, spec().outputs) == (("read",), ("write",))


def test_peers_of_tasks_are_at_least_and_at_most_as_many_as_the_catalog_says():
    assert of_tasks(spec(), "min_peers") == {"read": 2, "parse": 3, "write": 1}
    assert of_tasks(spec(), "max_peers") == {"read": 2, "parse": None, "write": 1}
    assert spec().max_peers is None


def test_only_the_percentage_schedulers_get_percentages():
    assert spec().percentage is None
    assert set(of_tasks(spec(), "percentage").values()) == {None}
    assert spec(SHARED, scheduler="percentage").percentage == 40
    by_share = Job("b", JOB.workflow, JOB.catalog, task_scheduler="percentage")
    assert of_tasks(spec(by_share), "percentage") == {"read": 30, "parse": 70, "write": None}


def test_name_and_short_metadata_come_along():
    given = {"jobId": "j", "team": "north", "level": 3, "share": 0.5, "paid": True}
    left_out = {"list": [1], "map": {}, "none": None, "huge": 1 << 63, "nan": float("nan")}
    long = {"text": "x" * 9_999, "k" * 300: "key"}
    found = spec(replace(JOB, metadata={**given, **left_out, **long}))
    assert msgspec.json.decode(msgspec.json.encode(found), type=JobSpec) == found
    assert found.said == {
        "job_name": "flights", "metadata.team": "north", "metadata.level": 3,
        "metadata.share": 0.5, "metadata.paid": True, "metadata.text": "x" * 256,
    }  # fmt: skip
    many = spec(replace(JOB, metadata={f"k{n}": n for n in range(1_000)}))
    assert list(many.metadata) == [f"k{n}" for n in range(16)]


@pytest.mark.parametrize("scheduler", ["balanced", "greedy"])
def test_a_share_that_nothing_would_read_is_refused(scheduler):
    with pytest.raises(JobRefused, match=f"percentage, which has no effect: .* is {scheduler}"):
        spec(SHARED, scheduler=scheduler)


def windowed(**keys):
    entries = (
        CatalogEntry("read", "input", 10),
        CatalogEntry("sums", "reduce", 10, **keys),
        CatalogEntry("write", "output", 10),
    )
    edges = (("read", "sums"), ("read", "write"))
    return Job("w", edges, entries, windows=(Window("sum", "sums", "global", "count"),))


@pytest.mark.parametrize(
    ("keys", "most"),
    [
        ({}, 1),
        ({"max_peers": 4}, 1),
        ({"min_peers": 2}, 2),
        ({"n_peers": 3}, 3),
        ({"group_by_key": "k", "flux_policy": "continue"}, None),
        ({"group_by_fn": "app:key", "flux_policy": "continue", "max_peers": 4}, 4),
    ],
)
def test_state_without_groups_has_one_owner_so_that_more_peers_are_not_asked_for(keys, most):
    assert of_tasks(spec(windowed(**keys)), "max_peers")["sums"] == most


def test_a_reduce_task_at_the_end_is_no_output_but_a_source_that_has_to_end():
    assert spec(windowed()).outputs == ("write",)
    assert spec(windowed()).windowed == ("sums",)


def test_the_machine_takes_what_is_submitted():
    command = submission(JobId("j"), JOB, "d", "balanced")
    log = ReplicaLog()
    replica = log.tell(command)
    assert (replica.rejected, replica.jobs) == (0, ("j",))
    assert replica.digest_of("j") == "d"
    assert replica.spec("j") == command.spec
    assert isinstance(replica, Replica)


@pytest.mark.parametrize(
    ("guarantee", "with_windows", "stateful"),
    [
        ("at-most-once", True, False),
        ("at-least-once", True, True),
        ("at-least-once", False, False),
        ("exactly-once", False, True),
    ],
)
def test_a_job_keeps_state_for_its_windows_and_for_outputs_that_write_once(
    guarantee, with_windows, stateful
):
    job = replace(windowed(), guarantee=guarantee)
    job = job if with_windows else replace(job, windows=(), triggers=())
    assert spec(job).stateful is stateful


@pytest.mark.parametrize(("owner", "kept"), [("OnyxJob/a/b", True), ("x" * 2_000, False)])
def test_the_owner_of_a_job_is_kept_with_it_and_is_no_novel(owner, kept):
    command = submission(JobId("j"), JOB, "d", "balanced", owner)
    log = ReplicaLog()
    log.tell_raw(command.NAME, **msgspec.to_builtins(command))
    assert ("j" in log.new.records, log.new.rejected) == (kept, int(not kept))
    log.tell(KillJob(job="j"))
    assert not kept or log.new.spec("j").owner == owner
    log.tell(Gc(id="someone"))
    assert not log.new.records


def test_a_job_on_spark_is_one_task_that_reads_and_writes_and_has_one_peer():
    found = spec(replace(JOB, engine="spark", guarantee="exactly-once"))
    (task,) = found.tasks
    assert (task.name, task.input, task.output) == ("spark", True, True)
    assert (task.min_peers, task.max_peers, found.max_peers) == (1, 1, 1)
    assert task.required_tags == ("disk", "spark")
    assert not found.stateful


@pytest.mark.parametrize("keeps", ["window", "state", "join"])
def test_what_a_job_on_spark_keeps_between_micro_batches_goes_when_it_has_ended(keeps):
    job = replace(windowed(), engine="spark")
    if keeps != "window":
        parse = replace(JOB.entry("parse"), type="join" if keeps == "join" else "function")
        parse = replace(parse, state={"n": "value[int]"} if keeps == "state" else None)
        job = replace(JOB, engine="spark", catalog=(JOB.entry("read"), parse, JOB.entry("write")))
    assert spec(job).stateful


@pytest.mark.parametrize(
    ("engine", "entry", "tags"),
    [
        ("peers", CatalogEntry("t", "output", plugin="files"), ()),
        ("peers", CatalogEntry("t", "output", plugin="spark"), ("spark",)),
        ("peers", CatalogEntry("t", "input", plugin="spark"), ("spark",)),
        ("peers", CatalogEntry("t", "output", plugin="mine:made"), ()),
        (
            "peers",
            CatalogEntry("t", "output", plugin="spark", required_tags=("big",)),
            ("big", "spark"),
        ),
        (
            "peers",
            CatalogEntry("t", "output", plugin="spark", required_tags=("spark",)),
            ("spark",),
        ),
        (
            "spark",
            CatalogEntry("t", "output", plugin="files", required_tags=("big",)),
            ("big", "spark"),
        ),
    ],
)
def test_what_runs_on_spark_needs_a_peer_that_can(engine, entry, tags):
    other = CatalogEntry("u", "function", fn="m:f")
    job = Job("j", (("t", "u"),), (entry, other), engine=engine)
    found = spec(job)
    assert found.tasks[0].required_tags == tags
    assert engine == "spark" or found.by_name["u"].required_tags == ()


def test_a_spark_stage_is_output_and_input_at_once_and_knows_the_sources_above_it():
    edges = (("read", "sum"), ("read", "stage"), ("sum", "stage"), ("stage", "write"))
    entries = (
        CatalogEntry("read", "input", 10),
        CatalogEntry("sum", "reduce", 10),
        CatalogEntry("stage", "function", 10, spark_stage="m:f", required_tags=("disk",)),
        CatalogEntry("write", "output", 10),
    )
    windows = (Window("all", "sum", "global", "count"),)
    found = spec(replace(JOB, workflow=edges, catalog=entries, windows=windows))
    task = found.by_name["stage"]
    assert (task.input, task.output, task.fed_by) == (True, True, ("read", "sum"))
    assert task.required_tags == ("disk", "spark")
    assert found.by_name["write"].fed_by == ()


def test_a_number_of_ackers_takes_the_place_of_a_percentage():
    assert (spec().ackers, spec().acker_percentage) == (None, 1)
    many = spec(replace(JOB, ackers=3))
    assert (many.ackers, many.acker_percentage) == (3, None)


def test_a_task_whose_windows_spark_computes_needs_a_peer_that_can():
    windows = (Window("all", "parse", "global", "count", engine="spark"),)
    found = spec(replace(JOB, windows=windows))
    assert found.by_name["parse"].required_tags == ("spark",)
    assert found.by_name["read"].required_tags == ()
    assert needs_spark(replace(JOB, windows=windows)) == "spec.catalog[2]"
    assert needs_spark(JOB) is None
