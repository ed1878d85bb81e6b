"""Processors that tests run on peers and in queries of Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from onyx import FAIL
from onyx.processors import Inbox, Processor, traverse


class Totals(Processor):
    """A running count for each key, and at the end a total; at 13 an error."""

    def init(self) -> None:
        self.counts: dict[str, int] = {}
        self.left: Any = None
        self.saving: Any = None

    def process_item(self, ordinal: int, item: Any) -> bool:
        count = self.counts.get(item["key"], 0) + 1
        if not self.try_emit({"key": item["key"], "count": count}):
            return False
        self.counts[item["key"]] = count
        if item["v"] == 13:
            raise ValueError("thirteen")
        return True

    def complete(self) -> bool:
        self.left = self.left or traverse(
            [{"key": key, "total": count} for key, count in self.counts.items()]
        )
        return bool(self.emit_from(self.left))

    def save_to_snapshot(self) -> bool:
        self.saving = self.saving or traverse(list(self.counts.items()))
        if not self.save_from(self.saving):
            return False
        self.saving = None
        return True

    def restore_from_snapshot(self, inbox: Inbox[tuple[str, int]]) -> None:
        self.counts.update(inbox.drain())


class Columnar(Totals):
    """The same over record batches, which may be of any size."""

    def process_item(self, ordinal: int, item: pa.RecordBatch) -> bool:
        made = []
        for row in item.to_pylist():
            self.counts[row["key"]] = self.counts.get(row["key"], 0) + 1
            made.append({"key": row["key"], "count": self.counts[row["key"]]})
        assert self.try_emit(pa.RecordBatch.from_pylist(made)), "the outbox was empty"
        return True

    def complete(self) -> bool:
        made = [{"key": key, "total": count} for key, count in self.counts.items()]
        return not made or self.try_emit(pa.RecordBatch.from_pylist(made))


class Named(Processor):
    """Segments of the second task, with what the first one has for their key: they are left in the
    inbox until all of the first task has come."""

    def init(self) -> None:
        self.names: dict[str, Any] = {}
        self.has_all = False

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        if ordinal == 0:
            self.names.update((each["key"], each["name"]) for each in inbox.drain())
        elif self.has_all:
            super().process(ordinal, inbox)

    def process_item(self, ordinal: int, item: Any) -> bool:
        return self.try_emit({**item, "name": self.names.get(item["key"])})

    def complete_edge(self, ordinal: int) -> bool:
        self.has_all |= ordinal == 0
        return True

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot(0, {"names": self.names, "all": self.has_all})

    def restore_from_snapshot(self, inbox: Inbox[tuple[int, Any]]) -> None:
        for _, saved in inbox.drain():
            self.names |= saved["names"]
            self.has_all |= saved["all"]


class NamedColumns(Named):
    """The same over record batches."""

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        if ordinal == 0:
            for batch in inbox.drain():
                self.names.update((each["key"], each["name"]) for each in batch.to_pylist())
        elif self.has_all:
            Processor.process(self, ordinal, inbox)

    def process_item(self, ordinal: int, item: pa.RecordBatch) -> bool:
        names = pa.array([self.names.get(key) for key in item["key"].to_pylist()])
        return self.try_emit(item.append_column("name", names))


class Pairs(Processor):
    """Takes two at a time, and leaves one that is alone."""

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        items = list(inbox)
        if len(items) > 1 and self.try_emit({"pair": [each["v"] for each in items[:2]]}):
            inbox.remove()
            inbox.remove()


class Failing(Totals):
    """Every third item fails once; a processor that is made anew has forgotten that."""

    def init(self) -> None:
        super().init()
        self.failed: set[int] = set()

    def process_item(self, ordinal: int, item: Any) -> Any:
        if item["v"] % 3 == 0 and item["v"] not in self.failed:
            self.failed.add(item["v"])
            return FAIL
        return super().process_item(ordinal, item)


class Many(Totals):
    """One item makes more than is kept in memory at once."""

    def process_item(self, ordinal: int, item: Any) -> bool:
        if item["v"] != 7:
            self.counts[item["key"]] = self.counts.get(item["key"], 0) + 1
            return True
        self.many = getattr(self, "many", None) or traverse({"many": n} for n in range(70_000))
        return bool(self.emit_from(self.many))


class Heard(Processor):
    """What is called, as segments; where it runs."""

    def init(self) -> None:
        self.marks = 0

    def process_item(self, ordinal: int, item: Any) -> bool:
        return self.try_emit({"from": self.context.parents[ordinal], "v": item.get("v")})

    def try_process_watermark(self, watermark: int) -> bool:
        self.marks = watermark
        return True

    def complete_edge(self, ordinal: int) -> bool:
        return self.try_emit({"ended": self.context.parents[ordinal]})

    def complete(self) -> bool:
        where = [self.context.index, self.context.processors]
        return self.try_emit({"complete": self.marks, "where": where})

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot("marks", self.marks)

    def restore_from_snapshot(self, inbox: Inbox[tuple[str, int]]) -> None:
        self.marks = max(value for _, value in inbox.drain())


class Patient(Processor):
    """Sends a beat whenever it may, and takes an item behind the fourth one."""

    def init(self) -> None:
        self.beats = 0

    def try_process(self) -> bool:
        if not self.try_emit({"beat": self.beats}):
            return False
        self.beats += 1
        return True

    def process_item(self, ordinal: int, item: Any) -> bool:
        return self.beats > 4 and self.try_emit({"v": item["v"]})

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot(0, self.beats)

    def restore_from_snapshot(self, inbox: Inbox[tuple[int, int]]) -> None:
        ((_, self.beats),) = inbox.drain()


class Never(Processor):
    """Leaves everything."""

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        """Nothing is taken."""


class Waits(Never):
    """Leaves everything, and keeps how much it has taken."""

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot("taken", 0)

    def restore_from_snapshot(self, inbox: Inbox[tuple[str, int]]) -> None:
        inbox.drain()


class Choosy(Processor):
    """Takes a few of the first task at once, and of the second one only what needs no more of the
    first than it has had; each third fails once. Says of each whether event time was before it."""

    def init(self) -> None:
        self.had = [0, 0]
        self.mark = -1
        self.has_all = False
        self.failed: set[int] = set()

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        for _ in range(min(len(inbox), 3)):
            item = inbox.peek()
            if ordinal == 1 and item["need"] > self.had[0] and not self.has_all:
                return
            if item["n"] % 3 == 0 and item["n"] not in self.failed:
                self.failed.add(item["n"])
                inbox.fail(FAIL)
                continue
            if not self.try_emit({**item, "edge": ordinal, "late": item["at"] < self.mark}):
                return
            self.had[ordinal] += 1
            inbox.remove()

    def try_process_watermark(self, watermark: int) -> bool:
        self.mark = watermark
        return True

    def complete_edge(self, ordinal: int) -> bool:
        self.has_all |= ordinal == 0
        return self.try_emit({"ended": ordinal, "had": self.had[ordinal]})

    def complete(self) -> bool:
        return self.try_emit({"complete": self.had})

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot(0, [self.had, self.mark, self.has_all])

    def restore_from_snapshot(self, inbox: Inbox[tuple[int, Any]]) -> None:
        for _, (had, self.mark, self.has_all) in inbox.drain():
            self.had = list(had)
