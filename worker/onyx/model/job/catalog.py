"""The catalog of a job: what each of its tasks is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from onyx.model import names
from onyx.model.job.stream_joins import JoinSide, Within
from onyx.model.job.types import TRACKED_ONLY, Milliseconds, Peers, TaskName
from onyx.model.job.work import WorkKeys
from onyx.model.keys.compound import ListOf, MapOf, OneOrMore
from onyx.model.keys.durations import Amount, Duration
from onyx.model.keys.key import Key
from onyx.model.keys.kinds import Function, Integer, Text
from onyx.model.keys.states import StateName, StateTypeName
from onyx.model.limits import (
    FIRST_FAILURES_MAX,
    LAPS_MAX,
    PENDING_MAX,
    SEGMENTS_PER_SECOND_MAX,
    STATE_TTL_MS_MAX,
)
from onyx.model.state_types import STATES_MAX

GROUPED = ("function", "output", "reduce")
"""Types of tasks whose segments may be grouped."""


class CatalogEntry(WorkKeys, frozen=True):
    """One task: where segments come from, what is done with them, or where they go."""

    min_peers: Annotated[
        Peers | None,
        Key(origin="onyx/min-peers", restriction="Not above maxPeers; not with nPeers."),
    ] = None
    """Peers that must be available before the job starts."""
    max_peers: Annotated[
        Peers | None,
        Key(origin="onyx/max-peers", restriction="Not below minPeers; not with nPeers."),
    ] = None
    """Most peers that may work on the task."""
    n_peers: Annotated[
        Peers | None,
        Key(origin="onyx/n-peers", restriction="Not together with minPeers or maxPeers."),
    ] = None
    """Sets minPeers and maxPeers to the same value."""
    group_by_key: Annotated[
        str | tuple[str, ...] | None,
        OneOrMore(Text()),
        Key(
            allowed_for=GROUPED,
            origin="onyx/group-by-key",
            restriction="Not together with groupByFn.",
        ),
    ] = None
    """Key of a segment, or several keys, by whose value segments are grouped; one peer gets all
    segments of a group."""
    group_by_fn: Annotated[
        str | None,
        Function(),
        Key(
            allowed_for=GROUPED,
            origin="onyx/group-by-fn",
            restriction="Not together with groupByKey.",
        ),
    ] = None
    """Function of a segment whose result is its group; one peer gets all segments of a group."""
    on_missing_key: Annotated[
        Literal["fail", "group"], Key(allowed_for=GROUPED, restriction="Needs groupByKey.")
    ] = "fail"
    """What happens to a segment without one of the groupByKey keys. `fail`: the segment fails.
    `group`: such segments form a group, as if the key were null."""
    flux_policy: Annotated[
        Literal["kill", "continue", "recover"] | None,
        Key(
            allowed_for=(*GROUPED, "join"),
            filled="continue, of a grouped task or a join",
            origin="onyx/flux-policy",
            restriction="Only with groupByKey or groupByFn, or on a join. kill and recover need "
            "minPeers or nPeers.",
        ),
    ] = None
    """What happens when a peer of a grouped task leaves. `kill`: the job is killed. `continue`: the
    other peers take over its key groups, and new peers may join at any time. `recover`: as
    `continue`, but peers join only up to minPeers or nPeers, or to replace one that left."""
    left: Annotated[JoinSide | None, Key(required_for=("join",), allowed_for=("join",))] = None
    """Stream of a join. Where both sides have a value of one name, a result has that of this side.
    """
    right: Annotated[JoinSide | None, Key(required_for=("join",), allowed_for=("join",))] = None
    """The other stream of a join."""
    how: Annotated[
        Literal["inner", "left", "right", "outer", "asof"], Key(allowed_for=("join",))
    ] = "inner"
    """What a join gives. `inner`: a segment for each two that meet. `left`, `right`, `outer`:
    besides, each segment of the left side, of the right one or of both that has met none, when none
    can come any more. `asof`: for each segment of the left side the latest of the right side that
    is not later, or itself alone."""
    within: Annotated[
        Within | None,
        Key(allowed_for=("join",), restriction="Needed, or range, but for how: asof."),
    ] = None
    """How near in time two segments are that meet. With how: asof, how old the right one may be; by
    default it may have any age, and one a key is kept as long as the job."""
    range: Annotated[
        int | None,
        Duration(1, STATE_TTL_MS_MAX),
        Key(allowed_for=("join",), restriction="Not together with within, nor with how: asof."),
    ] = None
    """Length of the extents in each of which two segments meet, aligned as those of a fixed window.
    """
    late_to: Annotated[
        TaskName | None,
        Key(
            allowed_for=("join",),
            restriction="A task after the join, to which the edge is added. Besides late segments "
            "it gets only what flow conditions that name it send there.",
        ),
    ] = None
    """Child of a join that gets segments that come behind the watermark, whose partners may be
    gone. By default they are dropped and counted."""
    combine: Annotated[
        bool,
        Key(
            allowed_for=("reduce",),
            restriction="Only on a task whose windows may be combined: fixed, sliding or global, "
            "of count, sum, min, max or average, with a watermark trigger at most. Not with fn, "
            "uniquenessKey, deadLetter, flow conditions, lifecycles, or guarantee: at-most-once.",
        ),
    ] = False
    """true: the tasks before fold the segments of a batch into states of the windows, and send
    these in place of the segments. It pays where groups are few. A query of Spark does so wherever
    it can."""
    state: Annotated[
        Mapping[str, str] | None,
        MapOf(StateName(), StateTypeName(), STATES_MAX),
        Key(
            allowed_for=("function",),
            restriction="Needs fn, and groupByKey or groupByFn; not with windows, sparkStage or "
            "batchFn. With batchFormat: arrow only values of a type.",
        ),
    ] = None
    """Names and types of what fn keeps for each group: `value`, `list` or `map`, of a type in
    brackets. fn gets it as its last argument, as `fn(segment, state)`; with `batchFormat: arrow` as
    columns, with a value for each group of the batch. What fn returns is sent when the change is
    durable."""
    state_ttl: Annotated[
        int | None,
        Duration(1_000, STATE_TTL_MS_MAX),
        Key(allowed_for=("function",), restriction="Needs state."),
    ] = None
    """Time without a change after which a group loses its states, on the clock of the worker; up to
    a sixteenth later. Timers stay. By default states are kept as long as the job."""
    on_timer: Annotated[
        str | None,
        Function(),
        Key(allowed_for=("function",), restriction="Needs state; not with batchFormat: arrow."),
    ] = None
    """Function that is called as `fn(timer, state)` when a timer is due that fn has set for a
    group. What it returns is sent like what fn returns. At the end of the job all timers are due.
    """
    loop_to: Annotated[
        TaskName | None,
        Key(
            allowed_for=("function",),
            restriction="The task itself or one upstream of it. Needs lapsMax, and a flow "
            "condition that names it. All tasks in between are functions without windows, "
            "processor or stage, and in no other loop; functions with state need guarantee: "
            "exactly-once, and have no onTimer, uniquenessKey or batchFormat: arrow; with engine: "
            "spark none is grouped. Not with guarantee: at-most-once.",
        ),
    ] = None
    """Task that gets segments of this one again: those for which a flow condition of this task
    names it. An input counts a segment as processed when all that has come of it has left the loop.
    Watermarks do not wait for segments in it."""
    laps_max: Annotated[
        int | None,
        Integer(1, LAPS_MAX, "laps"),
        Key(allowed_for=("function",), restriction="Needs loopTo."),
    ] = None
    """Times that a segment, and what comes of it, may go back to `loopTo`. What would go back
    once more has failed."""
    dead_letter: Annotated[
        TaskName | None,
        Key(
            allowed_for=("input", "function", "reduce", "join"),
            filled="of an input with onBadRecord: deadLetter, the task that gets other dead "
            "letters, or else an output dead-letters in the folder that has all outputs of files, "
            "or beside the only one",
            restriction="A task of the catalog; neither an input nor a task upstream of this one.",
        ),
    ] = None
    """Task that gets a dead letter for each segment that fails here, so that the job continues
    without the segment. The edge to it is added to the workflow. Ordinary segments go there only if
    a flow condition names it."""
    first_failures_max: Annotated[
        int,
        Integer(0, FIRST_FAILURES_MAX, "segments"),
        Key(
            allowed_for=("input", "function", "reduce", "join"),
            restriction="Needs deadLetter. Not with engine: spark.",
        ),
    ] = 1_000
    """Segments from the first one on after which the job is killed, with the error of the first, if
    each of them has failed on every peer with which the task began, so that a mistake in the job
    does not make dead letters of all there is. 0: the job goes on. Not where requests may bring
    segments: their answers say so."""
    required_tags: Annotated[
        tuple[str, ...], ListOf(Text(characters_max=63)), Key(origin="onyx/required-tags")
    ] = ()
    """Tags that a worker must have, all of them, for its peers to run this task."""
    percentage: Annotated[
        int | None,
        Integer(1, 99, "percent"),
        Key(
            origin="onyx/percentage",
            era="0.10+",
            restriction="Only with taskScheduler: percentage. At most 100 over all tasks.",
        ),
    ] = None
    """Share of the job's peers, under the percentage task scheduler."""
    guarantee: Annotated[
        Literal["at-most-once", "at-least-once"] | None,
        Key(
            allowed_for=("input",),
            restriction="Only in a job with guarantee: at-least-once, and not beside a Spark stage "
            "or a window with engine: spark.",
        ),
    ] = None
    """How often the effect of each segment of this input counts when something fails. With
    `at-most-once` nobody accounts for its segments: they cost no acks, are never read again, and
    what a failure takes is lost. By default as the job."""
    anchored: Annotated[
        bool,
        Key(
            allowed_for=("function",),
            restriction="false only in a job with guarantee: at-least-once, and not beside a Spark "
            "stage or a window with engine: spark.",
        ),
    ] = True
    """false: what the task sends on is not accounted for. The input counts a segment as processed
    when this task is done with it, and what becomes of the rest is at most once. A single segment
    is sent so by a flow condition with `anchored: false`."""
    retry_mode: Annotated[
        Literal["individual", "all-after", "none"],
        Key(
            allowed_for=("input",),
            restriction="all-after and none not under guarantee: exactly-once. " + TRACKED_ONLY,
        ),
    ] = "individual"
    """What the input does about a segment that is to be read again, because it is lost or a
    function or flow condition asks for it. `individual`: it reads that segment again. `all-after`:
    it reads that segment and all after it in its partition again, in order. `none`: the segment
    counts as processed, and is counted in a metric."""
    max_pending: Annotated[
        int | None,
        Integer(1, PENDING_MAX, "segments"),
        Key(allowed_for=("input",), origin="onyx/max-pending", restriction=TRACKED_ONLY),
    ] = None
    """In-flight segments of one peer of the input at which it stops reading. By default 10,000, or
    as many as eight batches have if that is more."""
    pending_timeout: Annotated[
        Milliseconds,
        Key(allowed_for=("input",), origin="onyx/pending-timeout", restriction=TRACKED_ONLY),
    ] = 60_000
    """Time after which a segment is read again that is not completely processed and that no worker
    works on: it is lost. What takes longer, in a function or until it is durable, is waited for.
    What a worker had that has died is read again at once."""
    input_retry_timeout: Annotated[
        Milliseconds,
        Key(allowed_for=("input",), origin="onyx/input-retry-timeout", restriction=TRACKED_ONLY),
    ] = 1_000
    """Interval between two checks for segments to replay."""
    checkpoint_segments: Annotated[
        int | None,
        Integer(1, PENDING_MAX, "segments"),
        Key(allowed_for=("input",), restriction=f"{TRACKED_ONLY} Not with engine: spark."),
    ] = None
    """Completed segments after which a peer of the input saves how far it is: fewer are read again
    after a crash, for more writes to ZooKeeper. It saves every two seconds in any case."""
    segments_per_second_max: Annotated[
        int | None,
        Integer(1, SEGMENTS_PER_SECOND_MAX, "segments"),
        Key(allowed_for=("input",), restriction="Not with engine: spark."),
    ] = None
    """Segments that all peers of the input together read in a second, at most; after a pause,
    those of one second at once. What is read again does not count."""
    uniqueness_key: Annotated[
        str | None,
        Key(
            origin="onyx/uniqueness-key",
            restriction="Only on a task with windows or state, or on a join.",
        ),
    ] = None
    """Key that identifies a segment, by which the task drops repeated segments. Without it, and
    without guarantee: exactly-once, what is read again after a failure counts again."""
    deduplicate: Annotated[
        bool,
        Key(
            filled="false under guarantee: at-least-once without uniquenessKey, else true",
            origin="onyx/deduplicate?",
            restriction="Only on a task with windows or state, or on a join; not false together "
            "with uniquenessKey, nor true without it under guarantee: at-least-once.",
        ),
    ] = True
    """false: the task applies repeated segments again."""
    assign_watermark_fn: Annotated[
        str | None,
        Function(),
        Key(
            allowed_for=("input",),
            origin="onyx/assign-watermark-fn",
            era="0.10+",
            restriction="Not together with watermarkKey.",
        ),
    ] = None
    """Function of a segment that gives its event time in milliseconds; with `batchFormat: arrow` of
    a record batch, giving an array of times."""
    watermark_key: Annotated[
        str | None, Key(allowed_for=("input",), restriction="Not together with assignWatermarkFn.")
    ] = None
    """Key of a segment that holds its event time in milliseconds."""
    allowed_disorder: Annotated[
        tuple[int, str],
        Amount(names.TIME_UNITS, number_min=0),
        Key(allowed_for=("input",), restriction="Needs watermarkKey or assignWatermarkFn."),
    ] = (0, "milliseconds")
    """How far out of order the event times of a partition may be: the watermark stays this far
    behind the latest one seen."""
    idle_timeout: Annotated[
        Milliseconds | None,
        Key(allowed_for=("input",), restriction="Needs watermarkKey or assignWatermarkFn."),
    ] = None
    """Time without segments after which a partition no longer holds back the watermark. By default
    a partition holds it back until it is exhausted."""
    when_idle: Annotated[
        Literal["wait", "clock"],
        Key(
            allowed_for=("input",),
            restriction="clock needs idleTimeout. Not with engine: spark.",
        ),
    ] = "wait"
    """What event time does while all partitions are idle, of all inputs. `wait`: it stays where it
    is. `clock`: it goes on as the clock does, so that the last windows of a quiet stream fire."""
    doc: Annotated[str, Key(origin="onyx/doc")] = ""
    """Free text."""

    @property
    def bad_records_are_letters(self) -> bool:
        """Whether records that an input cannot decode are dead letters."""
        return self.options.get("onBadRecord") == "deadLetter"

    @property
    def is_grouped(self) -> bool:
        """Whether one peer gets all segments of a group."""
        by_key = self.group_by_key is not None or self.group_by_fn is not None
        return by_key or self.type == "join"

    @property
    def is_stateful(self) -> bool:
        """Whether the task itself keeps state; it may have windows besides."""
        keeps = self.state is not None or self.processor is not None
        return keeps or self.type == "join"

    @property
    def sides(self) -> tuple[JoinSide, ...]:
        """The two sides of a join; none of other tasks."""
        return tuple(side for side in (self.left, self.right) if side is not None)
