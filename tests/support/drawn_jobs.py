"""Jobs made by hypothesis: valid ones, with values of all kinds in their keys."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from onyx.model import names
from onyx.model.job import EMPTY, CatalogEntry, FlowCondition, Job, Lifecycle, Trigger, Window

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
OPTIONS = st.dictionaries(TEXT, st.recursive(SCALARS, st.lists, max_leaves=4), max_size=3)
FUNCTIONS = st.sampled_from(["app:f", "app.tasks:work", "a_b.c1:d_2"])
MAYBE_FUNCTION = st.none() | FUNCTIONS
PREDICATES = st.recursive(
    FUNCTIONS | st.tuples(FUNCTIONS, st.just("limit")),
    lambda inner: (
        st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner)
    ),
    max_leaves=5,
)


WATERMARKS = st.fixed_dictionaries(
    {"watermark_key": TEXT.filter(bool)},
    optional={
        "allowed_disorder": st.tuples(st.integers(0, 9), st.just("seconds")),
        "idle_timeout": st.integers(1, 9),
    },
) | st.fixed_dictionaries(
    {
        "watermark_key": TEXT.filter(bool),
        "idle_timeout": st.integers(1, 9),
        "when_idle": st.sampled_from(("wait", "clock")),
    }
)


@st.composite
def catalogs(draw: st.DrawFn, tracked: bool, windowed: bool) -> tuple[CatalogEntry, ...]:
    count = draw(st.integers(0, 3))
    names_ = ["in", *(f"work-{number}" for number in range(count)), "out"]
    entries = []
    for name in names_:
        kind = "input" if name == "in" else "output" if name == "out" else "function"
        has_windows = windowed and len(entries) == 1
        low = None if has_windows else draw(st.none() | st.integers(1, 5))
        entry = CatalogEntry(
            name,
            kind,
            draw(st.none() | st.integers(1, 100_000)),
            plugin=None if kind == "function" else "my.plugins:make",
            fn=draw(FUNCTIONS) if kind == "function" else draw(MAYBE_FUNCTION),
            options=draw(OPTIONS) or EMPTY,
            batch_timeout=draw(st.integers(0, 1_000)),
            batch_fn=draw(st.booleans()),
            cooperative=draw(st.none() | st.booleans()),
            min_peers=low,
            max_peers=draw(st.none() | st.integers(low or 1, 9)),
            required_tags=tuple(draw(st.lists(st.sampled_from(["gpu", "ssd"]), max_size=2))),
            max_pending=draw(st.integers(1, 99)) if kind == "input" and tracked else None,
            deduplicate=not has_windows,
            doc=draw(TEXT),
            **(draw(WATERMARKS) if kind == "input" else {}),
        )
        entries.append(entry)
    return tuple(entries)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    guarantee = draw(st.sampled_from(["at-most-once", "at-least-once", "exactly-once"]))
    windowed = draw(st.booleans())
    catalog = draw(catalogs(guarantee != "at-most-once", windowed))
    tasks = [entry.name for entry in catalog]
    edges = tuple(pairwise(tasks))
    conditions = tuple(
        FlowCondition(parent, (child,), draw(PREDICATES), options={"limit": 1})
        for parent, child in edges
        if draw(st.booleans())
    )
    windows = ()
    if windowed:
        late = dict(zip(("late_to",), tasks[2:3], strict=False))
        windows = (
            Window("w", tasks[1], "global", "app:sums", init=draw(SCALARS)),
            Window("v", tasks[1], "fixed", "count", window_key="at", range=(1, "hours"),
                   allowed_lateness=(draw(st.integers(0, 9)), "minutes"), **late),
        )  # fmt: skip
    triggers = tuple(
        Trigger("w", "timer", period=(draw(st.integers(1, 99)), "seconds"), refinement="app:r",
                sync="app:s", id=f"t{number}")
        for number in range(draw(st.integers(0, 2)) if windows else 0)
    )  # fmt: skip
    return Job(
        draw(st.from_regex(names.JOB_NAME, fullmatch=True)),
        edges,
        catalog,
        guarantee=guarantee,
        flow_conditions=conditions,
        lifecycles=tuple(Lifecycle(task, "app:calls") for task in draw(st.sets(st.just("all")))),
        windows=windows,
        triggers=triggers,
        percentage=draw(st.none() | st.integers(0, 100)),
        metadata=draw(OPTIONS) or EMPTY,
    )
