"""Options of the kafka plugins: what a job may say, before any broker is asked."""

from __future__ import annotations

import sys

import pytest
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import UserError
from onyx.plugins.kafka.options import KafkaInputOptions, KafkaOutputOptions
from onyx.plugins.options import check_options
from onyx.plugins.registry import build_input, build_output

PLACE = {"bootstrapServers": "a:9092", "topic": "t"}


def problems(kind: type[KafkaInputOptions | KafkaOutputOptions], **given: object) -> list[str]:
    return [str(each) for each in check_options({**PLACE, **given}, kind)[1]]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"bootstrapServers": ["a:1", "b:2"]},
        {"bootstrapServers": "a:1, b:2"},
        {"config": {"security.protocol": "ssl", "fetch.min.bytes": 1, "a.b": True}},
        {"configEnv": {"sasl.password": "PASSWORD", "ssl.key.pem": "KEY"}},
    ],
)
def test_what_may_be_said_of_both(given: dict[str, object]) -> None:
    assert problems(KafkaInputOptions, **given) == problems(KafkaOutputOptions, **given) == []


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ({"bootstrapServers": []}, "bootstrapServers: is empty (give host:port of brokers)"),
        ({"bootstrapServers": "a:1,"}, "bootstrapServers: has '' (give host:port of brokers)"),
        ({"bootstrapServers": "http://a"}, "bootstrapServers: has 'http://a' (give host:port"),
        ({"config": {"group.id": "g"}}, "config: has 'group.id', which Onyx sets itself"),
        ({"configEnv": {"acks": "ACKS"}}, "configEnv: has 'acks', which Onyx sets itself"),
        ({"config": {"error_cb": "f"}}, "config: has 'error_cb', which Onyx sets itself"),
        ({"config": {"plugin.library.paths": "x"}}, "'plugin.library.paths', which loads code"),
        ({"config": {"sasl.password": "p"}}, "which is a secret (name a variable of the workers"),
        ({"config": {"ssl.key.pem": "p"}}, "config: has 'ssl.key.pem', which is a secret"),
        (
            {"config": {"sasl.username": "u"}, "configEnv": {"sasl.username": "U"}},
            "configEnv: has 'sasl.username', as config has (leave one of them out)",
        ),
    ],
)
def test_what_may_not_be_said_of_both(given: dict[str, object], reported: str) -> None:
    for kind in (KafkaInputOptions, KafkaOutputOptions):
        assert any(reported in each for each in problems(kind, **given)), problems(kind, **given)


@pytest.mark.parametrize("secret", ["not-to-be-seen"])
def test_a_secret_in_the_wrong_place_is_not_shown(secret: str) -> None:
    with pytest.raises(UserError) as refused:
        build_input("kafka", plugin_context({**PLACE, "config": {"sasl.password": secret}}))
    assert secret not in str(refused.value)


def test_values_of_other_formats_need_their_key() -> None:
    assert problems(KafkaOutputOptions, format="text", valueField="v") == []
    (missing,) = problems(KafkaOutputOptions, format="bytes")
    assert missing == "valueField: is missing: format bytes needs to know the key"
    (useless,) = problems(KafkaOutputOptions, valueField="v")
    assert useless.startswith("valueField: is for format text or bytes")


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ({"consumerGroup": ""}, "consumerGroup: "),
        (
            {"consumerGroup": "onyx"},
            "consumerGroup: is 'onyx': Onyx has groups of such names of its",
        ),
        ({"consumerGroup": "onyx.a.b"}, "consumerGroup: is 'onyx.a.b': Onyx has groups of such"),
        ({"consumerGroup": "g", "bounded": True}, "consumerGroup: is for a job that goes on;"),
    ],
)
def test_a_group_that_cannot_hear_of_a_job_is_refused(
    given: dict[str, object], reported: str
) -> None:
    assert problems(KafkaInputOptions, consumerGroup="onyxes") == []
    (problem,) = problems(KafkaInputOptions, **given)
    assert problem.startswith(reported)


def test_without_its_package_the_plugin_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("client", "input", "output"):
        monkeypatch.delitem(sys.modules, f"onyx.plugins.kafka.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for build in (build_input, build_output):
        with pytest.raises(UserError, match=r"needs confluent_kafka: pip install .*\[kafka\]"):
            build("kafka", plugin_context(PLACE))
