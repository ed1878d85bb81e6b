"""What is wrong with the options of queues, said before a worker runs."""

from __future__ import annotations

from typing import Any

import pytest

from onyx.model.job import CatalogEntry
from onyx.model.plugins import INPUTS, keeps_journal
from onyx.plugins.options import check_options, options_of

REDIS: dict[str, Any] = {"server": "redis:6379", "stream": "s"}
NATS: dict[str, Any] = {"servers": "a:4222, b:4222", "stream": "ORDERS"}


def problems(plugin: str, options: dict[str, Any]) -> list[str]:
    _, found = check_options(options, options_of(INPUTS[plugin]))
    return [f"{each.path} {each.message}" for each in found]


@pytest.mark.parametrize(
    ("plugin", "options", "what"),
    [
        ("redis", REDIS, ""),
        ("redis", REDIS | {"startFrom": "1726000000000-0", "mode": "native"}, ""),
        ("redis", REDIS | {"server": "redis://user:secret@redis:6379"}, "server has"),
        ("redis", REDIS | {"valueField": "body"}, "valueField is not for format fields"),
        ("redis", REDIS | {"startFrom": "yesterday"}, "startFrom is 'yesterday'"),
        ("redis", REDIS | {"caFile": "ca.pem"}, "caFile is for tls: true"),
        ("redis", REDIS | {"tls": True, "keyFile": "k"}, "certificateFile is missing"),
        ("redis", REDIS | {"passwordEnv": "A", "passwordFile": "b"}, "passwordFile is given"),
        ("redis", REDIS | {"mode": "native", "rememberIds": 5}, "rememberIds is of the journal"),
        ("redis", REDIS | {"mode": "native", "onFailure": "source", "maxDeliveries": 3}, ""),
        (
            "redis",
            REDIS | {"onFailure": "source"},
            "onFailure is source, and a source has forgotten",
        ),
        ("nats", NATS | {"mode": "native", "maxDeliveries": 3}, "maxDeliveries is for onFailure"),
        ("source", {"fn": "shop:queue", "onFailure": "source"}, "onFailure is source"),
        ("iterator", {"fn": "shop:pages", "onFailure": "source"}, "onFailure is not known"),
        ("redis", REDIS | {"password": "secret"}, "password is not known"),
        ("nats", NATS, ""),
        ("nats", NATS | {"servers": []}, "servers has ''"),
        ("nats", NATS | {"stream": "a.b"}, "stream is 'a.b'"),
        ("nats", NATS | {"subjects": ["a", "a"]}, "subjects names one twice"),
        ("nats", NATS | {"startFrom": "soon"}, "startFrom is 'soon'"),
        ("nats", NATS | {"username": "u", "tokenEnv": "T"}, "username is not the only way"),
        ("iterator", {"fn": "shop:pages", "repeatSeconds": 1}, ""),
        ("iterator", {"fn": "shop:pages", "mode": "native"}, "mode is not known"),
        ("source", {"settings": {}}, "fn is missing"),
    ],
)
def test_wrong_options_are_named(plugin: str, options: dict[str, Any], what: str) -> None:
    found = problems(plugin, options)
    assert bool(found) == bool(what), found
    assert not what or found[0].startswith(what)


@pytest.mark.parametrize("mode", ["journal", "native"])
def test_only_a_journal_needs_a_store(mode: str) -> None:
    entry = CatalogEntry(name="read", type="input", plugin="redis", options=REDIS | {"mode": mode})
    assert keeps_journal(entry.type, entry.plugin, entry.options) == (mode == "journal")
