"""The catalog of a job: what each of its tasks is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from onyx.model import names, plugins
from onyx.model.job.types import TIMEOUT_MS_MAX, TRACKED_ONLY, Milliseconds, Peers, TaskName
from onyx.model.keys.compound import Amount, ListOf, OneOrMore
from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import Count, Function, Text

BATCH_SEGMENTS_MAX = 100_000
GROUPED = ("function", "output", "reduce")
"""Types of tasks whose segments may be grouped."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One task: where segments come from, what is done with them, or where they go."""

    name: Annotated[
        TaskName,
        Key(origin="onyx/name", restriction="Unique in the catalog; not all, none or coordinator."),
    ]
    """Name of the task; the workflow uses the same name."""
    type: Annotated[
        Literal["input", "function", "output", "reduce"],
        Key(
            origin="onyx/type",
            restriction="A reduce task with children needs a window with a trigger that emits.",
        ),
    ]
    """Role of the task: source, transformation, sink, or windowed reduction, whose own segments
    go nowhere: only what its triggers emit is sent on."""
    batch_size: Annotated[
        int, Count(1, BATCH_SEGMENTS_MAX, "segments"), Key(origin="onyx/batch-size")
    ]
    """Segments taken at most in one batch."""
    plugin: Annotated[
        str | None,
        Function(plugins.NAMES),
        Key(
            required_for=("input", "output"),
            allowed_for=("input", "output"),
            origin="onyx/plugin",
            restriction="A short name must be one of a plugin that can read, on an input, or "
            "write, on an output.",
        ),
    ] = None
    """What does the reading or writing: a plugin of Onyx by its short name, or one of your
    own."""
    fn: Annotated[str | None, Function(), Key(required_for=("function",), origin="onyx/fn")] = None
    """Function from a segment (or a batch) to a segment or a list of them. On an input it is
    applied to what was read, on an output to what will be written."""
    params: Annotated[
        tuple[str, ...], Key(origin="onyx/params", restriction="Every key must be in options.")
    ] = ()
    """Keys of options whose values are passed to fn, in this order, before the segment."""
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Whatever the plugin or the function needs, by keys of your own."""
    medium: Annotated[
        str | None, Key(origin="onyx/medium", restriction="Optional here: the plugin says it.")
    ] = None
    """Kind of external medium; informative only."""
    batch_timeout: Annotated[
        int,
        Count(0, TIMEOUT_MS_MAX, "milliseconds"),
        Key(
            origin="onyx/batch-timeout",
            restriction="All together below pendingTimeout of every input.",
        ),
    ] = 0
    """How long a task waits for a batch to fill, from the first segment that is there. 0: it
    goes on with what there is, which is fastest for few segments. Nothing waits at the end of
    an input, or when outputs are to make durable what they hold."""
    batch_fn: Annotated[bool, Key(origin="onyx/batch-fn?")] = False
    """fn takes a whole batch and returns exactly as many results, each a segment or a list of
    them."""
    cooperative: bool | None = None
    """true: the task never blocks and shares a thread with others; false: it gets a thread of
    its own. Without it, the plugin decides."""
    min_peers: Annotated[
        Peers | None,
        Key(origin="onyx/min-peers", restriction="Not above maxPeers; not with nPeers."),
    ] = None
    """Peers that must be there before the job starts."""
    max_peers: Annotated[
        Peers | None,
        Key(origin="onyx/max-peers", restriction="Not below minPeers; not with nPeers."),
    ] = None
    """Most peers that are ever put on the task."""
    n_peers: Annotated[
        Peers | None,
        Key(origin="onyx/n-peers", restriction="Not together with minPeers or maxPeers."),
    ] = None
    """Short for minPeers and maxPeers of the same value."""
    group_by_key: Annotated[
        str | tuple[str, ...] | None,
        OneOrMore(Text()),
        Key(
            allowed_for=GROUPED,
            origin="onyx/group-by-key",
            restriction="Needs fluxPolicy; not together with groupByFn.",
        ),
    ] = None
    """Key, or keys, of a segment whose value decides which peer gets it."""
    group_by_fn: Annotated[
        str | None,
        Function(),
        Key(
            allowed_for=GROUPED,
            origin="onyx/group-by-fn",
            restriction="Needs fluxPolicy; not together with groupByKey.",
        ),
    ] = None
    """Function of a segment whose result decides which peer gets it."""
    on_missing_key: Annotated[
        Literal["fail", "group"], Key(allowed_for=GROUPED, restriction="Needs groupByKey.")
    ] = "fail"
    """What becomes of a segment that lacks a key of groupByKey: it fails, or all that lack it
    are a group, as if the key were null."""
    flux_policy: Annotated[
        Literal["kill", "continue", "recover"] | None,
        Key(
            allowed_for=GROUPED,
            origin="onyx/flux-policy",
            restriction="Only with groupByKey or groupByFn. kill and recover need minPeers or "
            "nPeers.",
        ),
    ] = None
    """What happens when a peer of a grouped task goes. `kill`: the job is killed. `continue`:
    its key groups move to the peers left, and peers may come at any time. `recover`: its key
    groups move as well; peers come only up to minPeers or nPeers, or in the place of those that
    went."""
    dead_letter: Annotated[
        TaskName | None,
        Key(
            allowed_for=("input", "function", "reduce"),
            restriction="A task of the catalog that is no input and none before this one.",
        ),
    ] = None
    """Task that gets a dead letter about each segment that fails here, so that the job goes on
    without it. Naming it makes the edge of the workflow, and the task gets nothing else from
    here unless a flow condition names it."""
    required_tags: Annotated[
        tuple[str, ...], ListOf(Text(characters_max=63)), Key(origin="onyx/required-tags")
    ] = ()
    """Tags that a worker must all have for its peers to run this task."""
    percentage: Annotated[
        int | None,
        Count(1, 99, "percent"),
        Key(
            origin="onyx/percentage",
            era="0.10+",
            restriction="Only with taskScheduler: percentage. Together not above 100; exactly "
            "100 when every task has one.",
        ),
    ] = None
    """Share of the job's peers, under the percentage task scheduler."""
    max_pending: Annotated[
        int,
        Count(1, 10_000_000, "segments"),
        Key(allowed_for=("input",), origin="onyx/max-pending", restriction=TRACKED_ONLY),
    ] = 10_000
    """Unfinished segments at which a peer of the input stops reading."""
    pending_timeout: Annotated[
        Milliseconds,
        Key(allowed_for=("input",), origin="onyx/pending-timeout", restriction=TRACKED_ONLY),
    ] = 60_000
    """Time after which a segment that was not completely processed is replayed."""
    input_retry_timeout: Annotated[
        Milliseconds,
        Key(allowed_for=("input",), origin="onyx/input-retry-timeout", restriction=TRACKED_ONLY),
    ] = 1_000
    """Period of the check for segments to replay."""
    uniqueness_key: Annotated[
        str | None,
        Key(
            origin="onyx/uniqueness-key",
            restriction="Only on a windowed task, which needs it, unless deduplicate is false or "
            "the job's guarantee is exactly-once.",
        ),
    ] = None
    """Key that identifies a segment, for sources that repeat themselves."""
    deduplicate: Annotated[
        bool,
        Key(
            origin="onyx/deduplicate?",
            restriction="Only on a windowed task; not false together with uniquenessKey.",
        ),
    ] = True
    """false: a windowed task does not look for repeated segments."""
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
    """Function of a segment that gives its event time in milliseconds."""
    watermark_key: Annotated[
        str | None, Key(allowed_for=("input",), restriction="Not together with assignWatermarkFn.")
    ] = None
    """Key of a segment that holds its event time in milliseconds."""
    allowed_disorder: Annotated[
        tuple[int, str],
        Amount(names.TIME_UNITS, number_min=0),
        Key(allowed_for=("input",), restriction="Needs watermarkKey or assignWatermarkFn."),
    ] = (0, "milliseconds")
    """How far event times of a partition may go back: the watermark stays this much behind the
    greatest one seen."""
    idle_timeout: Annotated[
        Milliseconds | None,
        Key(allowed_for=("input",), restriction="Needs watermarkKey or assignWatermarkFn."),
    ] = None
    """Time without segments after which a partition no longer holds the watermark back. Without
    it, a partition always does until it is exhausted."""
    doc: Annotated[str, Key(origin="onyx/doc")] = ""
    """Free text."""
