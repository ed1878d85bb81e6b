"""What a job lacks on this machine is said before it runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.jobs.plugin_context import plugin_context
from tests.support.jobs.yaml_jobs import manifest
from tests.support.servers.object_stores import ObjectStore

from onyx.errors import UserError
from onyx.ids import JobId
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.plugins.registry import build_output
from onyx.settings import Settings
from onyx.spark.session import masters
from onyx.storage.opening import location_of
from onyx.submission import here
from onyx.submission.here import not_here, nothing_since, published, why_not_here

PLAIN = "{name: read, type: input, plugin: files, options: {path: in.jsonl}}"
OUT = "{name: write, type: output, plugin: files, options: {path: out}}"
PART = "part-write--{job}--0-0123456789ab-000000.jsonl"


def job(read: str = PLAIN, write: str = OUT, more: str = "") -> Job:
    text = f"workflow: [[read, write]]\ncatalog: [{read}, {write}]\n{more}"
    return parse_mapping(manifest(text))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "in.jsonl").write_text("{}\n")
    return Settings(data_dir=str(tmp_path))


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (here, masters):
        monkeypatch.setattr(module, "is_here", lambda name: False)


def part_of(job: str, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    part = folder / PART.format(job=job)
    part.write_text("{}\n")
    return part


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (
            job(
                "{name: read, type: input, plugin: kafka, options: {bootstrapServers: 'k:1', "
                "topic: t}}"
            ),
            [("spec.catalog[0].plugin", "confluent_kafka", "[kafka]")],
        ),
        (
            job("{name: read, type: input, plugin: redis, options: {stream: s, url: 'redis://r'}}"),
            [("spec.catalog[0].plugin", "redis", "[redis]")],
        ),
        (
            job("{name: read, type: input, plugin: http}"),
            [("spec.catalog[0].plugin", "uvicorn", "[http]")],
        ),
        (
            job("{name: read, type: input, plugin: files, options: {path: 's3://b/*.csv'}}"),
            [("spec.catalog[0].options.path", "botocore", "[s3]")],
        ),
        (job(more="engine: spark"), [("spec.engine", "pyspark", "[spark]")]),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    made: Job, found: list[tuple[str, str, str]], settings: Settings, nothing_installed: None
) -> None:
    for problems in (why_not_here(made, settings), not_here(made, settings)):
        assert [each.path for each in problems] == [path for path, _, _ in found]
        for each, (_, module, extra) in zip(problems, found, strict=True):
            assert module in each.message
            assert extra in each.hint


def test_tags_that_no_worker_here_has_are_not_waited_for(settings: Settings) -> None:
    made = job(PLAIN.replace("type: input", "type: input, requiredTags: [gpu]"))
    (problem,) = why_not_here(made, settings)
    assert (problem.path, problem.hint) == ("spec.catalog[0].requiredTags", "set ONYX_TAGS=gpu")
    assert not_here(made, settings) == []


def test_spark_that_is_switched_off_is_not_waited_for(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here, "is_here", lambda name: True)
    off = Settings(data_dir=str(tmp_path), spark=False)
    (problem,) = why_not_here(job(more="engine: spark"), off)
    assert (problem.path, problem.hint) == ("spec.engine", "set ONYX_SPARK=true")


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("missing.jsonl", "matches no file here"),
        ("*.csv", "matches no file here"),
        (".", "is a directory"),
        ("/etc/hostname", "outside of the folders"),
    ],
)
def test_a_path_that_leads_nowhere_is_named(path: str, what: str, settings: Settings) -> None:
    (problem,) = why_not_here(job(PLAIN.replace("in.jsonl", f"'{path}'")), settings)
    assert problem.path == "spec.catalog[0].options.path"
    assert what in problem.message


def test_a_file_beside_the_job_is_pointed_at(settings: Settings, tmp_path: Path) -> None:
    elsewhere = tmp_path / "jobs"
    elsewhere.mkdir()
    (elsewhere / "near.jsonl").write_text("{}\n")
    made = job(PLAIN.replace("in.jsonl", "near.jsonl"))
    (problem,) = why_not_here(made, settings, elsewhere / "job.yaml")
    assert f"go to {elsewhere}" in problem.hint


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("file", "is file, which is a file"),
        ("file/below", "is file/below, and {here}/file is a file"),
        ("locked", "is locked, which is not writable"),
        ("locked/a/b", "is locked/a/b, and {here}/locked is not writable"),
    ],
)
def test_an_output_needs_a_folder_that_may_be_written(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, what: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "locked").mkdir()
    may = os.access  # to root all is writable
    locked = lambda at, mode: may(at, mode) and not str(at).endswith("locked")  # noqa: E731
    monkeypatch.setattr(os, "access", locked)
    (problem,) = why_not_here(job(write=OUT.replace("path: out", f"path: {path}")), settings)
    assert problem.message == what.format(here=tmp_path)
    assert problem.hint


def test_a_run_refuses_to_write_beside_another_one(settings: Settings, tmp_path: Path) -> None:
    assert why_not_here(job(), settings) == []
    part_of("other", tmp_path / "out")
    (problem,) = why_not_here(job(), settings)
    assert problem.path == "spec.catalog[1].options.path"
    assert "a part of another run lies" in problem.message
    assert not_here(job(), settings) == [problem]


def test_a_run_writes_beside_another_one_where_it_is_told_or_goes_on(
    settings: Settings, tmp_path: Path
) -> None:
    part_of("other", tmp_path / "out")
    appends = OUT.replace("path: out", "path: out, existing: append")
    assert why_not_here(job(write=appends), settings) == []
    assert why_not_here(job(), settings, resumes=True) == []
    assert why_not_here(job(more="upgrade: {from: old}"), settings) == []


def test_only_parts_are_replaced_and_only_by_a_job_that_can_begin(
    settings: Settings, tmp_path: Path
) -> None:
    part, own = part_of("other", tmp_path / "out"), tmp_path / "out" / "notes.jsonl"
    own.write_text("{}\n")
    wrong = job(PLAIN.replace("in.jsonl", "missing.jsonl"))
    assert len(why_not_here(wrong, settings, replaces=True)) == 1
    assert part.exists()

    assert why_not_here(job(), settings, replaces=True) == []
    assert [*(tmp_path / "out").iterdir()] == [own]


@pytest.mark.parametrize("base", ["", "."])
def test_what_a_job_reads_is_not_replaced(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings, part = Settings(data_dir=base), part_of("other", tmp_path / "out")
    with pytest.raises(UserError, match=r"job .* reads .*: name another folder"):
        why_not_here(job(PLAIN.replace("in.jsonl", "out/*.jsonl")), settings, replaces=True)
    assert part.exists()


def test_a_bucket_is_asked_only_by_a_run(settings: Settings, fake_store: ObjectStore) -> None:
    made = job(
        PLAIN.replace("in.jsonl", f"'{fake_store.url}/in/*.jsonl'"),
        OUT.replace("path: out", f"path: '{fake_store.url}/out'"),
    )
    location = location_of(f"{fake_store.url}/out")
    location.create(PART.format(job="other"), b"{}")

    assert not_here(made, settings) == []
    assert [each.path for each in why_not_here(made, settings)] == [
        "spec.catalog[0].options.path",
        "spec.catalog[1].options.path",
    ]
    location_of(f"{fake_store.url}/in").create("1.jsonl", b"{}")
    assert why_not_here(made, settings, replaces=True) == []
    assert location.list("") == []


@pytest.mark.parametrize(
    ("existing", "upgrades", "there", "refused"),
    [
        ("refuse", None, ["other"], True),
        ("refuse", None, ["other", "job-1"], False),
        ("refuse", None, [], False),
        ("refuse", "other", ["other"], False),
        ("append", None, ["other"], False),
    ],
)
def test_a_worker_refuses_a_folder_of_others_where_the_job_says_so(
    existing: str, upgrades: str | None, there: list[str], refused: bool, tmp_path: Path
) -> None:
    context = plugin_context(
        {"path": str(tmp_path / "out"), "existing": existing},
        upgrades=None if upgrades is None else JobId(upgrades),
    )
    for each in there:
        part_of(each, tmp_path / "out")
    if refused:
        with pytest.raises(UserError, match="'path' has parts of other jobs"):
            build_output("files", context)
    else:
        build_output("files", context).close()


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ('"2002-01-01T00:00:00Z"', ["no file was modified since 2002-01-01T00:00:00+00:00"]),
        ("{timeAgo: 1 hours}", ["no file was modified since "]),
        ('"2001-01-01T00:00:00Z"', []),
        ("beginning", []),
        ("{position: 5}", []),
    ],
)
def test_an_input_whose_files_are_all_older_than_its_beginning_is_warned_of(
    start: str, said: list[str], settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "older.jsonl").write_text("")
    for day, name in enumerate(("in.jsonl", "older.jsonl")):
        at_s = 1_000_000_000 - day * 86_400  # in September 2001
        os.utime(tmp_path / name, (at_s, at_s))
    reads = PLAIN.replace("in.jsonl", f"'*.jsonl', startFrom: {start}")
    found = nothing_since(job(reads), settings)
    assert [each.path for each in found] == ["spec.catalog[0].options.startFrom" for _ in said]
    assert all(words in str(each) for words, each in zip(said, found, strict=True))
    both = [*why_not_here(job(reads), settings), *found]
    assert [each.path for each in both] == [each.path for each in not_here(job(reads), settings)]


def test_nothing_is_said_of_files_that_are_not_there_or_in_a_store_that_does_not_answer(
    settings: Settings,
) -> None:
    for path in ("absent/*.jsonl", "s3://nowhere/in.jsonl"):
        reads = PLAIN.replace("in.jsonl", f'"{path}", startFrom: "2002-01-01T00:00:00Z"')
        assert not_here(job(reads), settings)[1:] == []


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({}, "nothing in out"),
        ({"part-write--j--0-0123456789ab-000000.jsonl": "{}\n"}, "1 row in out"),
        (
            {
                "part-write--j--0-0123456789ab-000000.jsonl": "{}\n{}\n",
                "part-write--j--1-0123456789ab-000000.jsonl": "{}\n",
                "part-write--j2--0-0123456789ab-000000.jsonl": "{}\n",
                "other--write--j--0.jsonl": "{}\n",
            },
            "3 rows in out",
        ),
        ({"part-write--j--0-0123456789ab-000000.jsonl.gz": "?"}, "1 part in out"),
    ],
)
def test_what_a_job_has_published_is_counted(
    parts: dict[str, str], words: str, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    for name, text in parts.items():
        (tmp_path / "out" / name).write_text(text)
    assert [str(each) for each in published(job(), settings, JobId("j"))] == [words]


def test_what_cannot_be_seen_from_here_is_not_said_to_be_nothing(settings: Settings) -> None:
    elsewhere = job(write="{name: write, type: output, plugin: stdout}")
    assert published(elsewhere, settings, JobId("j")) == []
