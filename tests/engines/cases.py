"""Random jobs, each with a query of DuckDB that gives the same rows.

A case is a job over Parquet files, which tasks read as dicts, as columns, or one input in each
way, and the text of SQL that says what comes out. What the two engines are to disagree about is in
`DIFFERENCES`, and no case has it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa
from tests.engines.rows import KEYS, NUMBERS, Kind, column

FORMS = ("dicts", "columns", "mixed")


@dataclasses.dataclass(frozen=True)
class Case:
    """A job and the query that tells what it writes."""

    name: str
    spec: Mapping[str, Any]
    """Options `path: NAME` are files of tables; the output is `write`."""
    tables: Mapping[str, pa.Table]
    query: str
    columns: tuple[str, ...]
    """What is compared of each row."""
    peers: Mapping[str, int]
    spilled: bool = False
    read: str = "parquet"
    """Format of the files that the job reads."""
    written: str = ""
    """Format of the files that it writes; nothing: the bench keeps what it writes."""


def windows(random: Random, form: str) -> Case:
    """Windows of numbers or moments by a key, with an aggregation."""
    count = random.randint(1, 120)
    key, (value, number) = random.choice(list(KEYS.values())), random.choice(list(NUMBERS.items()))
    places = pa.array([random.randint(100, 400) for _ in range(count)], pa.int64())
    table = pa.table(
        {
            "k": column(random, key, count, nulls=random.random() < 0.5),
            "v": column(random, number, count, nulls=False),
            "ts": places,
            "n": pa.array(range(count), pa.int64()),
        }
    )
    length, slide = random.choice([(10, 10), (7, 7), (20, 5), (9, 3), (1, 1)])
    kind = random.choice(["fixed", "session"] if length == slide else ["sliding"])
    shape: dict[str, Any] = {
        "fixed": {"range": [length, "elements"]},
        "sliding": {"range": [length, "elements"], "slide": [slide, "elements"]},
        "session": {"timeoutGap": [length, "elements"]},
    }[kind]
    name, state = random.choice(list(_aggregations(value).items()))
    aggregation: Any = name if name == "count" else [name, "v"]
    init = {"max": -10_000}.get(name)
    window = {
        "id": "window",
        "task": "work",
        "type": kind,
        "aggregation": aggregation,
        "windowKey": "ts",
        **({} if init is None else {"init": init}),
        **shape,
    }
    spec = _spec(
        random,
        form,
        {"type": "reduce", "groupByKey": "k", "minPeers": 1, "fluxPolicy": "continue"},
        windows=[window],
        triggers=[_AT_THE_END],
    )
    extents = {
        "fixed": f"select *, ts // {length} * {length} as lo, lo + {length - 1} as up from t",
        "sliding": f"""select *, e * {slide} - {length} as lo, e * {slide} - 1 as up from (
            select *, unnest(range(ts // {slide} + 1, (ts + {length}) // {slide} + 1)) as e
            from t)""",
        "session": f"""select *, min(ts) over stay as lo, max(ts) over stay as up from (
            select *, sum(begins) over (before rows unbounded preceding) as number from (
                select *, coalesce(ts - lag(ts) over before > {length}, true)::int as begins from t
                window before as (partition by k order by ts))
            window before as (partition by k order by ts))
            window stay as (partition by k, number)""",
    }[kind]
    query = (
        f'select k as "group", lo as lower, up as upper, {state} as state '
        f"from ({extents}) group by k, lo, up"
    )
    return Case(
        f"{kind} {name} of {value} by {key.type}",
        spec,
        {"t": table},
        query,
        ("group", "lower", "upper", "state"),
        {"work": random.choice([1, 2, 3])},
        spilled=random.random() < 0.3,
    )


_AT_THE_END = {
    "windowId": "window",
    "id": "end",
    "type": "segment",
    "threshold": [100_000, "elements"],
    "refinement": "accumulating",
    "emit": "rows",
}


def _aggregations(number: str) -> dict[str, str]:
    """By name, as SQL."""
    exact = "v::decimal(18, 2)" if number == "float" else "v"
    return {
        "count": "count(*)",
        "sum": f"sum({exact})",
        "min": "min(v)",
        "max": "max(v)",
    }


def tables(random: Random, form: str) -> Case:
    """Segments that look up a table, by keys of two types that may be equal."""
    count, many = random.randint(1, 60), random.randint(1, 20)
    left, right = random.choice(_COMPARABLE)
    segments = pa.table(
        {"k": column(random, left, count, nulls=True), "n": pa.array(range(count), pa.int64())}
    )
    rows = pa.table(
        {
            "id": column(random, right, many, nulls=False),
            "price": column(random, random.choice(list(NUMBERS.values())), many, nulls=True),
            "row": pa.array(range(many), pa.int64()),
        }
    )
    how = random.choice(["left", "inner"])
    join = {"table": "lookup", "key": "k", "how": how}
    spec = _looked_up(_spec(random, form, {"type": "function", "join": join}))
    query = f"""select n, k, price, "row" from t {how} join (
        select * from lookup qualify row_number() over (partition by id order by "row" desc) = 1)
        on k = id"""
    return Case(
        f"{how} join of {left.type} with {right.type}",
        spec,
        {"t": segments, "lookup": rows},
        query,
        ("n", "k", "price", "row"),
        {"work": random.choice([1, 2])},
    )


def _looked_up(spec: dict[str, Any], **more: str) -> dict[str, Any]:
    """The job, with the table that its task looks up."""
    table = {"name": "lookup", "type": "table", "plugin": "files", "key": "id"}
    entry = {**table, "options": {"path": "lookup"}, **more}
    return {**spec, "catalog": [*spec["catalog"], entry]}


_COMPARABLE = [
    *((kind, kind) for kind in KEYS.values()),
    (KEYS["small"], KEYS["large"]),
    (KEYS["large"], KEYS["small"]),
    (KEYS["small"], KEYS["float"]),
    (KEYS["decimal"], KEYS["small"]),
    (KEYS["small"], KEYS["decimal"]),
]


def versions(random: Random, form: str) -> Case:
    """Segments that get the version of a row that was valid then."""
    count, many = random.randint(1, 60), random.randint(1, 30)
    key, time = random.choice(list(KEYS.values())), random.choice(_TIMES)
    segments = pa.table(
        {
            "k": column(random, key, count, nulls=True),
            "ts": column(random, time, count, nulls=False),
            "n": pa.array(range(count), pa.int64()),
        }
    )
    rows = pa.table(
        {
            "id": column(random, key, many, nulls=False),
            "since": column(random, time, many, nulls=False),
            "row": pa.array(range(many), pa.int64()),
        }
    )
    how = random.choice(["left", "inner"])
    join = {"table": "lookup", "key": "k", "how": how, "at": "ts", "columns": ["row"]}
    spec = _looked_up(_spec(random, form, {"type": "function", "join": join}), versionKey="since")
    query = f"""select n, "row" from t asof {how} join (
        select * from lookup
        qualify row_number() over (partition by id, since order by "row" desc) = 1) as v
        on k = v.id and ts >= v.since"""
    return Case(
        f"{how} join with versions by {key.type} at {time.type}",
        spec,
        {"t": segments, "lookup": rows},
        query,
        ("n", "row"),
        {"work": random.choice([1, 2])},
    )


_TIMES = [
    Kind(pa.int64(), lambda r: r.randint(0, 50)),
    Kind(pa.float64(), lambda r: r.randint(0, 200) / 4),
    KEYS["day"],
    KEYS["moment"],
]


def streams(random: Random, form: str) -> Case:
    """Two streams that meet by key and time."""
    key = random.choice(list(KEYS.values()))

    def side(first: int, count: int) -> pa.Table:
        return pa.table(
            {
                "k": column(random, key, count, nulls=True),
                "ts": pa.array([random.randint(0, 60) for _ in range(count)], pa.int64()),
                "n": pa.array(range(first, first + count), pa.int64()),
            }
        )

    left, right = side(0, random.randint(1, 40)), side(1000, random.randint(1, 40))
    how = random.choice(["inner", "left", "right", "outer"])
    before, after = random.randint(0, 9), random.randint(0, 9)
    sides = {
        name: {"task": task, "key": "k", "at": "ts", "prefix": f"{name[0]}_"}
        for name, task in (("left", "read"), ("right", "read-too"))
    }
    within = {"before": [before, "milliseconds"], "after": [after, "milliseconds"]}
    work = {"type": "join", **sides, "how": how, "within": within}
    spec = _spec(random, form, work)
    spec["workflow"].append(["read-too", "work"])
    second = dict(spec["catalog"][0]) | {"name": "read-too", "options": {"path": "u"}}
    spec["catalog"].append(second)
    sql = {"outer": "full"}.get(how, how)
    query = f"""select l.n as l_n, r.n as r_n from t as l {sql} join u as r
        on l.k = r.k and r.ts between l.ts - {before} and l.ts + {after}"""
    return Case(
        f"{how} join of streams by {key.type}",
        spec,
        {"t": left, "u": right},
        query,
        ("l_n", "r_n"),
        {"work": random.choice([1, 2])},
        spilled=random.random() < 0.3,
    )


def conditions(random: Random, form: str) -> Case:
    """Segments that pass a predicate."""
    count = random.randint(1, 60)
    names = random.sample(["text", "small", "large", "float", "flag", "day"], 2)
    data = {name: column(random, KEYS[name], count, nulls=True) for name in names}
    table = pa.table({**data, "n": pa.array(range(count), pa.int64())})
    predicate, sql = _predicate(random, names, depth=2)
    spec = _spec(random, form, {"type": "function", "fn": "m:same"})
    spec["flowConditions"] = [{"from": "work", "to": ["write"], "predicate": predicate}]
    return Case(
        f"where {sql}", spec, {"t": table}, f"select n from t where {sql}", ("n",), {"work": 1}
    )


_ORDER = ("<", "<=", ">", ">=")


def _predicate(random: Random, names: list[str], depth: int) -> tuple[Any, str]:
    """As a job has it, and as SQL, in which null is made false where the job says so."""
    if depth and random.random() < 0.6:
        parts = [_predicate(random, names, depth - 1) for _ in range(2)]
        if random.random() < 0.3:
            return ["not", parts[0][0]], f"not ({parts[0][1]})"
        word = random.choice(["and", "or"])
        return [word, *(part for part, _ in parts)], f"(({parts[0][1]}) {word} ({parts[1][1]}))"
    name = random.choice(names)
    kind = KEYS[name]
    values = [kind.draw(random) for _ in range(3)]
    plain = [str(value) if name == "day" else value for value in values]
    literals = [_literal(value) for value in values]
    choice = random.choice(["null", "in", "==", "!=", *([] if name == "flag" else _ORDER)])
    if choice == "null":
        return ["is-null", name], f"{name} is null"
    if choice == "in":
        return ["in", name, plain], f"coalesce({name} in ({', '.join(literals)}), false)"
    if choice == "!=":
        return ["!=", name, plain[0]], f"{name} is distinct from {literals[0]}"
    operator = "=" if choice == "==" else choice
    return [choice, name, plain[0]], f"coalesce({name} {operator} {literals[0]}, false)"


def _literal(value: Any) -> str:
    if isinstance(value, bool | int):
        return str(value)
    if isinstance(value, float):
        return f"{value!r}::double"
    return f"'{value}'"


def sql(random: Random, form: str) -> Case:
    """A query that is asked of each batch gives what it gives of all rows."""
    count = random.randint(1, 60)
    kinds = {name: KEYS[name] for name in random.sample(list(KEYS), 3)}
    numbers = {name: NUMBERS[name] for name in random.sample(["int", "float", "decimal"], 2)}
    one, two = (f"num_{name}" for name in numbers)
    data = {name: column(random, kind, count, nulls=True) for name, kind in kinds.items()}
    data |= {
        f"num_{name}": column(random, kind, count, nulls=True) for name, kind in numbers.items()
    }
    table = pa.table({**data, "n": pa.array(range(count), pa.int64())})
    text = random.choice(
        [
            f"select n, {one} + {two} as x, coalesce({one}, 0) as y from segments",
            f"select n, {one} from segments where {one} > {two} or {next(iter(kinds))} is null",
            f"select n, case when {one} < 0 then 'minus' else 'plus' end as x from segments",
            f"select n, {one}::varchar as x, {one} between -100 and 100 as y from segments",
            f"select *, {one} * 2 as x from segments where n % 3 > 0",
        ]
    )
    spec = _spec(random, form, {"type": "function", "sql": text})
    names = tuple(name for name in ("n", "x", "y", *kinds) if name in text or "*," in text)
    query = text.replace("from segments", "from t")
    chosen = tuple(name for name in names if name != "y" or " as y" in text)
    return Case(text, spec, {"t": table}, query, chosen, {"work": 1})


def files(random: Random, form: str) -> Case:
    """Rows that are read from files and written to files are the same rows."""
    count = random.randint(0, 60)
    read = random.choice(["parquet", "jsonl", "csv"])
    typed = read == "parquet" or form == "columns"  # dicts keep the text of other formats
    names = random.sample([each for each in _SCHEMA if typed or each not in _TEXT_IN_DICTS], 4)
    data = {
        name: column(random, kind, count, nulls=read != "csv" or name != "text")
        for name, kind in ((name, {**KEYS, **NUMBERS}[name]) for name in names)
    }
    table = pa.table({**data, "n": pa.array(range(count), pa.int64())})
    schema = {name: _SCHEMA[name] for name in names} | {"n": "int64"}
    spec = _spec(random, form, {"type": "function", "fn": "m:same"})
    for entry in spec["catalog"]:
        if entry["type"] == "input" and entry.get("batchFormat") == "arrow":
            entry["schema"] = schema
        elif entry["type"] == "input" and read == "csv":
            entry["options"]["types"] = {
                name: _CSV_TYPES[name] for name in schema if name in _CSV_TYPES
            }
    written = random.choice(["parquet", "jsonl"])
    return Case(
        f"{', '.join(names)} from {read} to {written}",
        spec,
        {"t": table},
        "select * from t",
        (*names, "n"),
        {"work": 1},
        read=read,
        written=written,
    )


_SCHEMA = {
    "text": "string",
    "small": "int8",
    "large": "int64",
    "float": "float64",
    "flag": "bool",
    "decimal": "decimal(9, 2)",
    "day": "date",
    "moment": "timestamp",
}
_TEXT_IN_DICTS = {"decimal", "day", "moment"}
_CSV_TYPES = {"n": "int", "small": "int", "large": "int", "float": "float", "flag": "bool"}

WORLDS: Mapping[str, Callable[[Random, str], Case]] = {
    "windows": windows,
    "tables": tables,
    "versions": versions,
    "streams": streams,
    "conditions": conditions,
    "sql": sql,
    "files": files,
}


def case(world: str, seed: int) -> Case:
    """The case of a seed; each third has the same form."""
    made = WORLDS[world](Random(f"{world} {seed}"), FORMS[seed % len(FORMS)])
    return dataclasses.replace(made, name=f"{FORMS[seed % len(FORMS)]}: {made.name}")


def _spec(random: Random, form: str, work: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """read -> work -> write; where formats are mixed, half of the segments come as dicts."""
    size = random.choice([1, 3, 17, 500])
    arrow, dicts = {"batchFormat": "arrow"}, dict[str, str]()
    readers = {"dicts": [dicts], "columns": [arrow], "mixed": [arrow, dicts]}[form]
    if work["type"] == "join":
        readers = readers[:1]
    own = dicts if form == "dicts" or "sql" in work or "fn" in work else arrow
    names = ["read", "read-again"][: len(readers)]
    return {
        "guarantee": "exactly-once",
        "workflow": [*([name, "work"] for name in names), ["work", "write"]],
        "catalog": [
            *(
                {
                    "name": name,
                    "type": "input",
                    "plugin": "files",
                    "batchSize": size,
                    "options": {"path": f"t{number}" if len(names) > 1 else "t"},
                    **reader,
                }
                for number, (name, reader) in enumerate(zip(names, readers, strict=True))
            ),
            {"name": "work", "batchSize": size, **work, **own},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": size},
        ],
        **more,
    }


@dataclasses.dataclass(frozen=True)
class Difference:
    """A case about which the engines disagree by decision: the guide says what jobs do."""

    case: Case
    said: str
    """A part of what the comparison says, or of the error that ends the job."""


def _differing(
    said: str,
    columns: Mapping[str, Sequence[Any]],
    work: Mapping[str, Any],
    query: str,
    **more: Any,
) -> Difference:
    table = pa.table({**columns, "n": range(len(next(iter(columns.values()))))})
    tables = {"t": table, **more.pop("tables", {})}
    spec = _spec(Random(0), "dicts", work, **more)
    spec = _looked_up(spec) if "lookup" in tables else spec
    return Difference(Case(query, spec, tables, query, ("state", "v", "row"), {"work": 1}), said)


def _window(*aggregation: str, **more: Any) -> dict[str, Any]:
    shape = {"id": "window", "task": "work", "type": "global", "aggregation": list(aggregation)}
    return {"windows": [{**shape, **more}], "triggers": [_AT_THE_END]}


_JOIN = {"type": "function", "join": {"table": "lookup", "key": "v", "how": "inner"}}
_MEET = 'select v, "row" from t join lookup on v = id'
DIFFERENCES: Mapping[str, Difference] = {
    "a value that is added up is null: the segment fails; SQL leaves it out": _differing(
        "NoneType",
        {"v": [1, None]},
        {"type": "reduce"},
        "select sum(v) as state from t",
        **_window("sum", "v"),
    ),
    "init counts as a value": _differing(
        "only the job has [\"(Decimal('5'), None, None)\"]",
        {"v": [7]},
        {"type": "reduce"},
        "select min(v) as state from t",
        **_window("min", "v", init=5),
    ),
    "not of a comparison with null holds; in SQL it is null": _differing(
        "only the job has ['(None, None, None)']",
        {"v": [None, 9]},
        {"type": "function", "fn": "m:same"},
        "select v from t where not v < 5",
        flowConditions=[{"from": "work", "to": ["write"], "predicate": ["not", ["<", "v", 5]]}],
    ),
    "text is no key of a number: the segment fails; SQL casts it": _differing(
        "text",
        {"v": ["7"]},
        _JOIN,
        _MEET,
        tables={"lookup": pa.table({"id": [7], "row": [1]})},
    ),
    "NaN is no key: a table with it ends the job; in DuckDB it equals itself": _differing(
        "has NaN, which equals nothing",
        {"v": [float("nan")]},
        _JOIN,
        _MEET,
        tables={"lookup": pa.table({"id": [float("nan")], "row": [1]})},
    ),
}
