"""Windows, triggers and disordered segments for property tests, and a job around them.

Places are small integers and groups are few, so that extents meet, sessions merge, and timers,
watermarks and lateness fall between segments in every way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from onyx.model.job import CatalogEntry, Job, Trigger, Window

TASK = "gather"
GROUPS = ("a", None, ("a", 1))
PLACES = st.integers(0, 24)


@dataclass(frozen=True)
class Add:
    """A batch of segments, each with its group."""

    segments: tuple[dict[str, Any], ...]
    groups: tuple[Any, ...]
    now_ms: int


@dataclass(frozen=True)
class Tick:
    """The clock says this."""

    now_ms: int


@dataclass(frozen=True)
class Advance:
    """The watermark of the task has risen."""

    watermark: int


@dataclass(frozen=True)
class Complete:
    """The job has come to its end."""

    now_ms: int


Step = Add | Tick | Advance | Complete


@dataclass(frozen=True)
class Script:
    """What happens to a task with windows."""

    windows: tuple[Window, ...]
    triggers: tuple[Trigger, ...]
    grouped: bool
    assigned: bool
    """Whether the input assigns watermarks; otherwise none come."""
    steps: tuple[Step, ...]

    def job(self) -> Job:
        """A job with the windows on the task `TASK`."""
        keys: dict[str, Any] = {"group_by_key": "group", "flux_policy": "continue"}
        read = CatalogEntry("read", "input", 10, watermark_key="at" if self.assigned else None)
        gather = CatalogEntry(TASK, "reduce", 10, **(keys if self.grouped else {}))
        return Job(
            "job",
            (("read", TASK),),
            (read, gather),
            guarantee="exactly-once",
            windows=self.windows,
            triggers=self.triggers,
        )

    def one_by_one(self) -> Script:
        """The same with batches of one segment."""
        steps: list[Step] = []
        for step in self.steps:
            if isinstance(step, Add):
                each = zip(step.segments, step.groups, strict=True)
                steps += [Add((one,), (group,), step.now_ms) for one, group in each]
            else:
                steps.append(step)
        return Script(self.windows, self.triggers, self.grouped, self.assigned, tuple(steps))


def _elements(number: int) -> tuple[int, str]:
    return number, "elements"


AGGREGATIONS = st.sampled_from(
    ["count", "conj", ("sum", "v"), ("min", "v"), ("max", "v"), ("average", "v"),
     ("collect-by-key", "v"), ("collect-key-value", "v"), "app:texts"]
)  # fmt: skip
SHAPES = st.one_of(
    st.builds(
        lambda width, least: {"type": "fixed", "range": _elements(width), "min_value": least},
        st.integers(1, 12),
        st.sampled_from([0, -3, 10]),  # segments below it too
    ),
    st.builds(
        lambda width, slide, least: {
            "type": "sliding", "range": _elements(max(width, slide)), "slide": _elements(slide),
            "min_value": least,
        },
        st.integers(1, 12),
        st.integers(1, 6),
        st.sampled_from([0, -3]),
    ),
    st.just({"type": "global"}),
    st.builds(lambda gap: {"type": "session", "timeout_gap": _elements(gap)}, st.integers(1, 6)),
)  # fmt: skip
AT_END = st.sampled_from(["always", "changed", "changed", "never"])
PASSING = st.one_of(
    st.just({"type": "watermark"}),
    st.builds(
        lambda share: {"type": "percentile-watermark", "watermark_percentage": share},
        st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    ),
)
KINDS = st.one_of(
    PASSING,
    st.builds(lambda n: {"type": "segment", "threshold": _elements(n)}, st.integers(1, 4)),
    st.builds(lambda n: {"type": "timer", "period": (n, "milliseconds")}, st.integers(1, 20)),
    st.just({"type": "punctuation", "pred": "app:done"}),
    st.just({"type": "app:every_third"}),
)


@st.composite
def windows(draw: st.DrawFn, name: str) -> Window:
    shape = draw(SHAPES)
    aggregation = draw(AGGREGATIONS)
    if shape["type"] == "session" and aggregation == "app:texts":
        aggregation = "conj"  # what is joined shows the order of joining, which is nobody's
    more: dict[str, Any] = {}
    if aggregation[0] in ("min", "max"):
        more["init"] = draw(st.none() | st.integers(-5, 5))
    if shape["type"] == "fixed" and aggregation == "conj" and draw(st.booleans()):
        more["storage_strategy"] = ("ordered-log",)
    if shape["type"] == "session" and draw(st.booleans()):
        more["session_key"] = draw(st.sampled_from(["v", "group"]))
    if shape["type"] != "global" and draw(st.booleans()):
        more["allowed_lateness"] = _elements(draw(st.integers(0, 8)))
    return Window(name, TASK, aggregation=aggregation, window_key="at", **shape, **more)


@st.composite
def triggers(draw: st.DrawFn, window: Window, name: str, passing: bool) -> Trigger:
    kinds = PASSING if passing and window.type != "global" else KINDS
    kind = draw(kinds.filter(lambda each: _suits(each, window)))
    if kind["type"] == "watermark" and window.allowed_lateness is None and draw(st.booleans()):
        kind = {**kind, "delay": (draw(st.integers(1, 5)), "milliseconds")}
    choices = ["accumulating", "discarding", "evict"]
    choices += ["app:last_one"] * (window.aggregation == "app:texts")
    after = draw(st.sampled_from(choices))
    evictor = ("all",) if after == "evict" else ("none",)
    refinement = None if after == "evict" else after
    return Trigger(
        window.id,
        id=name,
        sync="app:sync",
        refinement=refinement,
        post_evictor=evictor,
        fire_all_extents=kind["type"] != "timer" and draw(st.booleans()),
        fire_at_end="always" if kind["type"].startswith("app:") else draw(AT_END),
        **kind,
    )


def _suits(kind: dict[str, Any], window: Window) -> bool:
    """A global window has no end that a watermark could pass, nor a share of its width."""
    return window.type != "global" or "watermark" not in kind["type"]


@st.composite
def scripts(draw: st.DrawFn, passing: bool = False) -> Script:
    """One or two windows with a few triggers each, and what happens to them until the end.

    `passing`: all triggers go by watermarks, which inputs assign.
    """
    held = [draw(windows(f"w{number}")) for number in range(draw(st.integers(1, 2)))]
    fire = [
        draw(triggers(window, f"{window.id}-t{number}", passing))
        for window in held
        for number in range(draw(st.integers(1, 2)))
    ]
    grouped = draw(st.booleans())
    assigned = passing or draw(st.booleans())
    steps = [*draw(_steps(assigned)), Complete(10_000)]
    return Script(tuple(held), tuple(fire), grouped, assigned, tuple(steps))


@st.composite
def _steps(draw: st.DrawFn, assigned: bool) -> list[Step]:
    now_ms, watermark = 0, -1
    steps: list[Step] = []
    kinds = ["add", "add", "tick", "advance" if assigned else "add"]
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=3, max_size=9)):
        now_ms += draw(st.integers(0, 15))
        if kind == "add":
            segments = draw(st.lists(_segments(), min_size=2, max_size=6))
            groups = tuple(each["group"] for each in segments)
            steps.append(Add(tuple(segments), groups, now_ms))
        elif kind == "tick":
            steps.append(Tick(now_ms))
        else:
            watermark += draw(st.integers(1, 9))
            steps.append(Advance(watermark))
    return steps


def _segments() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"at": PLACES, "v": st.integers(-3, 3), "group": st.sampled_from(GROUPS)},
        optional={"done": st.booleans()},
    )
