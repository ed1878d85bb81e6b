"""Reports segments over which the process before this one died, once each.

A report stays in the flight recorder until its entry has been read from the log. If this process
dies before that, the next one reports it.
"""

from __future__ import annotations

import msgspec

from onyx.base.structs import UNREADABLE
from onyx.replica.command import Entry
from onyx.replica.commands import ReportLoss
from onyx.telemetry.recorder import Recorder

_DECODER = msgspec.json.Decoder(list[ReportLoss])


def pending(recorder: Recorder | None) -> tuple[ReportLoss, ...]:
    """Commands that report the losses in the recorder."""
    data = recorder.losses() if recorder is not None else b""
    try:
        return tuple(_DECODER.decode(data or b"[]"))
    except UNREADABLE:  # the code that ended the process may have written anywhere before
        return ()


def heard(recorder: Recorder | None, entry: Entry) -> None:
    """An entry was read: if it is one of the reports, drop it from the recorder."""
    if recorder is None or not isinstance(entry.command, ReportLoss):
        return
    left = [each for each in pending(recorder) if each.loss != entry.command.loss]
    recorder.keep(msgspec.json.encode(left) if left else b"")
