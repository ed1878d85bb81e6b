"""Windows of a task in a few words, for tests of what they do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from onyx.flow.batch import as_dicts
from onyx.keystate.buckets import Holder
from onyx.keystate.groups import dump_key, dump_keys, hashable_keys
from onyx.keystate.records import Record, SetArrays, SetSessionArrays, SetSessions, SetStates
from onyx.model.job import CatalogEntry, Job, Trigger, Window
from onyx.windows.arrays.key_table import unpacked
from onyx.windows.arrays.session_rows import sessions_of
from onyx.windows.compile import compile_windows
from onyx.windows.firing import AnyFiring, Firing, FiringRows
from onyx.windows.running import Make
from onyx.windows.task_windows import TaskWindows

WATERMARK = {"type": "watermark", "refinement": "discarding"}


def task_windows(
    *windows: tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]],
    group_by: str | None = None,
    assigned: bool = True,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    shard_of: Callable[[Any], int] = lambda group: 0,
    make_elsewhere: Make | None = None,
    columns: bool = False,
    holder: Holder | None = None,
) -> TaskWindows:
    """Windows w0, w1, ... with triggers t0, t1, ... each; a fixed one of 10 elements over `at`
    that counts, unless said otherwise; of a task over columns or dicts."""
    shape = {"type": "fixed", "aggregation": "count", "window_key": "at"}
    job = Job(
        "job",
        (("read", "gather"),),
        (
            CatalogEntry("read", "input", 1, watermark_key="at" if assigned else None),
            CatalogEntry(
                "gather",
                "reduce",
                1,
                group_by_key=group_by,
                batch_format="arrow" if columns else "dicts",
            ),
        ),
        windows=tuple(
            Window(f"w{n}", "gather", **_ranged({**shape, **each}))
            for n, (each, _) in enumerate(windows)
        ),
        triggers=tuple(
            Trigger(f"w{n}", **{"id": f"t{m}", **each})
            for n, (_, triggers) in enumerate(windows)
            for m, each in enumerate(triggers)
        ),
    )
    compiled = compile_windows(job, "gather", (functions or {}).__getitem__)
    assert compiled is not None
    return TaskWindows(compiled, shard_of, holder, make_elsewhere=make_elsewhere)


def _ranged(window: dict[str, Any]) -> dict[str, Any]:
    if window["type"] == "fixed" and "range" not in window:
        return {**window, "range": (10, "elements")}
    return window


def add(windows: TaskWindows, *places: Any, now_ms: int = 0) -> list[str]:
    """Add segments of one group, by their places, and show what has fired."""
    return shown(windows.add([{"at": place} for place in places], None, now_ms).firings)


def add_grouped(windows: TaskWindows, *segments: Mapping[str, Any], now_ms: int = 0) -> list[str]:
    """Add segments whose group is under `k`, and show what has fired."""
    keys = hashable_keys([each["k"] for each in segments])
    return shown(windows.add([dict(each) for each in segments], keys, now_ms).firings)


def shown(firings: Iterable[AnyFiring | Iterable[AnyFiring]]) -> list[str]:
    """Firings as text: `t0 0-9: 3`, with the group before it where there is one."""
    return [
        f"{one.trigger.id} {f'{one.group!r} ' if one.grouped else ''}{one.lower}-{one.upper}: "
        f"{one.state}"
        for each in firings
        for any_one in ([each] if isinstance(each, Firing | FiringRows) else each)
        for one in singles(any_one)
    ]


def singles(firing: AnyFiring) -> list[Firing]:
    """What fires as single firings: a row for each, with what is null left out of states. A column
    has one type, so beside a sum that is beyond 64 bits the others are Decimals too."""
    if isinstance(firing, Firing):
        return [firing]
    return [
        Firing(
            firing.window, firing.trigger, firing.event_type, shard, firing.grouped, row["group"],
            -math.inf if row["lower"] is None else row["lower"],
            math.inf if row["upper"] is None else row["upper"],
            _as_alone(row["state"]), None, firing.watermark,
        )
        for shard in firing.shards
        for row in as_dicts(firing.of(shard))
    ]  # fmt: skip


def _as_alone(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _as_alone(each) for key, each in state.items() if each is not None}
    if isinstance(state, Decimal) and -(2**63) <= state < 2**64:
        return int(state)
    return state


def held(windows: TaskWindows, window: str = "w0") -> list[str]:
    """What a window holds, in the same form."""
    return [f"{each.lower}-{each.upper}: {each.state}" for each in windows.query(window)]


SESSION_COLUMNS = ("groups", "session_keys", "lowers", "uppers", "states", "fired")


def plain(records: Iterable[Record]) -> list[Record]:
    """Records of states with those that are in arrays as Python has them, and one for the sessions
    of each group: several are in any order."""
    return [made for each in records for made in _plain(each)]


def _plain(record: Record) -> Sequence[Record]:
    if isinstance(record, SetSessionArrays):
        record = _plain_sessions(record)
    if isinstance(record, SetSessions):
        owners = zip(*(getattr(record, name) for name in SESSION_COLUMNS), strict=True)
        return [SetSessions(record.window, *([each] for each in owner)) for owner in owners]
    return [_plain_states(record)] if isinstance(record, SetArrays) else [record]


def _plain_sessions(record: SetSessionArrays) -> SetSessions:
    its = sessions_of(record)
    held = [each.tolist() for each in its.states]
    states = held[0] if len(held) == 1 else list(map(list, zip(*held, strict=True)))
    lowers, uppers = (each.tolist() for each in its.bounds)
    fired = [[name for name in record.fired if record.fired[name][at]] for at in range(len(lowers))]
    whose = its.whose.tolist()
    mine = [
        [at for at, group in enumerate(whose) if group == index]
        for index in range(len(its.groups.keys))
    ]
    columns = [
        [[column[at] for at in each] for each in mine] for column in (lowers, uppers, states, fired)
    ]
    groups = [dump_key(key) for key in its.groups.keys]
    return SetSessions(record.window, groups, [None] * len(groups), *columns)


def _plain_states(record: SetArrays) -> SetStates:
    groups = unpacked(record.keys, record.groups).keys
    columns = [
        np.frombuffer(data, kind).tolist()
        for kind, data in zip(record.types, record.states, strict=True)
    ]
    states = columns[0] if len(columns) == 1 else list(map(list, zip(*columns, strict=True)))
    return SetStates(record.window, record.extent, dump_keys(list(groups)), states)
