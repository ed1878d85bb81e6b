"""Logs: one event a line, with fields; text for people, JSON for machines.

On the standard library's logging, so that lines of libraries come out the same way. Fields say
where (job, task, group), never what: no segment and no parameter is ever logged, and text that may
carry a user's data, the message of an exception, is cut. A traceback is given as places only.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

from onyx.errors import SettingsError

ERROR_CHARACTERS_MAX = 256
FIELD_CHARACTERS_MAX = 256
MESSAGE_CHARACTERS_MAX = 1_024
FRAMES_MAX = 8
"""Places of a traceback that are logged, the innermost."""

_PASSED_ON = frozenset({"exc_info", "stack_info", "stacklevel", "extra"})
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class FieldLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose keyword arguments are fields: `log.info("task started", job=..., task=...)`.

    `with_fields` gives one that adds some to every line.
    """

    def __init__(self, logger: logging.Logger, fields: Mapping[str, Any]) -> None:
        super().__init__(logger, dict(fields))

    def with_fields(self, **fields: Any) -> FieldLogger:
        return FieldLogger(self.logger, {**(self.extra or {}), **fields})

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        fields = {**(self.extra or {})}
        fields.update((key, value) for key, value in kwargs.items() if key not in _PASSED_ON)
        passed = {key: value for key, value in kwargs.items() if key in _PASSED_ON}
        passed["extra"] = {**passed.get("extra", {}), "fields": fields}
        return msg, passed


def get_logger(name: str, **fields: Any) -> FieldLogger:
    """A logger below `onyx`, with fields that every line of it has."""
    return FieldLogger(logging.getLogger(name), fields)


def configure(level: str = "INFO", log_format: str = "text", stream: TextIO | None = None) -> None:
    """Send all logs of this process to `stream` (default: standard error). Call it once at start.

    Raises:
        SettingsError: an unknown level or format.
    """
    if level.upper() not in LEVELS:
        raise SettingsError(f"log_level={level!r}: expected one of {', '.join(LEVELS)}")
    if log_format not in _FORMATTERS:
        raise SettingsError(f"log_format={log_format!r}: expected text or json")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_FORMATTERS[log_format]())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("onyx").setLevel(level.upper())


def truncated(text: str, characters_max: int = ERROR_CHARACTERS_MAX) -> str:
    """The beginning of `text`, marked when something was cut."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as fields: type, text (cut), and places, without the lines of code."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    return {
        "type": type(error).__qualname__,
        "text": truncated(str(error)),
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": truncated(record.getMessage(), MESSAGE_CHARACTERS_MAX),
        }
        line.update((key, value) for key, value in _fields(record) if key not in line)
        error = _error(record)
        if error is not None:
            line["error"] = describe(error)
        return json.dumps(line, ensure_ascii=False)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = truncated(record.getMessage(), MESSAGE_CHARACTERS_MAX)
        fields = "".join(f"  {key}={value}" for key, value in _fields(record))
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {message}{fields}"
        error = _error(record)
        if error is None:
            return _one_line(line)
        told = describe(error)
        line = _one_line(f"{line}  error={told['type']}: {told['text']}")
        return line + "".join(f"\n    at {place}" for place in told["at"])


_FORMATTERS = {"text": _TextFormatter, "json": _JsonFormatter}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _error(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


def _fields(record: logging.LogRecord) -> list[tuple[str, Any]]:
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return [(key, _value(value)) for key, value in fields.items()]


def _one_line(text: str) -> str:
    """No value can forge a line of its own."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _value(value: Any) -> Any:
    """Numbers and truth values as they are, everything else as short text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return truncated(str(value), FIELD_CHARACTERS_MAX)
