"""What a log line shows, and what it never shows."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from onyx.errors import SettingsError
from onyx.telemetry.logs import ERROR_CHARACTERS_MAX, configure, get_logger


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root, onyx = logging.getLogger(), logging.getLogger("onyx")
    handlers, level, onyx_level = root.handlers[:], root.level, onyx.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    onyx.setLevel(onyx_level)


def written(log_format: str, level: str = "INFO") -> io.StringIO:
    stream = io.StringIO()
    configure(level, log_format, stream)
    return stream


def test_a_json_line_has_the_event_and_its_fields() -> None:
    stream = written("json")
    log = get_logger("onyx.peer", group="g1").with_fields(job="flights")
    log.info("task started", task="parse", slot=0)
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "onyx.peer",
        "event": "task started",
        "group": "g1",
        "job": "flights",
        "task": "parse",
        "slot": 0,
    }


def test_a_text_line_reads_well() -> None:
    stream = written("text")
    get_logger("onyx.peer").warning("task is slow", job="flights", seconds=2.5)
    assert "WARNING onyx.peer: task is slow  job=flights  seconds=2.5" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_text_of_an_exception_is_cut_and_no_line_of_code_is_shown(log_format: str) -> None:
    stream = written(log_format)
    secret = "x" * 200 + "y" * 10_000
    try:
        raise ValueError(secret)
    except ValueError:
        get_logger("onyx.task").exception("function failed", task="parse")
    text = stream.getvalue()
    assert text.count("x") >= 200
    assert text.count("y") <= ERROR_CHARACTERS_MAX
    assert "ValueError" in text
    assert "raise ValueError(secret)" not in text
    assert "test_telemetry_logs.py" in text


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_segment_passed_as_a_field_by_mistake_is_cut(log_format: str) -> None:
    stream = written(log_format)
    get_logger("onyx.task").info("odd", field={"name": "z" * 5_000})
    assert stream.getvalue().count("z") < 256


def test_fields_cannot_forge_the_event() -> None:
    stream = written("json")
    get_logger("onyx.task").info("real", event="forged", logger="forged")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["logger"]) == ("real", "onyx.task")


def test_newlines_in_a_value_do_not_make_a_second_line() -> None:
    stream = written("text")
    get_logger("onyx.task").info("odd", name="a\nERROR onyx: forged")
    assert stream.getvalue().count("\n") == 1


def test_lines_below_the_level_and_chatter_of_libraries_are_not_written() -> None:
    stream = written("text", level="warning")
    get_logger("onyx.task").info("quiet")
    logging.getLogger("kazoo.client").info("chatter")
    logging.getLogger("kazoo.client").warning("connection dropped")
    assert stream.getvalue().count("\n") == 1
    assert "connection dropped" in stream.getvalue()


@pytest.mark.parametrize(("level", "log_format"), [("LOUD", "text"), ("INFO", "xml")])
def test_wrong_settings_are_told(level: str, log_format: str) -> None:
    with pytest.raises(SettingsError, match="expected"):
        configure(level, log_format)
