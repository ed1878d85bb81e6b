"""The job with a processor under chaos. Imported by the workers.

Every segment is computed from its number, and what is written says enough to be compared with a
plain loop whatever the order in which partitions were read.
"""

from __future__ import annotations

import windows_job

from onyx.processors import Inbox, Processor, traverse

KEYS = 200
EVERY = 16


def gated_generator(context):
    return windows_job.gated_generator(context)


def moved(number: int):
    """A step of one of many keys."""
    return {"key": number * 2_654_435_761 % KEYS, "n": number, "v": number % 97, "time": number}


class Sums(Processor):
    """Each segment gets a number of its own in its group, and the sum until then. With every some
    of them a row says so once more: several rows for one segment, some for none. At the end there
    is a row for each group."""

    completes_in_pages = True

    def init(self) -> None:
        self.sums = {}
        self.made = self.flat_mapper(self.step)
        self.saving = None

    def step(self, segment):
        seen, total = self.sums.get(segment["key"], (0, 0))
        seen, total = seen + 1, total + segment["v"]
        self.sums[segment["key"]] = (seen, total)
        row = {"row": "step", "seen": seen, "total": total, **segment}
        return [row, {**row, "row": "more"}] if seen % EVERY == 0 else [row]

    def process_item(self, ordinal, item):
        return self.made.try_process(item)

    def complete(self):
        for key in sorted(self.sums):
            seen, total = self.sums[key]
            if not self.try_emit({"row": "end", "key": key, "seen": seen, "total": total}):
                return False
            del self.sums[key]
            if key % 3 == 0:
                return False
        return True

    def save_to_snapshot(self):
        if self.saving is None:
            self.saving = traverse([(key, list(each)) for key, each in self.sums.items()])
        if not self.save_from(self.saving):
            return False
        self.saving = None
        return True

    def restore_from_snapshot(self, inbox: Inbox):
        for key, each in inbox.drain():
            assert key not in self.sums, "keys of groups"
            self.sums[key] = tuple(each)
