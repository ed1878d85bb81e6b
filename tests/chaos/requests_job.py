"""The jobs that take requests under chaos. Imported by the workers."""

from __future__ import annotations

from onyx import ack_return
from onyx.processors import Inbox, Processor, traverse

LAPS_MAX = 3


def noted(segment):
    """Gives back a sum over the segments of a request."""
    ack_return("sum", segment["n"])
    return segment


def counted(segment, state):
    """Every segment gets a number of its own in its group."""
    state.seen = (state.seen or 0) + 1
    return {**segment, "seen": state.seen}


class Numbered(Processor):
    """Every segment gets a number of its own in its group."""

    def init(self):
        self.seen = {}
        self.saving = None

    def process_item(self, ordinal, item):
        seen = self.seen.get(item["key"], 0) + 1
        if not self.try_emit({**item, "seen": seen}):
            return False
        self.seen[item["key"]] = seen
        return True

    def save_to_snapshot(self):
        if self.saving is None:
            self.saving = traverse(list(self.seen.items()))
        if not self.save_from(self.saving):
            return False
        self.saving = None
        return True

    def restore_from_snapshot(self, inbox: Inbox):
        self.seen.update(inbox.drain())


def timed(segment):
    """One side of a join."""
    return {**segment, "at": segment["n"]}


def lap(segment):
    """Goes round until it has gone as often as its number says."""
    return {**segment, "laps": segment.get("laps", 0) + 1}


def has_laps_left(event, old, segment, all_new):
    return segment.get("laps", 0) < segment["n"] % (LAPS_MAX + 1)


def has_no_laps_left(event, old, segment, all_new):
    return not has_laps_left(event, old, segment, all_new)


def same(segment):
    return segment
