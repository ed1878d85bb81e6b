"""Losses that the process before this one has left: reported to the cluster, once each.

They stay in the flight recorder until the entry has been read, so that one that is lost with this
process is reported by the next.
"""

from __future__ import annotations

import msgspec

from onyx.recorder import Recorder
from onyx.replica.commands.report_loss import NAME
from onyx.replica.entry import Command, Entry


def pending(recorder: Recorder | None) -> tuple[Command, ...]:
    """What is to be written."""
    data = recorder.losses() if recorder is not None else b""
    try:
        found = msgspec.json.decode(data or b"[]", type=list[dict[str, object]])
    except msgspec.DecodeError:  # what has ended the process may have written anywhere before
        found = []
    return tuple(Command(NAME, each) for each in found)


def heard(recorder: Recorder | None, entry: Entry) -> None:
    """An entry was read: perhaps a report of ours."""
    if recorder is None or entry.command.fn != NAME:
        return
    left = [
        each.args
        for each in pending(recorder)
        if each.args.get("loss") != entry.command.args.get("loss")
    ]
    recorder.keep(msgspec.json.encode(left) if left else b"")
