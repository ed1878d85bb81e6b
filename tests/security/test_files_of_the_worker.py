"""Attacked: files and variables of the worker, by options in a manifest that name them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context

from onyx import rights
from onyx.base.seams import SystemClock
from onyx.cli.local_run import checked
from onyx.errors import UserError
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import FilesInputOptions as FilesOptions
from onyx.plugins.http.endpoint import Headers, JobEndpoint, url_of
from onyx.plugins.http.options import HttpOptions
from onyx.plugins.kafka.client import KafkaClient
from onyx.plugins.kafka.options import KafkaInputOptions as KafkaInputOptions
from onyx.plugins.options import check_options, folder_at, located, pattern_at
from onyx.plugins.protocol import START, PluginContext
from onyx.plugins.queues.decoding import password_of
from onyx.plugins.queues.options import RedisOptions
from onyx.plugins.requests.input import requests_input
from onyx.plugins.requests.options import RequestsOptions
from onyx.plugins.sql.engine import connect
from onyx.rights import Rights, of_its_author, rights_of
from onyx.settings import Settings, TlsSettings, from_environment
from onyx.spark.child.environment import environment
from onyx.spark.located_options import located_options
from onyx.spark.result_files import remove_left

SECRETS = [
    "/proc/self/environ",
    "/proc/1/environ",
    "/sys/kernel/notes",
    "/dev/fd/0",
    "/etc/passwd",
    "/etc/onyx/tls/tls.key",
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
    "/run/secrets/x",
    "file:///proc/self/environ",
    "../outside",
    "a/../../outside",
    "/",
    "/*/self/environ",
    "*/../../outside",
    "/proc/./self/environ",
    "//proc/self/environ",
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "in.jsonl").write_text('{"n": 1}\n')
    (tmp_path / "outside").write_text("secret")
    return folder


def context(data: Path, **settings: Any) -> PluginContext:
    found = Settings(data_dir=str(data), **settings)
    return plugin_context({}, data_dir=str(data), rights=rights_of(found))


def headers(given: PluginContext, path: str) -> None:
    Headers(given, HttpOptions(url="http://h", headers_file={"X": path}))


def certificate(given: PluginContext, path: str) -> None:
    JobEndpoint(given, HttpOptions(url="https://h", ca_file=path))


def kafka(given: PluginContext, path: str) -> None:
    config: Any = {"ssl.ca.location": path}
    KafkaClient(given, KafkaInputOptions(bootstrap_servers="k:1", topic="t", config=config))


def password(given: PluginContext, path: str) -> None:
    password_of(given, RedisOptions(server="h:1", stream="s", password_file=path))


def token(given: PluginContext, path: str) -> None:
    requests_input(given, RequestsOptions(token_file=path))


def sqlite(given: PluginContext, path: str) -> None:
    connect(given, "url", f"sqlite:///{path}")


def sqlite_by_uri(given: PluginContext, path: str) -> None:
    connect(given, "url", f"sqlite:///file:{path}?mode=ro&uri=true")


def key_of_database(given: PluginContext, path: str) -> None:
    connect(given, "url", f"postgresql://h/d?sslkey={path}")


def format_of_spark(given: PluginContext, path: str) -> None:
    located_options(given, "formatOptions", {"path": path})


WAYS: list[Callable[[PluginContext, str], object]] = [
    pattern_at, folder_at, located, headers, password, token, format_of_spark, kafka,
]  # fmt: skip


@pytest.mark.parametrize("path", SECRETS)
@pytest.mark.parametrize("way", WAYS)
def test_no_option_leads_to_a_file_that_is_not_data(
    way: Callable[[PluginContext, str], object], path: str, data: Path
) -> None:
    with pytest.raises(UserError, match=r"ONYX_JOB_PATHS|named by no job|a part `..`"):
        way(context(data), path)


@pytest.mark.parametrize("way", [certificate, sqlite, sqlite_by_uri, key_of_database])
def test_nor_does_one_of_a_library(way: Callable[[PluginContext, str], object], data: Path) -> None:
    with pytest.raises(UserError, match="named by no job"):
        way(context(data), "/proc/self/environ")


def test_files_of_data_and_authorities_are_named_as_before(data: Path) -> None:
    given = context(data)
    assert given.located("in.jsonl") == given.located(f"{data}/in.jsonl") == f"{data}/in.jsonl"
    assert given.located("new/out") == f"{data}/new/out"
    assert given.located("*.jsonl") == f"{data}/*.jsonl"
    assert given.located("s3://bucket/../x") == "s3://bucket/../x"


def test_certificates_of_authorities_are_read_and_not_written(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "all.crt").write_text("")
    monkeypatch.setattr(rights, "_FOR_ALL", (str(tmp_path / "certs"),))
    given = context(data)
    given.located(f"{tmp_path}/certs/all.crt")
    for path in (f"{tmp_path}/certs", f"{tmp_path}/certs/mine", f"{tmp_path}/certs/*"):
        with pytest.raises(UserError, match="ONYX_JOB_PATHS"):
            given.located(path)


def test_a_link_leads_nowhere_else(data: Path) -> None:
    os.symlink("/proc/self", data / "link")
    os.symlink("../outside", data / "file.jsonl")
    given = context(data)
    with pytest.raises(UserError, match="named by no job"):
        given.located("link/environ")
    files = FilesInput(given, FilesOptions(path="*.jsonl"))
    with pytest.raises(UserError, match="ONYX_JOB_PATHS"):
        files.open(f"{data}/file.jsonl", START)
    files.open(f"{data}/in.jsonl", START).close()


def test_keys_of_the_worker_are_named_by_no_job_wherever_they_lie(data: Path) -> None:
    (data / "tls.key").write_text("")
    given = context(data, tls=TlsSettings(key_file=str(data / "tls.key")))
    with pytest.raises(UserError, match="named by no job"):
        given.located("tls.key")
    everything = context(data, job_paths=("/",))
    everything.located("/etc/passwd")
    for path in ("/proc/self/environ", "/etc/onyx/tls/tls.key", "/run/secrets/x"):
        with pytest.raises(UserError, match="named by no job"):
            everything.located(path)


def test_who_starts_the_worker_lists_folders(data: Path, tmp_path: Path) -> None:
    settings = from_environment({"ONYX_JOB_PATHS": f"{tmp_path}/other,{data}"})
    given = plugin_context({}, data_dir=str(data), rights=rights_of(settings))
    given.located(f"{tmp_path}/other/x")
    given.located("in.jsonl")
    with pytest.raises(UserError, match="ONYX_JOB_PATHS"):
        given.located(f"{tmp_path}/otherwise")


@pytest.mark.parametrize(
    "options",
    [
        {"path": "file:/proc/self/environ"},
        {"path": "FILE:///proc/self/environ"},
        {"path": "file://localhost/proc/self/environ"},
        {"path": "local:/proc/self/environ"},
        {"path": "har:///proc"},
        {"paths": '["/proc/self/environ"]'},
        {"basePath": "/proc"},
        {"keytab": "/proc/self/environ"},
        {"avroSchemaUrl": "file:///etc/passwd"},
        {"url": "jdbc:derby:/tmp/x;create=true"},
        {"url": " JDBC:h2:mem:x;INIT=RUNSCRIPT FROM 'x'"},
        {"url": "jdbc:sqlite:/etc/x"},
    ],
)
def test_no_option_of_a_format_of_spark_leads_to_a_file(
    options: dict[str, str], data: Path
) -> None:
    with pytest.raises(UserError, match=r"formatOptions|ONYX_JOB_PATHS|named by no job"):
        located_options(context(data), "formatOptions", options)


def test_options_of_a_format_of_spark_are_given_as_before(data: Path) -> None:
    given = {
        "path": "in.csv", "sep": "/", "url": "jdbc:postgresql://h/d", "header": "true",
        "dateFormat": "yyyy/MM/dd", "other": "s3a://b/p",
    }  # fmt: skip
    found = located_options(context(data), "formatOptions", given)
    assert found == {**given, "path": f"{data}/in.csv"}
    store = {"path": "s3a://bucket/in"}
    assert located_options(context(data), "formatOptions", store) == store


def of_url(given: PluginContext) -> object:
    return url_of(given, HttpOptions(url_env="AWS_SECRET"))


def of_header(given: PluginContext) -> object:
    return Headers(given, HttpOptions(url="http://h", headers_env={"X": "AWS_SECRET"})).all()


def of_kafka(given: PluginContext) -> object:
    config = {"sasl.password": "AWS_SECRET"}
    options = KafkaInputOptions(bootstrap_servers="k:1", topic="t", config_env=config)
    return KafkaClient(given, options)


def of_queue(given: PluginContext) -> object:
    return password_of(given, RedisOptions(server="h:1", stream="s", password_env="AWS_SECRET"))


def of_token(given: PluginContext) -> object:
    return requests_input(given, RequestsOptions(token_env="AWS_SECRET"))


@pytest.mark.parametrize("way", [of_url, of_header, of_kafka, of_queue, of_token])
def test_a_variable_is_named_by_jobs_only_where_it_is_listed(
    way: Callable[[PluginContext], object], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET", "http://secret")
    with pytest.raises(UserError, match=r"'AWS_SECRET'.*ONYX_JOB_VARIABLES") as raised:
        way(context(data))
    assert "http://secret" not in str(raised.value)
    way(context(data, job_variables=("JOB_*", "AWS_S*")))


@pytest.mark.parametrize("master", ["sc://evil:443/;use_ssl=true", "sc://fleet.evil:15002"])
def test_a_server_of_spark_that_a_job_names_sees_no_token(master: str) -> None:
    variables = {
        "ONYX_SPARK_MASTER": "sc://fleet:15002",
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": "secret",
        "ONYX_JOB_VARIABLES": "",
    }
    assert "secret" in environment("sc://fleet:15002", "/tmp", variables).values()
    assert "secret" not in environment(master, "/tmp", variables).values()


def test_a_front_opens_to_nobody_by_what_a_job_may_not_name(data: Path, tmp_path: Path) -> None:
    for options in (RequestsOptions(token_file="../outside"), RequestsOptions(token_env="X")):
        tokens = options.tokens(Rights(), str(data), SystemClock(), {"X": "secret"})
        assert tokens.wanted
        assert not tokens.known()
        assert not tokens.opened_by(b"secret")
        assert not tokens.opened_by(b"")


def test_what_a_job_has_left_is_removed_only_where_it_could_be(data: Path, tmp_path: Path) -> None:
    (tmp_path / "victim" / "job").mkdir(parents=True)
    assert not remove_left(str(tmp_path / "victim"), "job", Settings(data_dir=str(data)))
    assert (tmp_path / "victim" / "job").is_dir()


def test_onyx_run_lets_a_job_name_what_lies_beside_it_and_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ONYX_JOB_PATHS", "ONYX_JOB_VARIABLES"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "here").mkdir()
    (tmp_path / "jobs").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    file = tmp_path / "jobs" / "job.yaml"
    file.write_text(
        "apiVersion: onyx.dev/v1beta1\nkind: OnyxJob\nmetadata: {name: j}\n"
        "spec:\n  workflow: [[read, write]]\n  catalog:\n"
        "    - {name: read, type: input, plugin: files, options: {path: in.jsonl}}\n"
        "    - {name: write, type: output, plugin: blackhole}\n"
    )
    _, settings = checked(file, None, None, "WARNING")
    found = rights_of(settings)
    for path in (tmp_path / "here" / "in", tmp_path / "jobs" / "in"):
        assert found.why_not_path(str(path)) is None
    assert found.why_not_path(str(tmp_path / "other")) is not None
    assert found.why_not_path("/etc/passwd") is not None
    assert found.why_not_variable("HOME") is not None


def test_whoever_writes_the_code_of_a_worker_names_what_it_likes() -> None:
    found = rights_of(of_its_author(Settings()))
    assert found.why_not_path("/etc/passwd") is None
    assert found.why_not_variable("HOME") is None
    assert check_options({"path": "x"}, FilesOptions)[1] == []
    assert replace(found, paths=()).why_not_path("/etc/passwd") is not None
