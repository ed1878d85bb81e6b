"""Logs: one event a line, with fields; text for people, JSON for machines.

Built on the standard library's logging, so lines of libraries have the same form. Fields say where
(tenancy, group, job, task, metadata of the job), never what: no segment and no parameter is ever
logged. Text that may
carry a user's data, such as the message of an exception, is cut. A traceback is given as frames
only.

Fields belong to the process or to the thread (`locate`), and not to the logger: lines that a user's
function logs have the fields of its job and task, and the function need not know them. What happens
to jobs is logged as events (`replica/job_events`), whose words and fields stand in one table.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, TextIO

from onyx.base.on_demand import OnDemand
from onyx.errors import SettingsError, message_of
from onyx.replica.authors import AUDIT
from onyx.replica.job_events import JobEvent
from onyx.settings import TelemetrySettings

ERROR_CHARACTERS_MAX = 256
FIELD_CHARACTERS_MAX = 256
MESSAGE_CHARACTERS_MAX = 1_024
FRAMES_MAX = 8
"""Frames of a traceback that are logged, the innermost."""

LINES_KEPT = 400
LINES_BYTES_MAX = 262_144
"""The lines that somebody is given who asks for them."""

_HAPPENED = "onyx_event"
_events = logging.getLogger("onyx.jobs")

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class _Where(threading.local):
    fields: Mapping[str, Any] = {}


_process: dict[str, Any] = {}
_where = _Where()


def locate(fields: Mapping[str, Any]) -> None:
    """From now on the lines that this thread writes have these fields, and none from before."""
    _where.fields = fields


def location() -> Mapping[str, Any]:
    """The fields of this thread, for one that works for it."""
    return _where.fields


def happened(event: JobEvent) -> None:
    """Log an event in its own words and with its fields, beside those of this thread."""
    level = logging.getLevelName(event.kind.level.upper())
    _events.log(level, "%s", event.text, extra={_HAPPENED: event})


def configure(
    level: str = "INFO",
    log_format: str = "text",
    stream: TextIO | None = None,
    fields: Mapping[str, Any] | None = None,
    file: str = "",
    config: str = "",
) -> None:
    """Send all logs of this process to `stream`. Call it once at start.

    Args:
        level: of the lines of Onyx; those of others are logged from WARNING on.
        log_format: `text` or `json`.
        stream: standard error, if None.
        fields: that every line has.
        file: where lines are appended too; it may be moved away and is opened anew.
        config: file in JSON with what `logging.config.dictConfig` takes, for more handlers and
            other levels. What it says of levels wins.

    Raises:
        SettingsError: an unknown level or format, or a file that cannot be used.
    """
    _check(level, log_format)
    _process.clear()
    _process.update(fields or {})
    root = logging.getLogger()
    root.handlers.clear()
    root.setLevel(logging.WARNING)
    logging.raiseExceptions = False  # what cannot be logged ends no thread
    logging.getLogger("onyx").setLevel(level.upper())
    if config:
        _apply(config)
    mine = [logging.StreamHandler(stream or sys.stderr), *_appended(file)]
    for handler in mine:
        handler.setFormatter(_FORMATTERS[log_format]())
    root.handlers[:0] = [*mine, _kept]
    _followed.add((level, log_format, file, config))


def follow_settings(found: TelemetrySettings) -> None:
    """Follow the settings of the log in a process that has a log of its own, such as a user's
    program. What is there stays; the file and what `log_config` says are added, and lines go to
    standard error if the process has nothing said of them. Settings that are followed already, and
    those that say nothing, change nothing.

    Raises:
        SettingsError: as `configure`.
    """
    wanted = (found.log_level, found.log_format, found.log_file, found.log_config)
    if wanted in _followed:
        return
    _check(found.log_level, found.log_format)
    ours, handlers = logging.getLogger("onyx"), _appended(found.log_file)
    if found.log_config:
        _apply(found.log_config)
    if found.log_level != _DEFAULT.log_level or ours.level == logging.NOTSET:
        ours.setLevel(found.log_level.upper())
    if not ours.hasHandlers():
        handlers.append(logging.StreamHandler(sys.stderr))
    for handler in handlers:
        handler.setFormatter(_FORMATTERS[found.log_format]())
        ours.addHandler(handler)
    _followed.add(wanted)


_DEFAULT = TelemetrySettings()
_followed = {(_DEFAULT.log_level, _DEFAULT.log_format, _DEFAULT.log_file, _DEFAULT.log_config)}
"""Level, format, file and configuration that this process follows."""


_DICT_CONFIG: OnDemand[Callable[[dict[str, Any]], None]] = OnDemand("logging.config:dictConfig")


def _check(level: str, log_format: str) -> None:
    if level.upper() not in LEVELS:
        raise SettingsError(f"log_level={level!r}: expected one of {', '.join(LEVELS)}")
    if log_format not in _FORMATTERS:
        raise SettingsError(f"log_format={log_format!r}: expected text or json")


def _apply(config: str) -> None:
    """Add what the owner of the process wants of logging."""
    try:
        said = json.loads(Path(config).read_text("utf-8"))
        _DICT_CONFIG.load()({"version": 1, "disable_existing_loggers": False, **said})
    except (OSError, ValueError, TypeError, AttributeError, ImportError) as error:
        raise SettingsError(
            f"telemetry.log_config={config!r}: is no file in JSON that "
            f"logging.config.dictConfig takes: {message_of(error)}"
        ) from error


def _appended(file: str) -> list[logging.Handler]:
    if not file:
        return []
    try:
        return [WatchedFileHandler(file, encoding="utf-8")]
    except OSError as error:
        raise SettingsError(f"telemetry.log_file={file!r}: {error.strerror}") from error


def last_lines(job: str) -> list[str]:
    """The newest lines of this process as JSON, the oldest first: those about a job, and those
    about none."""
    found: list[str] = []
    room = LINES_BYTES_MAX
    for its, line in reversed(_kept.lines.copy()):
        if its in ("", job):
            room -= len(line)
            if room < 0:
                break
            found.append(line)
    return found[::-1]


def truncated(text: str, characters_max: int = ERROR_CHARACTERS_MAX) -> str:
    """The beginning of `text`, marked when something was cut."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as fields: type, text (cut), and frames, without the lines of code."""
    # Libraries in C have raised what is no exception and has no traceback.
    frames = traceback.extract_tb(getattr(error, "__traceback__", None))[-FRAMES_MAX:]
    return {
        "type": type(error).__qualname__,
        "text": truncated(message_of(error)),
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage() if record.name == AUDIT else self._line(record)

    def _line(self, record: logging.LogRecord) -> str:
        raise NotImplementedError


class _JsonFormatter(_Formatter):
    def _line(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": truncated(record.getMessage(), MESSAGE_CHARACTERS_MAX),
        }
        event = _event(record)
        found = _fields() | ({} if event is None else event.fields)
        line.update((key, _value(value)) for key, value in found.items() if key not in line)
        error = _error(record)
        if error is not None:
            line["error"] = describe(error)
        return json.dumps(line, ensure_ascii=False)


class _Kept(logging.Handler):
    """Keeps the last lines, each with the job that it is about."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[tuple[object, str]] = deque(maxlen=LINES_KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event = _event(record)
            fields = _fields() if event is None else _fields() | event.fields
            self.lines.append((fields.get("job", ""), self.format(record)))
        except Exception:  # what cannot be logged ends no thread
            self.handleError(record)


class _TextFormatter(_Formatter):
    def _line(self, record: logging.LogRecord) -> str:
        message = truncated(record.getMessage(), MESSAGE_CHARACTERS_MAX)
        event = _event(record)
        found = _fields() | ({} if event is None else event.remarks)
        fields = "".join(f"  {key}={_value(value)}" for key, value in found.items())
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {message}{fields}"
        error = _error(record)
        if error is None:
            return _one_line(line)
        shown = describe(error)
        line = _one_line(f"{line}  error={shown['type']}: {shown['text']}")
        return line + "".join(f"\n    at {_one_line(frame)}" for frame in shown["at"])


_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that end a line, move a cursor, or turn the direction of text; not a tab."""
_kept = _Kept()
_kept.setFormatter(_JsonFormatter())
_FORMATTERS = {"text": _TextFormatter, "json": _JsonFormatter}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _error(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


def _event(record: logging.LogRecord) -> JobEvent | None:
    """The event that a line is about."""
    found: JobEvent | None = getattr(record, _HAPPENED, None)
    return found


def _fields() -> dict[str, Any]:
    return {**_process, **_where.fields}


def _one_line(text: str) -> str:
    """No value can forge a line of its own, or tell a terminal what to do."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def _value(value: Any) -> Any:
    """Numbers and truth values as they are, everything else as short text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return truncated(str(value), FIELD_CHARACTERS_MAX)
