"""What a log line shows, and what it never shows."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from onyx.errors import SettingsError
from onyx.ids import JobId, Position
from onyx.replica.job_events import (
    FROM_A_WORKER,
    FROM_THE_LOG,
    KILLED,
    TASK_STARTED,
    JobEvent,
    local_event,
)
from onyx.telemetry import logs
from onyx.telemetry.logs import (
    ERROR_CHARACTERS_MAX,
    configure,
    describe,
    happened,
    last_lines,
    locate,
)

log = logging.getLogger("onyx.peer")


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root, onyx = logging.getLogger(), logging.getLogger("onyx")
    handlers, level, onyx_level = root.handlers[:], root.level, onyx.level
    yield
    opened = [each for each in root.handlers if isinstance(each, logging.FileHandler)]
    configure()
    locate({})
    for each in opened:
        each.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    onyx.setLevel(onyx_level)


def written(log_format: str, level: str = "INFO", **fields: Any) -> io.StringIO:
    stream = io.StringIO()
    configure(level, log_format, stream, fields)
    return stream


def test_the_last_lines_are_kept_for_whoever_asks_about_a_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs._kept.lines.clear()
    written("text")
    for number in range(logs.LINES_KEPT + 5):
        log.info("about all %d", number)
    locate({"job": "flights"})
    log.info("about flights")
    locate({"job": "hotels"})
    log.info("about hotels")
    found = [json.loads(each) for each in last_lines("flights")]
    assert [each["event"] for each in found][-2:] == ["about all 404", "about flights"]
    assert len(found) == logs.LINES_KEPT - 1, "that of another job is not given"
    monkeypatch.setattr(logs, "LINES_BYTES_MAX", 300)
    assert 0 < len(last_lines("flights")) < 5


def test_a_json_line_has_the_event_and_says_where_it_happened() -> None:
    stream = written("json", tenancy="acme")
    locate({"group": "g1", "job": "flights", "task": "parse"})
    logging.getLogger("users.module").warning("odd row %d", 7)
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "users.module",
        "event": "odd row 7",
        "tenancy": "acme",
        "group": "g1",
        "job": "flights",
        "task": "parse",
    }


def test_a_thread_says_where_it_is_itself() -> None:
    stream = written("json")
    locate({"job": "flights", "task": "parse"})
    locate({"job": "trains"})
    other = threading.Thread(target=lambda: log.info("elsewhere"))
    other.start()
    other.join()
    log.info("here")
    elsewhere, here = map(json.loads, stream.getvalue().splitlines())
    assert "job" not in elsewhere
    assert (here["job"], "task" in here) == ("trains", False)


def test_a_text_line_reads_well() -> None:
    stream = written("text")
    locate({"job": "flights", "seconds": 2.5})
    log.warning("task is slow")
    assert "WARNING onyx.peer: task is slow  job=flights  seconds=2.5" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_text_of_an_exception_is_cut_and_no_line_of_code_is_shown(log_format: str) -> None:
    stream = written(log_format)
    secret = "x" * 200 + "y" * 10_000
    try:
        raise ValueError(secret)
    except ValueError:
        log.exception("function failed")
    text = stream.getvalue()
    assert text.count("x") >= 200
    assert text.count("y") <= ERROR_CHARACTERS_MAX
    assert "ValueError" in text
    assert "raise ValueError(secret)" not in text
    assert "test_telemetry_logs.py" in text


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_segment_passed_as_a_field_by_mistake_is_cut(log_format: str) -> None:
    stream = written(log_format)
    locate({"field": {"name": "z" * 5_000}})
    log.info("odd")
    assert stream.getvalue().count("z") < 256


def test_fields_cannot_forge_the_event() -> None:
    stream = written("json")
    locate({"event": "forged", "logger": "forged"})
    log.info("real")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["logger"]) == ("real", "onyx.peer")


def test_newlines_in_a_value_do_not_make_a_second_line() -> None:
    stream = written("text")
    locate({"name": "a\nERROR onyx: forged"})
    log.info("odd")
    assert stream.getvalue().count("\n") == 1


def test_lines_below_the_level_and_chatter_of_libraries_are_not_written() -> None:
    stream = written("text", level="warning")
    log.info("quiet")
    logging.getLogger("kazoo.client").info("chatter")
    logging.getLogger("kazoo.client").warning("connection dropped")
    assert stream.getvalue().count("\n") == 1
    assert "connection dropped" in stream.getvalue()


@pytest.mark.parametrize(("level", "log_format"), [("LOUD", "text"), ("INFO", "xml")])
def test_wrong_settings_are_told(level: str, log_format: str) -> None:
    with pytest.raises(SettingsError, match="expected"):
        configure(level, log_format)


def test_what_a_library_raised_and_is_no_exception_is_described() -> None:
    class Foreign:
        def __str__(self) -> str:
            return "broker away"

    shown = describe(cast("BaseException", Foreign()))

    assert (shown["type"].rpartition(".")[2], shown["text"], shown["at"]) == (
        "Foreign",
        "broker away",
        [],
    )


def test_lines_are_appended_to_a_file_that_may_be_moved_away(tmp_path: Path) -> None:
    file = tmp_path / "onyx.log"
    stream = io.StringIO()
    configure("INFO", "json", stream, file=str(file))
    log.info("one")
    file.rename(tmp_path / "onyx.log.1")
    log.info("two")
    assert json.loads((tmp_path / "onyx.log.1").read_text())["event"] == "one"
    assert json.loads(file.read_text())["event"] == "two"
    assert len(stream.getvalue().splitlines()) == 2


def test_the_owner_of_a_process_adds_handlers_and_levels(tmp_path: Path) -> None:
    config = {
        "handlers": {
            "mine": {"class": "logging.FileHandler", "filename": str(tmp_path / "mine.log")}
        },
        "root": {"handlers": ["mine"], "level": "ERROR"},
        "loggers": {"onyx.peer": {"level": "DEBUG"}},
    }
    (tmp_path / "logging.json").write_text(json.dumps(config))
    stream = io.StringIO()
    before = logging.getLogger("users.module")
    configure("INFO", "text", stream, config=str(tmp_path / "logging.json"))
    log.debug("now logged")
    before.warning("no longer")
    before.error("still")
    assert (tmp_path / "mine.log").read_text() == "now logged\nstill\n"
    assert [line.split(": ")[1] for line in stream.getvalue().splitlines()] == [
        "now logged",
        "still",
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        ("{", "Expecting"),
        ("[]", "is no file in JSON that logging.config.dictConfig takes"),
        ('{"root": {"handlers": ["none"]}}', "Unable to configure root logger"),
    ],
)
def test_a_configuration_that_cannot_be_followed_is_refused(
    tmp_path: Path, content: str | None, why: str
) -> None:
    file = tmp_path / "logging.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingsError, match=why):
        configure(config=str(file))


def test_a_log_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"telemetry\.log_file=.*No such file"):
        configure(file=str(tmp_path / "nowhere" / "onyx.log"))


# --- events -------------------------------------------------------------------------------------

KILL = JobEvent(
    KILLED, {"why": ": it\x1b[2J\nfailed"}, JobId("j"), "kubernetes:alice", 5, Position(9),
    {"job_name": "flights", "metadata.team": "no\nrth"},
)  # fmt: skip


def test_an_event_is_a_line_with_its_words_and_its_fields() -> None:
    stream = written("json", tenancy="acme")
    locate({"group": "g1"})
    happened(KILL)
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "onyx.jobs",
        "event": r"killed: it\x1b[2J\nfailed",
        "tenancy": "acme",
        "group": "g1",
        "job_name": "flights",
        "metadata.team": r"no\nrth",
        "what": "job-killed",
        "job": "j",
        "by": "kubernetes:alice",
        "why": r": it\x1b[2J\nfailed",
    }


def test_a_text_line_of_an_event_repeats_nothing_that_the_sentence_says() -> None:
    stream = written("text")
    locate({})
    happened(KILL)
    happened(local_event(TASK_STARTED, "j", task="parse", peers="peer p", version=7))
    first, second = stream.getvalue().splitlines()
    assert first.endswith(
        r"INFO    onyx.jobs: killed: it\x1b[2J\nfailed  job_name=flights  metadata.team=no\nrth"
        "  what=job-killed  job=j  by=kubernetes:alice"
    )
    assert second.endswith(
        "task parse starts on peer p of this worker  what=task-started  job=j  version=7"
    )


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_event_with_a_value_of_any_length_is_one_short_line(log_format: str) -> None:
    stream = written(log_format)
    about = {"metadata.x": "y" * 99_999}
    happened(local_event(KILLED, "j" * 100_000, about, why="\x1b\n" * 50_000))
    assert stream.getvalue().count("\n") == 1
    assert len(stream.getvalue()) < 3_000


def test_no_field_of_an_event_hides_one_of_the_line() -> None:
    of_lines = {"time", "level", "logger", "event", "error", "group", "job_name"}
    assert not [kind.name for kind in (*FROM_THE_LOG, *FROM_A_WORKER) if kind.fields & of_lines]
