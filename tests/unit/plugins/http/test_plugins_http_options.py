"""What is wrong with the options of http, and where secrets may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import UserError
from onyx.plugins.http.options import HttpOptions
from onyx.plugins.options import check_options, read_options
from onyx.plugins.registry import build_output

URL = {"url": "https://example.com/orders"}


@pytest.mark.parametrize(
    ("given", "path", "words"),
    [
        ({}, "url", "is missing"),
        ({**URL, "urlEnv": "X"}, "urlEnv", "together with url"),
        ({"url": "example.com"}, "url", "is no URL"),
        ({"url": "https://u:p@example.com"}, "url", "credentials"),
        ({**URL, "headers": {"Authorization": "x"}}, "headers", "is a secret"),
        ({**URL, "headers": {"x-api-key": "x"}}, "headers", "headersEnv: {x-api-key: NAME}"),
        ({**URL, "headers": {"Set-Cookie": "x"}}, "headers", "is a secret"),
        ({**URL, "headers": {"a b": "x"}}, "headers", "no name of a header"),
        ({**URL, "headers": {"A": "x\r\nB: y"}}, "headers", "does not take"),
        ({**URL, "headers": {"A": "ü"}}, "headers", "does not take"),
        ({**URL, "headers": {"Content-Length": "1"}}, "headers", "Onyx sets itself"),
        ({**URL, "headersEnv": {"Host": "X"}}, "headersEnv", "Onyx sets itself"),
        ({**URL, "headersFile": {"idempotency-key": "x"}}, "headersFile", "Onyx sets itself"),
        ({**URL, "headers": {"A": "1", "a": "2"}}, "headers", "a second time"),
        ({**URL, "headers": {"A": "1"}, "headersEnv": {"a": "X"}}, "headersEnv", "a second time"),
        ({**URL, "idempotencyHeader": "a b"}, "idempotencyHeader", "no name"),
        ({**URL, "idempotencyKey": "id", "format": "jsonl"}, "idempotencyKey", "has many"),
        ({**URL, "idempotency": "content", "format": "arrow"}, "idempotency", "has many"),
        ({**URL, "idempotencyKey": "id", "idempotency": "content"}, "idempotencyKey", "together"),
        ({**URL, "idempotencyKey": "id", "idempotencyHeader": None}, "idempotencyKey", "no effect"),
        ({**URL, "format": "arrow", "nan": "null"}, "nan", "is for JSON"),
        ({**URL, "keyFile": "k"}, "certificateFile", "is missing"),
        ({"url": "http://a/", "caFile": "k"}, "caFile", "is for https"),
        ({"url": "https://a/?v=1&access_token=x"}, "url", "'access_token', which is a secret"),
        ({**URL, "deadLetterPath": "ftp://x"}, "deadLetterPath", ""),
        ({**URL, "method": "GET"}, "method", "is 'GET', which is not offered"),
        ({**URL, "concurrency": 0}, "concurrency", ""),
    ],
)
def test_mistakes_name_the_option_and_the_cure(
    given: dict[str, Any], path: str, words: str
) -> None:
    _, problems = check_options(given, HttpOptions)
    assert [each.path for each in problems] == [path]
    assert words in f"{problems[0].message}; {problems[0].hint}"


@pytest.mark.parametrize(
    "given",
    [
        {**URL, "headers": {"X-Source": "onyx", "Content-Type": "text/x"}},
        {**URL, "headersEnv": {"Authorization": "A"}, "headersFile": {"X-Token": "f"}},
        {"urlEnv": "X", "format": "jsonl", "retriesMax": 0, "idempotencyHeader": None},
    ],
)
def test_what_is_right_has_no_problems(given: dict[str, Any]) -> None:
    assert check_options(given, HttpOptions)[1] == []
    read_options(plugin_context(given), HttpOptions)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"urlEnv": "URL"}, "option 'urlEnv' names variable 'URL', which is not set"),
        ({"urlEnv": "ODD"}, "option 'urlEnv' names variable 'ODD', which is no URL"),
        ({"urlEnv": "PLAIN", "caFile": "x"}, "option 'caFile' is for https"),
        ({**URL, "headersEnv": {"A": "NONE"}}, "variable 'NONE' for A, which is not set"),
        ({**URL, "headersEnv": {"A": "LINES"}}, "more than printable ASCII"),
        ({**URL, "headersFile": {"A": "none"}}, "for A, which cannot be read"),
        ({**URL, "headersFile": {"A": "binary"}}, "for A, which cannot be read"),
    ],
)
def test_a_secret_that_is_not_there_is_named_and_never_shown(
    given: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD", "s3cr3t")
    monkeypatch.setenv("PLAIN", "http://s3cr3t/")
    monkeypatch.setenv("LINES", "s3cr3t\nB: x")
    (tmp_path / "binary").write_bytes(b"s3cr3t\xff")
    with pytest.raises(UserError, match=words) as raised:
        build_output("http", plugin_context(given, data_dir=str(tmp_path)))
    assert "s3cr3t" not in str(raised.value)
    assert raised.value.__cause__ is None
