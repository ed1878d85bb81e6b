"""Does the output of the flights job agree with pandas? Prints what was written where.

    python examples/flights/check.py [OUT]

Everything is computed again from the raw data, in another way. Delivery is at least once, so the
same row may have been written twice after a failure: repeats are removed by row number, and two
that differ count as a fault. The exit code is 0 if all agrees, 1 if anything differs.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from prepare import BAD, OUT, archive, bad_records, raw
from rich.console import Console
from rich.table import Table

MIN_DELAY = 15
FAULTS_SHOWN = 5


@dataclass
class Outcome:
    """One line of the table."""

    name: str
    files: int
    written: int
    distinct: int
    expected: int
    faults: list[str] = field(default_factory=list)


def expected_flights():
    """Every flight with types and derived columns, by row number."""
    texts = ("carrier", "tailnum", "origin", "dest", "time_hour")
    flights = pd.read_csv(archive(), keep_default_na=False, na_values=["NA"], dtype="string")
    flights.insert(0, "row", range(1, len(flights) + 1))
    numbers = flights.columns.difference(texts)
    flights[numbers] = flights[numbers].astype("Int64")
    flights["delay"] = flights["arr_delay"].fillna(flights["dep_delay"])
    flights["speed"] = [
        pd.NA if pd.isna(minutes) else round(miles * 60 / minutes, 1)
        for miles, minutes in zip(flights["distance"], flights["air_time"], strict=True)
    ]
    flights["speed"] = flights["speed"].astype("Float64")
    return flights.set_index("row", drop=False)


def expected_routes(flights):
    flown = flights["dep_time"].notna()
    late = flights["delay"] >= MIN_DELAY
    return {
        "cancelled": flights[~flown],
        "late": flights[flown & late],
        "on-time": flights[flown & ~late],
    }


def read_json_lines(folder):
    """All segments below `folder`, and in how many files they were."""
    paths = sorted(folder.rglob("*.jsonl"))
    segments = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            segments.extend(json.loads(line) for line in file)
    return segments, len(paths)


def without_repeats(segments, row_of):
    """By row number; and the rows of which two copies differ."""
    distinct, differing = {}, []
    for segment in segments:
        row = row_of(segment)
        if distinct.setdefault(row, segment) != segment:
            differing.append(f"row {row} was written twice with different content")
    return distinct, differing


def check_route(name, folder, expected):
    segments, files = read_json_lines(folder)
    distinct, faults = without_repeats(segments, lambda segment: segment["row"])
    keys = set(expected.columns)
    faults += listed(
        "other keys", [row for row, segment in distinct.items() if keys != set(segment)]
    )
    actual = pd.DataFrame(list(distinct.values()), index=list(distinct), columns=expected.columns)
    faults += listed("missing", expected.index.difference(actual.index))
    faults += listed("not expected here", actual.index.difference(expected.index))
    common = expected.index.intersection(actual.index)
    faults += differences(expected.loc[common], actual.loc[common])
    return Outcome(name, files, len(segments), len(distinct), len(expected), faults)


def differences(expected, actual):
    """Faults of two frames with the same rows in the same order, column by column."""
    faults = []
    for column in expected.columns:
        wanted = expected[column].array
        found = actual[column].astype(expected[column].dtype).array
        equal = pd.array(wanted == found, dtype="boolean")  # of text NumPy's, without nulls
        same = equal.fillna(False) | (wanted.isna() & found.isna())
        faults += listed(f"other {column}", expected.index[~same.astype(bool)])
    return faults


def listed(what, rows):
    """At most one fault, that names some of the rows."""
    some = ", ".join(str(row) for row in rows[:FAULTS_SHOWN])
    return [f"{what}: {len(rows)} rows ({some}{' ...' if len(rows) > FAULTS_SHOWN else ''})"] * (
        len(rows) > 0
    )


def check_bad(folder, flights):
    segments, files = read_json_lines(folder)
    distinct, faults = without_repeats(segments, lambda segment: segment["record"]["row"])
    expected = {record["row"]: record for record in bad_records(next(raw()), len(flights))}
    faults += listed("missing", sorted(expected.keys() - distinct.keys()))
    faults += listed("not expected here", sorted(distinct.keys() - expected.keys()))
    for row in sorted(expected.keys() & distinct.keys()):
        if distinct[row]["record"] != expected[row] or not distinct[row]["error"]:
            faults.append(f"row {row} is not what was in the file, or has no reason")
    return Outcome("bad", files, len(segments), len(distinct), len(BAD), faults)


def expected_delays(flights):
    flown = flights[flights["dep_time"].notna()]
    grouped = flown.groupby(["carrier", "origin", "month"])
    delays = grouped.agg(
        flights=("row", "size"),
        measured=("delay", "count"),
        delay_sum=("delay", "sum"),
        delay_min=("delay", "min"),
        delay_max=("delay", "max"),
        speed_max=("speed", "max"),
    )
    delays["delay_mean"] = delays["delay_sum"] / delays["measured"]
    return delays


def check_delays(folder, flights):
    """The result of the Spark stage. Sums of whole minutes are exact, so are their quotients."""
    expected = expected_delays(flights)
    paths = sorted(folder.glob("*.parquet"))
    if not paths:
        return Outcome("delays", 0, 0, 0, len(expected), [f"no result in {folder}"])
    result = pd.concat([pd.read_parquet(path) for path in paths])
    return check_groups("delays", len(paths), result, expected)


def check_groups(name, files, result, expected):
    """`expected` has one row a group, by the keys that tell one from another."""
    actual = result.set_index(list(expected.index.names))
    faults = listed("missing groups", expected.index.difference(actual.index))
    faults += listed("groups not expected", actual.index.difference(expected.index))
    if not faults:
        faults += differences(expected.astype("Float64"), actual.loc[expected.index])
    distinct = int((~actual.index.duplicated()).sum())
    if distinct != len(result):
        faults.append("a group appears twice")
    return Outcome(name, files, len(result), distinct, len(expected), faults)


def show(outcomes, out, what="counts"):
    table = Table(title=f"What was written to {out}", title_justify="left")
    table.add_column("route")
    for heading in ("files", "written", "repeats", "distinct", "pandas"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for each in outcomes:
        numbers = (each.files, each.written, each.written - each.distinct, each.distinct)
        table.add_row(
            each.name,
            *(f"{number:,}" for number in (*numbers, each.expected)),
            "[red]differs" if each.faults else "[green]agrees",
        )
    console = Console()
    console.print(table)
    for each in outcomes:
        for fault in each.faults[:FAULTS_SHOWN]:
            console.print(f"[red]{each.name}:[/red] {fault}", highlight=False)
    if not any(each.faults for each in outcomes):
        console.print(f"[green]{what} agree with pandas")


def main(arguments):
    out = Path(arguments[0]) if arguments else OUT
    flights = expected_flights()
    outcomes = [
        check_route(name, out / name, rows) for name, rows in expected_routes(flights).items()
    ]
    outcomes.append(check_bad(out / "bad", flights))
    outcomes.append(check_delays(out / "delays" / "result", flights))
    show(outcomes, out)
    return 1 if any(each.faults for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
