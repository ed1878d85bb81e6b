"""What each call adds to a job, and what is refused at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.support.jobs import job_functions as own

from onyx.builder import (
    Job,
    blackhole,
    files,
    fixed,
    plugin,
    sequence,
    session,
    sliding,
    stdout,
    whole,
)
from onyx.errors import ManifestError, UserError
from onyx.model.parsing.job import parse_manifest

READS = sequence(segments=[{"n": 1}])
READ = Job("job").read(READS)


def spec(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = job.manifest()["spec"]
    return found


def test_the_calls_of_a_chain_are_a_path_of_tasks() -> None:
    job = READ.map(own.inc).map("app:twice", name="double", by=2).write(stdout())
    assert spec(job)["workflow"] == [["read", "inc"], ["inc", "double"], ["double", "write"]]
    double = spec(job)["catalog"][2]
    assert double["fn"] == "app:twice"
    assert (double["params"], double["options"]) == (["by"], {"by": 2})


def test_a_processor_is_a_class_that_params_are_given_to() -> None:
    job = READ.process(own.Sums, by=2).write(stdout())
    sums = spec(job)["catalog"][1]
    assert sums["processor"] == f"{own.Sums.__module__}:Sums"
    assert (sums["name"], sums["params"], sums["options"]) == ("Sums", ["by"], {"by": 2})


def test_two_outputs_in_a_row_get_the_same_segments() -> None:
    job = READ.map(own.inc).write(files("out")).write(stdout(), name="print")
    assert spec(job)["workflow"][1:] == [["inc", "write"], ["inc", "print"]]


def test_a_table_is_beside_the_path_and_a_join_on_it() -> None:
    job = READ.table("names", files("names.csv"), key="id", version_key="since")
    job = job.join("named", table="names", key="n", under="is", at="time").write(stdout())
    assert spec(job)["workflow"] == [["read", "named"], ["named", "write"]]
    _, table, named, _ = spec(job)["catalog"]
    assert table == {
        "name": "names", "type": "table", "plugin": "files", "options": {"path": "names.csv"},
        "key": "id", "versionKey": "since",
    }  # fmt: skip
    assert named["join"] == {"table": "names", "key": "n", "as": "is", "at": "time"}


def test_sql_stands_in_the_place_of_a_function() -> None:
    job = READ.sql("select n + 1 as n from segments", name="more")
    job = job.spark_sql("select sum(n) as n from more", path="bundles").write(stdout())
    assert spec(job)["workflow"] == [["read", "more"], ["more", "spark"], ["spark", "write"]]
    assert spec(job)["catalog"][1]["sql"] == "select n + 1 as n from segments"
    assert spec(job)["catalog"][2]["options"] == {"path": "bundles"}


def test_set_is_about_the_latest_task_and_puts_options_together() -> None:
    job = READ.map(own.inc, by=2).set(batch_size=7, options={"more": 1}).write(stdout())
    job = job.set(n_peers=1)
    read, inc, write = spec(job)["catalog"]
    assert "batchSize" not in read
    assert (inc["batchSize"], inc["options"]) == (7, {"by": 2, "more": 1})
    assert write["nPeers"] == 1


def test_a_branch_begins_at_a_task_and_ends_in_one_that_is_there() -> None:
    job = READ.map(own.inc).map("app:more", name="more").write(blackhole())
    job = job.at("inc").map("app:other", name="other").to("write")
    assert spec(job)["workflow"][-2:] == [["inc", "other"], ["other", "write"]]


def test_what_comes_after_when_gets_only_some_segments() -> None:
    job = READ.when((">", "n", 3), short_circuit=True).map(own.inc).write(stdout())
    job = job.at("read").when(("and", own.even, ("not", own.even))).to("write")
    first, second = spec(job)["flowConditions"]
    assert first["predicate"] == [">", "n", 3]
    assert (first["from"], first["to"], first["shortCircuit"]) == (["read"], ["inc"], True)
    name = f"{own.__name__}:even"
    assert second["predicate"] == ["and", name, ["not", name]]
    assert second["to"] == ["write"]


def test_a_condition_between_tasks_that_are_there() -> None:
    job = READ.map(own.inc).write(stdout())
    job = job.condition(own.even, "all", of="inc", short_circuit=True)
    job = job.condition(own.even, "write", of=["inc"], short_circuit=True)
    assert [(each["from"], each["to"]) for each in spec(job)["flowConditions"]] == [
        ("inc", "all"),
        (["inc"], ["write"]),
    ]


def test_groups_are_those_of_the_next_task() -> None:
    job = READ.group_by(["a", "b"], on_missing_key="group").map(own.inc)
    job = job.group_by(own.even, flux_policy="kill").write(stdout())
    _, inc, write = spec(job)["catalog"]
    assert (inc["groupByKey"], inc.get("fluxPolicy")) == (["a", "b"], None)
    built = READ.group_by("a").map(own.inc).write(stdout()).build()
    assert built.entry("inc").flux_policy == "continue", "as in a file"
    assert inc["onMissingKey"] == "group"
    assert (write["groupByFn"], write["fluxPolicy"]) == (f"{own.__name__}:even", "kill")


@pytest.mark.parametrize(
    ("shape", "keys"),
    [
        (fixed("at", "1 hour"), {"type": "fixed", "windowKey": "at", "range": "1 hour"}),
        (
            sliding("at", (5, "minutes"), timedelta(minutes=1), min_value=3),
            {"type": "sliding", "windowKey": "at", "range": [5, "minutes"]}
            | {"slide": [60_000, "milliseconds"], "minValue": 3},
        ),
        (session("at", "5 minutes", session_key="user"),
         {"type": "session", "windowKey": "at", "timeoutGap": "5 minutes", "sessionKey": "user"}),
        (whole(), {"type": "global"}),
    ],
)  # fmt: skip
def test_a_window_gets_a_task_of_its_own(shape: Any, keys: dict[str, Any]) -> None:
    job = Job("job", guarantee="exactly-once").read(sequence(segments=[]), watermark_key="at")
    job = job.group_by("user").window(shape, ("sum", "amount"), id="sums", doc="of all")
    job = job.trigger("watermark", emit=own.nothing).trigger("timer", period="1 minute")
    task = spec(job)["catalog"][1]
    assert (task["name"], task["type"], task["groupByKey"]) == ("sums", "reduce", "user")
    (window,) = spec(job)["windows"]
    assert window == {
        "id": "sums", "task": "sums", "aggregation": ["sum", "amount"], "doc": "of all", **keys
    }  # fmt: skip
    assert [each["windowId"] for each in spec(job)["triggers"]] == ["sums", "sums"]


def test_a_window_may_be_that_of_a_task_that_is_there() -> None:
    job = READ.map(own.inc).window(whole(), "count", task="inc").window(whole(), "count", id="w")
    assert [(each["id"], each["task"]) for each in spec(job)["windows"]] == [
        ("window", "inc"),
        ("w", "w"),
    ]


def test_lifecycles_are_about_the_latest_task_or_all() -> None:
    job = Job("job").lifecycle("app:calls").read(sequence(segments=[])).lifecycle("app:calls")
    assert [each["task"] for each in spec(job)["lifecycles"]] == ["all", "read"]


def test_a_plugin_of_ones_own_keeps_the_names_of_its_options() -> None:
    job = Job("job").read(plugin(own.inc, file_name="a.db", on=own.even))
    (read,) = spec(job)["catalog"]
    assert read["plugin"] == f"{own.__name__}:inc"
    assert read["options"] == {"file_name": "a.db", "on": f"{own.__name__}:even"}


def test_the_keys_of_a_job_have_the_names_of_python() -> None:
    job = Job("job", guarantee="exactly-once", failure_policy={"retries": 2, "backoff_seconds": 1})
    assert spec(job) == {
        "guarantee": "exactly-once",
        "failurePolicy": {"retries": 2, "backoffSeconds": 1},
    }


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Job("job").map(own.inc), r"no task to go on from: begin with read\(\)"),
    (lambda: Job("job").set(batch_size=1), r"no task yet whose keys could be set"),
    (lambda: READ.read(stdout()), r"has a task 'read' already"),  # type: ignore[arg-type]
    (lambda: READ.at("raed"), r"no task 'raed': did you mean read\?"),
    (lambda: Job("job").at("read"), r"no task 'read': it has none yet"),
    (lambda: READ.set(batchSize=1), r"batchSize is not a key of a catalog entry: did you mean"),  # type: ignore[call-arg]
    (lambda: READ.trigger("watermark"), r"no window yet that could fire"),
    (lambda: Job("job").condition("app:f", "all"), r"no task that the condition could be about"),
    (lambda: READ.group_by("n").read(READS, name="more"), r"more is an input"),
    (lambda: files("a", "b"), r"2 arguments without a name are given"),  # type: ignore[call-overload]
]


@pytest.mark.parametrize(("call", "why"), WRONG, ids=[why for _, why in WRONG])
def test_what_cannot_be_meant_is_refused_at_once(call: Callable[[], object], why: str) -> None:
    with pytest.raises(UserError, match=why):
        call()


def test_what_is_not_valid_is_refused_with_all_problems_when_the_job_is_used() -> None:
    job = READ.map("no name", name="work").set(batch_size=-1)
    with pytest.raises(ManifestError) as caught:
        job.to_yaml()
    paths = [problem.path for problem in caught.value.problems]
    assert {"spec.catalog[1].fn", "spec.catalog[1].batchSize"} <= {*paths}


YAML = """\
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: ages}
spec:
  workflow:
  - [read, age]
  - [age, write]
  catalog:
  - name: read
    type: input
    plugin: files
    options:
      path: people.csv
      types: {born: int}
  - name: age
    type: function
    fn: ages:age
    params: [year]
    options: {year: 2013}
  - name: write
    type: output
    plugin: files
    options:
      path: "on"
"""


def test_the_yaml_is_as_people_write_it() -> None:
    job = Job("ages").read(files("people.csv", types={"born": "int"}))
    job = job.map("ages:age", year=2013).write(files("on"))
    assert job.to_yaml() == YAML
    assert parse_manifest(YAML) == job.build()


def test_a_job_goes_on_from_a_file_that_leaves_out_what_it_may() -> None:
    text = """spec:
  catalog:
    - {name: read, plugin: sequence, options: {segments: []}}
    - {name: write, plugin: stdout}
"""
    job = Job.from_yaml(text, "short.yaml").at("read").write(stdout(), name="also")
    assert (job.build().name, job.build().workflow) == (
        "short",
        (("read", "write"), ("read", "also")),
    )
    assert Job.from_manifest({"metadata": {"name": "x"}, "spec": spec(job)}).build().catalog
    assert Job.from_manifest({"spec": {"catalog": []}}).manifest() == {"spec": {"catalog": []}}
