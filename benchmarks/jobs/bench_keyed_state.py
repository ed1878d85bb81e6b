"""What `keyed_state.py` measures: a sum by key, over segments and over columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from onyx.processors import Inbox, Processor, Traverser, traverse

KEYS = 1_000


class Sums(Processor):
    """The sums in a dict, saved as a whole."""

    def init(self) -> None:
        self.sums: dict[int, int] = {}
        self.saving: Traverser[tuple[int, int]] | None = None

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        sums = self.sums
        for segment in inbox.drain():
            sums[segment["key"]] = sums.get(segment["key"], 0) + segment["v"]

    def save_to_snapshot(self) -> bool:
        self.saving = self.saving or traverse(list(self.sums.items()))
        if not self.save_from(self.saving):
            return False
        self.saving = None
        return True

    def restore_from_snapshot(self, inbox: Inbox[tuple[int, int]]) -> None:
        self.sums.update(inbox.drain())


class SumsOfColumns(Sums):
    """The same over columns."""

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        for batch in inbox.drain():
            keys, codes = np.unique(batch["key"].to_numpy(), return_inverse=True)
            added = np.bincount(codes, weights=batch["v"].to_numpy()).astype(np.int64)
            for key, each in zip(keys.tolist(), added.tolist(), strict=True):
                self.sums[key] = self.sums.get(key, 0) + each


def reading(number: int) -> dict[str, Any]:
    return {"key": number * 2_654_435_761 % KEYS, "v": number % 97}


def reading_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    numbers = batch["n"].to_numpy()
    return pa.record_batch({"key": numbers * 2_654_435_761 % KEYS, "v": numbers % 97})


def few(number: int) -> dict[str, Any]:
    """Segments of ten groups, a thousand in a second."""
    return {"key": number % 10, "v": number % 97, "at": number}


def few_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    numbers = batch["n"].to_numpy()
    return pa.record_batch({"key": numbers % 10, "v": numbers % 97, "at": numbers})


def add(segment: dict[str, Any], state: Any) -> None:
    state.total = (state.total or 0) + segment["v"]


def add_columns(batch: pa.RecordBatch, state: Any) -> None:
    groups, values = state.groups.to_numpy(), batch["v"].to_numpy()
    sums = np.bincount(groups, weights=values, minlength=len(state.keys)).astype(np.int64)
    state.total = state.total.fill_null(0).to_numpy() + sums


def running(segment: dict[str, Any], state: Any) -> dict[str, Any]:
    state.total = (state.total or 0) + segment["v"]
    return {"key": segment["key"], "total": state.total}


def running_columns(batch: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    add_columns(batch, state)
    return pa.record_batch([batch["key"], state.total.take(state.groups)], ["key", "total"])


def later(segment: dict[str, Any], state: Any) -> None:
    """Also moves a timer, as whoever waits for a group to fall silent does."""
    state.total = (state.total or 0) + segment["v"]
    state.set_timer("silent", 1_700_000_000_000 + state.total)


def nothing(timer: Any, state: Any) -> None:
    """When all ends."""
