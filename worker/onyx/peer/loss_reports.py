"""Reports segments over which the process before this one died, once each.

A report stays in the flight recorder until its entry has been read from the log. If this process
dies before that, the next one reports it.
"""

from __future__ import annotations

import msgspec

from onyx.recorder import Recorder
from onyx.replica.commands.report_loss import NAME
from onyx.replica.entry import Command, Entry


def pending(recorder: Recorder | None) -> tuple[Command, ...]:
    """Commands that report the losses in the recorder."""
    data = recorder.losses() if recorder is not None else b""
    try:
        found = msgspec.json.decode(data or b"[]", type=list[dict[str, object]])
    except msgspec.DecodeError:  # what has ended the process may have written anywhere before
        found = []
    return tuple(Command(NAME, each) for each in found)


def heard(recorder: Recorder | None, entry: Entry) -> None:
    """An entry was read: if it is one of the reports, drop it from the recorder."""
    if recorder is None or entry.command.fn != NAME:
        return
    left = [
        each.args
        for each in pending(recorder)
        if each.args.get("loss") != entry.command.args.get("loss")
    ]
    recorder.keep(msgspec.json.encode(left) if left else b"")
