"""A job by calls, a job as YAML and a job as a value are the same job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.conformance.on_spark import drawn
from tests.support.drawn_jobs import OPTIONS, TEXT, jobs
from tests.support.examples import examples

from onyx.builder import Job, Sink, Source
from onyx.builder.types import WindowShape
from onyx.errors import ManifestError
from onyx.model import job as model
from onyx.model.keys.section import Section, SectionEntry
from onyx.model.manifest import OBJECT_SPEC, SECTIONS
from onyx.model.parsing.job import parse_manifest, to_mapping
from onyx.model.workflow import parents, tasks, topological_order

ROOT = Path(__file__).parents[2]


def arguments(section: Section, entry: Mapping[str, Any], *placed: str) -> dict[str, Any]:
    """Keys of a manifest by the names of Python, without those that have a place of their own."""
    fields = {}
    for name, value in entry.items():
        key = section.by_yaml[name]
        within = key.kind.section if isinstance(key.kind, SectionEntry) else None
        fields[key.field] = value if within is None else arguments(within, value)
    return {name: value for name, value in fields.items() if name not in placed}


def by_calls(job: model.Job) -> Job:
    """The job, put together call by call."""
    mapping = to_mapping(job)
    spec = mapping["spec"]
    lists = ("workflow", "catalog", "windows", "triggers", "lifecycles", "flow_conditions")
    made = Job(job.name, **arguments(OBJECT_SPEC, spec, *lists))
    above = parents(job.workflow)
    entries = {each["name"]: each for each in spec["catalog"]}
    for each in entries.values():
        if each["type"] == "table":
            made = added(made, each, ())
    for name in topological_order(job.workflow):
        made = added(made, entries[name], above[name])
    for each in spec.get("windows", ()):
        keys = arguments(SECTIONS["windows"], each, "id", "task", "type", "aggregation")
        shape = WindowShape(each["type"], {})
        made = made.window(shape, each["aggregation"], id=each["id"], task=each["task"], **keys)
    for each in spec.get("triggers", ()):
        keys = arguments(SECTIONS["triggers"], each, "window_id", "type")
        made = made.trigger(each["type"], window=each["windowId"], **keys)
    for each in spec.get("flowConditions", ()):
        keys = arguments(SECTIONS["flowConditions"], each, "from_task", "to", "predicate")
        made = made.condition(each["predicate"], each["to"], of=each["from"], **keys)
    for each in spec.get("lifecycles", ()):
        keys = arguments(SECTIONS["lifecycles"], each, "task", "calls")
        made = made.lifecycle(each["calls"], task=each["task"], **keys)
    return made


def added(made: Job, entry: dict[str, Any], above: tuple[str, ...]) -> Job:
    name, options = entry["name"], entry.get("options", {})
    keys = arguments(SECTIONS["catalog"], entry, "name", "type", "plugin", "options", "spark_stage")
    if entry["type"] == "input":
        return made.read(Source(entry["plugin"], options), name=name, **keys)
    if entry["type"] == "table":
        return made.table(name, Source(entry["plugin"], options), **keys)
    made = made.at(*above)
    if entry["type"] == "output":
        return made.write(Sink(entry["plugin"], options), name=name, **keys)
    if entry["type"] == "join":
        return made.join_streams(name, **keys)
    if entry["type"] == "reduce":
        return made.reduce(name, options=options, **keys)
    if "sparkStage" in entry:
        return made.spark_stage(entry["sparkStage"], name=name).set(options=options, **keys)
    if "sparkSql" in entry:
        return made.spark_sql(keys.pop("spark_sql"), name=name).set(options=options, **keys)
    if "sql" in entry:
        return made.sql(keys.pop("sql"), name=name).set(options=options, **keys)
    if "join" in entry:
        return made.join(name, **keys.pop("join")).set(options=options, **keys)
    if "processor" in entry:
        return made.process(keys.pop("processor"), name=name).set(options=options, **keys)
    return made.map(keys.pop("fn"), name=name).set(options=options, **keys)


def sorted_out(job: model.Job) -> model.Job:
    """The job with tasks and edges in one order."""
    catalog = sorted(job.catalog, key=lambda each: each.name)
    return replace(job, catalog=tuple(catalog), workflow=tuple(sorted(job.workflow)))


@given(jobs() | drawn.jobs())
@settings(max_examples=examples(60), deadline=None)
def test_calls_give_the_job_of_the_manifest(job: model.Job) -> None:
    assert sorted_out(by_calls(job).build()) == sorted_out(job)


@given(jobs() | drawn.jobs())
@settings(max_examples=examples(60), deadline=None)
def test_a_job_comes_back_from_its_yaml(job: model.Job) -> None:
    made = by_calls(job)
    again = Job.from_yaml(made.to_yaml())
    assert again.manifest() == made.manifest()
    assert again.build() == made.build()
    assert parse_manifest(made.to_yaml()) == made.build()


@given(st.dictionaries(TEXT | st.text("yn0:-#& 1.eE_on", max_size=6), OPTIONS | TEXT, max_size=4))
@settings(max_examples=examples(200), deadline=None)
def test_text_comes_back_from_yaml_as_it_was(options: dict[str, Any]) -> None:
    made = Job("job").read(Source("my.plugins:make", {**options, "again": options}))
    made = made.write(Sink("blackhole", {}))
    assert Job.from_yaml(made.to_yaml()).build() == made.build()


@pytest.mark.parametrize(
    "file",
    [
        each
        for each in sorted((ROOT / "examples").rglob("*.yaml"))
        if b"OnyxJob" in each.read_bytes()
    ],
    ids=lambda each: f"{each.parent.name}/{each.name}",
)
def test_examples_come_back_by_calls_and_from_yaml(file: Path) -> None:
    job = parse_manifest(file.read_text())
    made = Job.from_yaml(file.read_text())
    assert made.build() == Job.from_yaml(made.to_yaml()).build() == job
    assert sorted_out(by_calls(job).build()) == sorted_out(job)


@given(jobs(), st.data())
@settings(max_examples=examples(40), deadline=None)
def test_a_job_that_is_gone_on_from_stays_as_it_was(job: model.Job, data: st.DataObject) -> None:
    made = Job.from_manifest(to_mapping(job))
    before = made.manifest()
    task = data.draw(st.sampled_from(tasks(job.workflow)))
    more = made.at(task).set(doc="new").when((">", "n", 1)).map("app:g", name="more")
    assert made.manifest() == before
    assert more.manifest() != before


@given(jobs(), st.data())
@settings(max_examples=examples(40), deadline=None)
def test_every_job_has_a_drawing(job: model.Job, data: st.DataObject) -> None:
    made = Job.from_manifest(to_mapping(job))
    drawn_once = made._repr_svg_()
    assert drawn_once.count("<rect") == len(job.catalog)
    assert drawn_once.count("marker-end") == len(job.workflow)


def test_a_manifest_that_is_wrong_is_refused_with_its_line() -> None:
    text = (
        "apiVersion: onyx.dev/v1beta1\nkind: OnyxJob\nmetadata: {name: j}\nspec: {catalogue: []}\n"
    )
    with pytest.raises(ManifestError, match=r"job\.yaml:4: spec\.catalogue"):
        Job.from_yaml(text, "job.yaml")
