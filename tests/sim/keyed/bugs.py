"""Bugs planted on purpose where functions have state: the simulator must find each.

K1 a timer that has fired is still in the log; K2 one that is moved on fires at its old time; K3 one
that is moved forward is looked at when it was due before; K4 of a call that fails only the last
change is taken back; K5 a snapshot has changes without what they made functions return; K6 who had
a key group before goes on with what it held then; K7 a period that was renewed ends all the same;
K8 who takes over does not know what was applied; K9 of a list all is recorded as appended; K10
items that go from a map are not recorded; K11 what is known as applied is called again; K12 who
takes over does not look at timers; K13 a table of which something could not be read counts as
whole; K14 a call over columns that fails leaves what it has set; K15 a state that is on disk is not
written again; K16 at the end timers by the clock are dropped; K17 event time goes on downstream
before what functions have returned. Of loops: K19 what comes back of a tree that is complete goes
on; K20 an edge inside a loop counts as a lap; K21 what goes back holds the task up. Of what another
task keeps: K22 all groups are asked for at one peer; K23 a question that was lost is not asked
again; K24 what did not fit into an answer counts as
not there; K25 a group that the batch before had is not asked for. K26 what failed has not failed in
another attempt that the same batch has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tests.sim.planting import FoundBy, Plants, planted_of

from onyx.base.runs import Numbers
from onyx.codec.values import decode_values
from onyx.errors import Unavailable
from onyx.flow.batch import Batch, Segments
from onyx.flow.columns.record_batch import Columns
from onyx.flow.leaves import Leaves
from onyx.flow.segment import SegmentFailure
from onyx.joins import kept
from onyx.joins.kept import ForeignState
from onyx.keystate.coded import Groups
from onyx.keystate.records import Record
from onyx.operators.context import OperatorContext
from onyx.operators.keyed import operator as keyed_operator
from onyx.operators.keyed.function_calls import DeclaredStates
from onyx.operators.keyed.states import Lists, Maps
from onyx.operators.keyed.timers import Clock, DueTimer, Expiry, KeyTimers
from onyx.operators.keyed.views import CallChanges
from onyx.program.program import Definition
from onyx.state.chunks import Chunk
from onyx.state.local.spilled import SpilledBucket
from onyx.tables import loading
from onyx.task.channels import lookups
from onyx.task.channels.lookups import Lookups
from onyx.task.channels.outbox import Outbox
from onyx.task.parts import Allocation
from onyx.task.phases import read, send
from onyx.task.recovery import state as recovery_of_state
from onyx.task.state.chunks import NO_COLUMNS
from onyx.task.state.emissions import Emissions, PlacedRuns
from onyx.task.state.keeper import StateKeeper
from onyx.task.state.task_state import AppliedIds, TaskState
from onyx.transport.interface import Delivery, LookUpAnswer
from onyx.windows.watermarks import Mark

_applied = AppliedIds.__init__
_keys_of = ForeignState.keys_of
_receive = Lookups.receive
_take = ForeignState.take
_laps_of = send.laps_of
_call_columns = DeclaredStates.call_columns
_made = recovery_of_state.operator_of
_reads = loading._reads
_snapshot = TaskState.snapshot
_swap = KeyTimers.swap
_take_all = KeyTimers.take_all
_write = SpilledBucket._write


def _delete_unrecorded(timers: KeyTimers, key: Any, name: str) -> None:
    """K1."""
    bucket = timers._timers._bucket
    its = bucket.get(key, {})
    its.pop(name, None)
    if not its and key in bucket:
        del bucket[key]


def _all_of_the_key(timers: KeyTimers, clock: Clock, now_ms: int) -> Iterator[DueTimer]:
    """K2."""
    dues = timers._dues[clock]
    for _, key in dues.take(now_ms):
        for name, (due_ms, _) in timers._of_clock(key, clock):
            if timers.get(key, name) == (clock, due_ms):
                timers.delete(key, name)
                yield DueTimer(key, name, clock, due_ms)
        left = timers._earliest(key, clock)
        if left is not None:
            dues.put(left, key)


def _put_once(
    timers: KeyTimers, key: Any, name: str, timer: tuple[Clock, int] | None
) -> tuple[Clock, int] | None:
    """K3."""
    dues = timers._dues
    if timers._timers.get(key):
        timers._dues = {clock: _Nobody() for clock in dues}  # type: ignore[misc]
    before = _swap(timers, key, name, timer)
    timers._dues = dues
    return before


class _Nobody:
    def put(self, due_ms: int, key: Any) -> None: ...


def _take_back_the_last(changes: CallChanges) -> None:
    """K4."""
    if changes.backs:
        back, arguments = changes.backs[-1]
        back(*arguments)
    changes.backs.clear()


def _snapshot_of_states(state: TaskState, new: PlacedRuns, emissions: Emissions) -> Chunk:
    """K5."""
    return _snapshot(state, {}, emissions)


def _hold_on(its: Definition, context: OperatorContext) -> Any:
    """K6."""
    kept = vars(context.program.clock).setdefault("kept", {})
    peer = context.program.event["id"]
    made, before = _made(its, context), kept.get(peer)
    kept[peer] = made
    if before is not None:
        restore, left = made.restore, set(before._shards.known)
        known = frozenset(left)

        def hold(shard: int, records: Sequence[Record]) -> None:
            if shard not in known:
                restore(shard, records)
            elif shard in left:
                left.discard(shard)
                restore(shard, before.freeze([shard])(shard))

        made.restore = hold  # type: ignore[method-assign]
    return made


def _end_all_the_same(expiry: Expiry, now_ms: int) -> Iterator[Any]:
    """K7."""
    for _, key in expiry._dues.take(now_ms):
        if expiry._touched.get(key) is not None:
            expiry._touched.remove(key)
            yield key


def _only_the_first_attempt(batch: Batch, failures: list[SegmentFailure]) -> list[SegmentFailure]:
    """K26."""
    return failures


def _forget_applied(ids: AppliedIds, roots: Numbers, segments: Numbers) -> None:
    """K8."""
    _applied(ids, NO_COLUMNS, NO_COLUMNS)


def _whole_list(lists: Lists, state: Any, mark: Any) -> list[Any]:
    """K9."""
    return list(state)


def _only_set(maps: Maps, state: Any, mark: Any) -> list[Any]:
    """K10."""
    return [[item, state[item]] for item in mark if item in state]


def _all_of_them(keeper: StateKeeper, batch: Batch) -> None:
    """K11."""


def _look_at_nothing(timers: KeyTimers) -> None:
    """K12."""


def _what_can_be_read(*arguments: Any) -> Iterator[Any]:
    """K13."""
    try:
        yield from _reads(*arguments)
    except Unavailable:
        return


def _keep_what_failed(
    held: DeclaredStates, fn: Callable[..., Any], groups: Groups, columns: Columns
) -> tuple[Leaves, bool]:
    """K14."""
    states: list[Any] = []

    def noted(*given: Any) -> Any:
        states.append(given[-1])
        return fn(*given)

    leaves, changed = _call_columns(held, noted, groups, columns)
    return leaves, changed or states[0].keep()


def _write_once(bucket: SpilledBucket, keys: list[Any]) -> None:
    """K15."""
    db = bucket._spill.db
    _write(bucket, [key for key in keys if db.get(bucket._name(key)) is None])


def _those_by_event_time(timers: KeyTimers, shards: Collection[int]) -> Iterator[DueTimer]:
    """K16."""
    return (each for each in _take_all(timers, shards) if each.clock == "event-time")


def _at_once(keeper: StateKeeper, mark: Mark) -> Mark:
    """K17."""
    return mark


def _all_deliveries(allocation: Allocation, deliveries: list[Delivery]) -> list[Delivery]:
    """K19."""
    return deliveries


def _one_more_lap(laps: Numbers | None, many: int, parents: Any, more: int) -> Numbers | None:
    """K20."""
    return _laps_of(laps, many, parents, 1)


def _in_one_queue(outbox: Outbox, pending: Any) -> None:
    """K21."""
    outbox._queue.append(pending)


def _one_shard(key: Any) -> int:
    """K22."""
    return 0


def _wait(lookups: Lookups) -> None:
    """K23."""


def _only_the_first(lookups: Lookups, found: LookUpAnswer) -> None:
    """K24."""
    question = lookups._open.get(found.number)
    if question is not None and not found.error:
        question.keys = question.keys[: decode_values(found.states)[0]]
    _receive(lookups, found)


def _new_keys(kept: ForeignState, segments: Segments) -> list[Any]:
    """K25."""
    return [key for key in _keys_of(kept, segments) if key not in _of(kept)]


def _take_also(
    kept: ForeignState, keys: Sequence[Any], states: Sequence[Any], refused: Mapping[Any, str]
) -> None:
    """K25."""
    known = _of(kept)
    known.update(zip(keys, states, strict=True))
    _take(kept, list(known), list(known.values()), refused)


def _of(kept: ForeignState) -> dict[Any, Any]:
    return vars(kept).setdefault("known", {})


class _Remembering(ForeignState):
    """K25."""

    keys_of = _new_keys
    take = _take_also


PLANTS: Plants = {
    "K1": (KeyTimers, "delete", _delete_unrecorded),
    "K2": (KeyTimers, "take_due", _all_of_the_key),
    "K3": (KeyTimers, "swap", _put_once),
    "K4": (CallChanges, "take_back", _take_back_the_last),
    "K5": (TaskState, "snapshot", _snapshot_of_states),
    "K6": (recovery_of_state, "operator_of", _hold_on),
    "K7": (Expiry, "take", _end_all_the_same),
    "K8": (AppliedIds, "__init__", _forget_applied),
    "K9": (Lists, "_updates", _whole_list),
    "K10": (Maps, "_updates", _only_set),
    "K11": (StateKeeper, "unapplied", _all_of_them),
    "K12": (KeyTimers, "_restored", _look_at_nothing),
    "K13": (loading, "_reads", _what_can_be_read),
    "K14": (DeclaredStates, "call_columns", _keep_what_failed),
    "K15": (SpilledBucket, "_write", _write_once),
    "K16": (KeyTimers, "take_all", _those_by_event_time),
    "K17": (StateKeeper, "release", _at_once),
    "K19": (read, "_living", _all_deliveries),
    "K20": (send, "laps_of", _one_more_lap),
    "K21": (Outbox, "_append", _in_one_queue),
    "K22": (lookups, "shard_of", _one_shard),
    "K23": (Lookups, "_ask_again", _wait),
    "K24": (Lookups, "receive", _only_the_first),
    "K25": (kept, "ForeignState", _Remembering),
    "K26": (keyed_operator, "with_repeats", _only_the_first_attempt),
}
FOUND_BY: FoundBy = {
    "K1": {"W5", "T1"},
    "K2": {"T2"},
    "K3": {"T3"},
    "K4": {"S1"},
    "K5": {"C5"},
    "K6": {"S1", "W5"},
    "K7": {"S1", "S4"},
    "K8": {"C5", "S2"},
    "K9": {"W5"},
    "K10": {"W5"},
    "K11": {"S2"},
    "K12": {"T3"},
    "K13": {"C5", "N1"},
    "K14": {"S1"},
    "K15": {"A1", "S1", "T3", "W5"},
    "K16": {"T1"},
    "K17": {"W3"},
    "K19": {"S2"},
    "K20": {"U"},
    "K21": {"V3"},
    "K22": {"A1"},
    "K23": {"V3"},
    "K24": {"A1"},
    "K26": {"C5", "S2"},
    "K25": {"A1"},
}
planted = partial(planted_of, PLANTS)
