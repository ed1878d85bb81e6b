"""Texts of strangers in logs: they write no line of their own, and a terminal obeys none."""

from __future__ import annotations

import logging

import pytest

from onyx.errors import ManifestError, Problem, UserError
from onyx.processes.ends import exits_with_code
from onyx.telemetry.logs import _TextFormatter


@pytest.mark.parametrize(
    "character", ["\n", "\r", "\x1b", "\x07", "\x08", "\x7f", "\x9b", "\u2028", "\u202e", "\x00"]
)
def test_a_control_character_is_shown_and_not_sent(character: str) -> None:
    text = f"before{character}[31mafter"
    record = logging.LogRecord("onyx", logging.INFO, "file", 1, text, None, None)

    line = _TextFormatter().format(record)

    assert character not in line
    assert f"before{ascii(character)[1:-1]}[31mafter" in line


def test_other_characters_stay_as_they_are() -> None:
    record = logging.LogRecord(
        "onyx", logging.INFO, "file", 1, "caf\u00e9\t\u6771\u4eac", None, None
    )

    assert "caf\u00e9\t\u6771\u4eac" in _TextFormatter().format(record)


def test_an_error_that_ends_a_command_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    told = [
        UserError("job \x1b[2Jx\r is gone\n\tlook"),
        ManifestError([Problem("a\x1b]0;b\x07", "é")]),
    ]
    for error in told:
        with pytest.raises(SystemExit), exits_with_code():
            raise error
    said = capsys.readouterr().err
    assert "error: job \\x1b[2Jx\\r is gone\n\tlook\n" in said
    assert "a\\x1b]0;b\\x07" in said
    assert "é" in said
