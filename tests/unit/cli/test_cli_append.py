"""What `onyx append` says when segments have failed, and how it ends."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from onyx.cli import command as onyx
from onyx.cli.commands import append as module
from onyx.client.appender import RequestFailed
from onyx.ledger.outcomes import FailedSegment, Outcomes
from onyx.requests.request import Answer, Status

FAILED = Outcomes(failed=1, failures=(FailedSegment("work", "ValueError: boom", 1),))


@pytest.mark.parametrize(
    ("segments", "out", "err"),
    [
        (2, "1 segment processed\n", "error: 1 segment failed:\n  segment 1, task work: "),
        (3, "2 segments processed\n", "error: 1 segment failed:\n  segment 1, task work: "),
    ],
)
def test_a_segment_that_has_failed_is_named_and_the_command_ends_with_1(
    segments: int,
    out: str,
    err: str,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*_: Any) -> Answer:
        raise RequestFailed(Answer(Status.FAILED, outcomes=FAILED))

    appender = nullcontext(SimpleNamespace(append=fails))
    monkeypatch.setattr(module, "_appender", lambda *_: appender)
    file = tmp_path / "segments.jsonl"
    file.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(segments)))
    monkeypatch.setattr("sys.argv", ["onyx", "append", "job", "--file", str(file)])
    with pytest.raises(SystemExit) as ended:
        onyx()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (1, out)
    assert said.err == f"{err}ValueError: boom\n"
