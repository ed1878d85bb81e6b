"""Sessions in arrays are those that objects would be: what fires, what is late, what is recorded,
what is found, and what is restored of either by either."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.property.test_windows_columns_properties import given_as_columns, given_as_dicts
from tests.support.examples import examples
from tests.support.windows.short import plain, shown, task_windows

from onyx.codec.values import decode_records, encode_records
from onyx.keystate.records import SetSessions
from onyx.windows.arrays import session_rows
from onyx.windows.types.session_arrays import SessionsInArrays

GAP = 4
AGGREGATIONS = st.sampled_from(["count", ("sum", "v"), ("min", "v"), ("average", "v")])
TRIGGERS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.just("watermark"),
            "refinement": st.sampled_from(["discarding", "accumulating"]),
            "fire_at_end": st.sampled_from(["always", "changed"]),
            "delay": st.sampled_from([None, (3, "elements")]),
        }
    )
    | st.fixed_dictionaries(
        {
            "type": st.just("percentile-watermark"),
            "watermark_percentage": st.sampled_from([0.3, 0.5]),
            "refinement": st.sampled_from(["discarding", "accumulating"]),
            "fire_at_end": st.sampled_from(["always", "changed"]),
        }
    ),
    min_size=1,
    max_size=2,
)
STEPS = st.lists(
    st.tuples(st.just("add"), st.integers(0, 20), st.lists(st.tuples(
        st.integers(0, 14), st.sampled_from("abcdefgh"), st.integers(-3, 3)
    ), min_size=1, max_size=20))
    | st.tuples(st.just("advance"), st.integers(0, 50), st.booleans())
    | st.tuples(st.sampled_from(["record", "query", "restore", "drop"])),
    max_size=14,
)  # fmt: skip


def said_of(record):
    """What a record says; the order of triggers that have fired says nothing."""
    if isinstance(record, SetSessions):
        fired = [list(map(sorted, each)) for each in record.fired]
        return repr(structs.replace(record, fired=fired))
    return repr(record)


class Pair:
    """Windows whose sessions are objects, and others that have them in arrays."""

    def __init__(self, aggregation, triggers, lateness, floats):
        self.given = (
            {
                "type": "session", "timeout_gap": (GAP, "elements"), "aggregation": aggregation,
                "init": None if lateness is None else 0.0 if floats else 0,
                "allowed_lateness": None if lateness is None else (lateness, "elements"),
            },
            triggers,
        )  # fmt: skip
        self.floats, self.watermark = floats, -1
        self.both = [self.made(False), self.made(True)]
        assert isinstance(self.both[1]._windows["w0"]._extents, SessionsInArrays)
        self.logs = [{0: [], 1: []}, {0: [], 1: []}]

    def made(self, columns):
        made = task_windows(
            self.given, group_by="k", columns=columns, shard_of=lambda key: ord(key) % 2
        )
        made._windows["w0"]._extents._page_max = 3
        return made

    def add(self, begin, rows):
        segments = [
            {"at": begin + at, "v": v / 3 if self.floats else v, "k": k, "s": 0}
            for at, k, v in rows
        ]
        found = []
        for windows, form in zip(self.both, (given_as_dicts, given_as_columns), strict=True):
            batch, groups = form(segments)
            found.append(windows.add(batch, groups, 0).late)
        assert found[0] == found[1]

    def advance(self, watermark, interrupted=False):
        self.watermark = max(self.watermark, watermark)
        if interrupted:
            self.record()
        found = []
        for windows, log in zip(self.both, self.logs, strict=True):
            fired = []
            for page in windows.advance(self.watermark):
                fired += shown(page)
                if interrupted:
                    self.logged(windows, log)
            found.append(sorted(fired))
            if interrupted:
                self.logged(windows, log)
        assert found[0] == found[1]

    def logged(self, windows, log):
        changes = windows.take_changes()
        for shard, records in changes.items():
            log[shard] += decode_records(encode_records(records))
        return changes

    def record(self):
        said = []
        for windows, log in zip(self.both, self.logs, strict=True):
            changes = self.logged(windows, log)
            said.append(
                sorted(f"{s} {said_of(each)}" for s, its in changes.items() for each in plain(its))
            )
        assert said[0] == said[1]

    def query(self):
        found = [sorted(map(repr, windows.query("w0"))) for windows in self.both]
        assert found[0] == found[1]

    def restore(self):
        """Each goes on with what either has recorded."""
        self.record()
        for log in self.logs:
            self.query()
            made = [self.made(False), self.made(True)]
            for windows in made:
                for shard, records in log.items():
                    windows.restore(shard, records)
            was, self.both = self.both, made
            found = [sorted(map(repr, each.query("w0"))) for each in (*was, *made)]
            assert found == [found[0]] * len(found)
        for windows in self.both:
            windows.resume(self.watermark)

    def drop(self):
        self.record()
        for windows in self.both:
            windows.drop([1])
            windows.restore(1, [])  # and back at once, without what it had
        for log in self.logs:
            log[1].clear()
        self.query()


@given(
    aggregation=AGGREGATIONS,
    triggers=TRIGGERS,
    lateness=st.none() | st.integers(3, 12),
    floats=st.booleans(),
    steps=STEPS,
)
@settings(max_examples=examples(60), deadline=None)
def test_sessions_are_what_objects_would_be(aggregation, triggers, lateness, floats, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_rows, "_COMPACT_MIN", 2)
        pair = Pair(aggregation, triggers, lateness, floats)
        for what, *its in steps:
            getattr(pair, what)(*its)
        pair.restore()
        pair.advance(1_000)
        pair.query()
        found = [sorted(shown(windows.complete([0, 1], 0))) for windows in pair.both]
        assert found[0] == found[1]
        pair.record()
