"""Does the output of the job in columns agree with pandas, all of it and exactly?

    python examples/flights/check_decade.py [OUT]

The job is exactly-once, and so are its files. The exit code is 0 if all agrees, 1 if anything
differs.
"""

import sys
from pathlib import Path

import pandas as pd
from check import Outcome, check_groups, expected_flights, listed, read_json_lines, show
from prepare import DECADE, OUT

LATE_MINUTES = 15


def check_route(name, folder, expected):
    """Rows by year, month, day, carrier and number of the flight, which may repeat, and its delay:
    as many of each as there are."""
    keys = ["year", "month", "day", "carrier", "flight", "delay"]
    paths = sorted((folder / name).glob("**/*.parquet"))
    rows = pd.concat([pd.read_parquet(path, columns=keys) for path in paths])
    years = pd.concat([expected.assign(year=each)[keys] for each in DECADE])
    found, wanted = (each.value_counts(dropna=False) for each in (rows, years.astype(rows.dtypes)))
    faults = listed(
        "missing or too few", wanted.sub(found, fill_value=0).loc[lambda n: n > 0].index
    )
    faults += listed("not expected", found.sub(wanted, fill_value=0).loc[lambda n: n > 0].index)
    return Outcome(name, len(paths), len(rows), len(rows), len(years), faults)


def check_averages(folder, flown):
    """Of each airline and month. Sums of whole minutes are exact, so are their quotients."""
    groups = flown[flown["delay"].notna()].groupby(["carrier", "month"])
    year = groups.agg(flights=("row", "size"), delay=("delay", "mean")).reset_index()
    expected = pd.concat([year.assign(year=each) for each in DECADE])
    segments, files = read_json_lines(folder)
    keys = ["carrier", "year", "month"]
    return check_groups("averages", files, pd.DataFrame(segments), expected.set_index(keys))


def main(arguments):
    out = (Path(arguments[0]) if arguments else OUT) / "decade"
    flights = expected_flights()
    outcomes = [
        check_route("late", out, flights[flights["delay"] >= LATE_MINUTES]),
        check_route("cancelled", out, flights[flights["delay"].isna()]),
        check_averages(out / "averages", flights),
    ]
    show(outcomes, out)
    return 1 if any(each.faults for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
