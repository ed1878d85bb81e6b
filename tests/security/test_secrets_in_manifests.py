"""Attacked: secrets that authors of manifests write into them, by whoever may read a job."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from subprocess import run
from typing import Any

import pytest
from tests.operator.clusters import pool
from tests.support.jobs.plugin_context import plugin_context
from tests.support.patience import WAIT_S

from onyx.errors import ManifestError, UserError
from onyx.model.job import CatalogEntry, Job
from onyx.model.parsing.job import parse_mapping
from onyx.plugins.http.options import HttpOptions
from onyx.plugins.kafka.options import KafkaInputOptions as KafkaOptions
from onyx.plugins.options import Options, check_options
from onyx.plugins.queues.options import RedisOptions
from onyx.plugins.sql.options import SqlOptions
from onyx.spark.input.options import SparkInputOptions
from onyx.spark.input.plugin import SparkInput
from onyx.spark.middle.options import MiddleOptions
from onyx.spark.stage.options import SparkOptions
from onyx.submission.job_checks import wrong_options
from onyx_operator.clusters.environment import environment

SEEN = "not-to-be-seen"
KAFKA = {"bootstrapServers": "k:1", "topic": "t"}
JWT = "eyJhbGciOiJub25l.eyJzdWIiOiJ1c2Vy.c2ln"
FORMAT = {"path": "p", "format": "jdbc"}
STAGE = {"path": "p", "stage": "m:f"}
SECRETS: list[tuple[type[Options], dict[str, Any], str]] = [
    (SqlOptions, {"table": "t", "url": f"postgresql://u:{SEEN}@h/d"}, "urlEnv"),
    (SqlOptions, {"table": "t", "url": f"postgresql://h/d?user=u&password={SEEN}"}, "urlEnv"),
    (SqlOptions, {"table": "t", "url": f"postgresql://h/d?sslpassword={SEEN}"}, "urlEnv"),
    (SqlOptions, {"table": "t", "url": f"mysql+pymysql://h/d?ssl_key_password={SEEN}"}, "urlEnv"),
    (HttpOptions, {"url": f"https://h/p?key={SEEN}"}, "urlEnv"),
    (HttpOptions, {"url": f"https://h/p?a=1&api%5Fkey={SEEN}"}, "urlEnv"),
    (HttpOptions, {"url": f"https://h/p?sig={SEEN}"}, "urlEnv"),
    (HttpOptions, {"url": f"https://h/p?access_token={SEEN}"}, "urlEnv"),
    (HttpOptions, {"url": "https://h", "headers": {"X-Auth": SEEN}}, "headersEnv"),
    (HttpOptions, {"url": "https://h", "headers": {"X-Api-Key": SEEN}}, "headersEnv"),
    (HttpOptions, {"url": "https://h", "headers": {"Proxy-Authorization": SEEN}}, "headersEnv"),
    (HttpOptions, {"url": "https://h", "headers": {"Cookie": SEEN}}, "headersEnv"),
    (HttpOptions, {"url": "https://h", "headers": {"X-Amz-Security-Token": SEEN}}, "headersEnv"),
    (HttpOptions, {"url": "https://h", "headers": {"X": f"Bearer {SEEN}"}}, "headersEnv"),
    (KafkaOptions, {**KAFKA, "config": {"sasl.password": SEEN}}, "configEnv"),
    (KafkaOptions, {**KAFKA, "config": {"ssl.key.pem": SEEN}}, "configEnv"),
    (KafkaOptions, {**KAFKA, "config": {"ssl.key.password": SEEN}}, "configEnv"),
    (KafkaOptions, {**KAFKA, "config": {"sasl.oauthbearer.client.secret": SEEN}}, "configEnv"),
    (
        KafkaOptions,
        {**KAFKA, "config": {"sasl.oauthbearer.assertion.private.key.pem": SEEN}},
        "configEnv",
    ),
    (
        KafkaOptions,
        {**KAFKA, "config": {"sasl.oauthbearer.assertion.private.key.passphrase": SEEN}},
        "configEnv",
    ),
    (
        KafkaOptions,
        {**KAFKA, "config": {"x": f"-----BEGIN RSA PRIVATE KEY-----\n{SEEN}"}},
        "configEnv",
    ),
    (SparkInputOptions, {**FORMAT, "formatOptions": {"password": SEEN}}, "formatOptionsEnv"),
    (SparkInputOptions, {**FORMAT, "formatOptions": {"dbPassword": SEEN}}, "formatOptionsEnv"),
    (
        SparkInputOptions,
        {**FORMAT, "formatOptions": {"kafka.sasl.jaas.config": SEEN}},
        "formatOptionsEnv",
    ),
    (
        SparkInputOptions,
        {**FORMAT, "formatOptions": {"url": f"jdbc:sqlserver://h;password={SEEN}"}},
        "formatOptionsEnv",
    ),
    (
        SparkInputOptions,
        {**FORMAT, "formatOptions": {"url": f"jdbc:mysql://u:{SEEN}@h/d"}},
        "formatOptionsEnv",
    ),
    (
        SparkOptions,
        {**STAGE, "write": {**FORMAT, "path": "", "options": {"password": SEEN}}},
        "optionsEnv",
    ),
    (
        SparkOptions,
        {**STAGE, "sparkConf": {"spark.hadoop.fs.s3a.secret.key": SEEN}},
        "spark-defaults.conf",
    ),
    (
        MiddleOptions,
        {"path": "p", "sparkConf": {"spark.authenticate.secret": SEEN}},
        "spark-defaults.conf",
    ),
    (
        SparkInputOptions,
        {**FORMAT, "formatOptions": {"url": f"jdbc:oracle:thin:u/{SEEN}@h:1/d"}},
        "formatOptionsEnv",
    ),
    (HttpOptions, {"url": "https://h", "headers": {"X": f"t-{JWT}"}}, "headersEnv"),
    (RedisOptions, {"server": "h:1", "stream": f"x://u:{SEEN}@h"}, "take it out of the job"),
    (RedisOptions, {"server": "h:1", "stream": f"x://u::{SEEN}@h"}, "take it out of the job"),
]
NONE: list[tuple[type[Options], dict[str, Any]]] = [
    (SqlOptions, {"table": "t", "url": "postgresql://user@host/d?sslmode=require"}),
    (SqlOptions, {"table": "t", "url": "sqlite:///path", "columns": {"password": "token"}}),
    (HttpOptions, {"url": "https://h/p?v=1&kind=keys", "headers": {"X-Source": "onyx"}}),
    (HttpOptions, {"url": "https://h", "headersEnv": {"Authorization": "SHOP"}}),
    (
        KafkaOptions,
        {
            **KAFKA,
            "config": {
                "ssl.key.location": "k",
                "sasl.oauthbearer.token.endpoint.url": "https://h/token",
                "sasl.username": "u",
            },
            "configEnv": {"sasl.password": "P"},
        },
    ),
    (
        SparkInputOptions,
        {**FORMAT, "formatOptions": {"user": "u", "dbtable": "t", "keyField": "k"}},
    ),
    (SparkOptions, {**STAGE, "sparkConf": {"spark.sql.timeTravelTimestampKey": "x"}}),
    (RedisOptions, {"server": "h:1", "stream": "s", "passwordEnv": "P"}),
]
LONG = [
    ("a://", "a"),
    ("a://", "a:"),
    ("jdbc:", "a:"),
    ("jdbc:x", ":/b"),
    ("", "-eyJ"),
    ("aaaaaaaaaa.eyJ", "-eyJ"),
    ("Bearer ", " a"),
    ("a://?", " ="),
]


@pytest.mark.parametrize(("kind", "options", "instead"), SECRETS)
def test_a_secret_in_an_option_is_refused_with_what_to_use_and_not_shown(
    kind: type[Options], options: dict[str, Any], instead: str
) -> None:
    _, problems = check_options(options, kind)
    found = [str(each) for each in problems if "secret" in each.message]
    assert any(instead in each for each in found), problems
    assert all(SEEN not in str(each) for each in problems if "secret" in each.message)


@pytest.mark.parametrize(("kind", "options"), NONE)
def test_what_is_none_is_taken(kind: type[Options], options: dict[str, Any]) -> None:
    assert check_options(options, kind)[1] == []


def test_a_text_of_a_stranger_takes_a_time_in_proportion_to_its_length() -> None:
    """Hours otherwise, in the webhook of a cluster; in a process of its own, which can be ended."""
    program = (
        "import json, sys; from onyx.model.secrets import secret_in\n"
        "for text in json.load(sys.stdin): assert secret_in(text) is None, text[:20]"
    )
    texts = json.dumps([beginning + part * 250_000 for beginning, part in LONG])
    run([sys.executable, "-c", program], input=texts, text=True, check=True, timeout=WAIT_S)


def test_whoever_takes_a_job_refuses_it() -> None:
    entry = CatalogEntry(
        "read", "input", plugin="kafka", options={**KAFKA, "config": {"sasl.password": SEEN}}
    )
    write = CatalogEntry("write", "output", plugin="blackhole")
    found = wrong_options(Job("j", (("read", "write"),), (entry, write)))
    assert [each.path for each in found] == ["spec.catalog[0].options.config"]
    assert SEEN not in str(found)


def test_nor_does_the_section_of_spark_hold_one() -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": SEEN}
    manifest: Mapping[str, Any] = {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "j"},
        "spec": {
            "spark": {"sparkConf": conf},
            "workflow": [["read", "write"]],
            "catalog": [
                {"name": "read", "type": "input", "plugin": "generator"},
                {"name": "write", "type": "output", "plugin": "blackhole"},
            ],
        },
    }
    with pytest.raises(ManifestError, match="which is a secret") as raised:
        parse_mapping(manifest)
    assert SEEN not in str(raised.value)


def test_a_secret_of_a_format_comes_from_a_variable(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB", SEEN)
    options, _ = check_options(
        {"path": str(tmp_path), "format": "jdbc", "formatOptionsEnv": {"password": "DB"}},
        SparkInputOptions,
    )
    assert options is not None
    assert SparkInput(plugin_context({}), options)._format_options == {"password": SEEN}
    missing = check_options(
        {"path": str(tmp_path), "format": "jdbc", "formatOptionsEnv": {"password": "DB2"}},
        SparkInputOptions,
    )[0]
    assert missing is not None
    with pytest.raises(UserError, match=r"formatOptionsEnv\.password.*'DB2'"):
        SparkInput(plugin_context({}), missing)


def test_segments_stand_in_no_log_and_status_of_workers_on_kubernetes() -> None:
    found = {each["name"]: each.get("value") for each in environment(pool())}
    assert found["ONYX_TASK_REPORT_VALUES"] == "false"
