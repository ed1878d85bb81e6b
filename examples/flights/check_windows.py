"""Does the output of the windows job agree with pandas, all of it and exactly?

    python examples/flights/check_windows.py [OUT]

Everything is computed again from the raw data, in another way. The job is exactly-once, and so are
its files: column `repeats` of the table is 0, through failures too, unless several runs wrote to
one folder. Repeats are removed, and two that differ count as a fault. The exit code is 0 if all
agrees, 1 if anything differs.
"""

import sys
from pathlib import Path

import pandas as pd
from check import Outcome, differences, expected_flights, listed, read_json_lines, show
from check import without_repeats as distinct_by
from prepare import OUT

LATE_MINUTES = 15
WEEK_DAYS = 7
STAY_GAP = pd.Timedelta(days=2)
NAMES = {"origin": "airport", "carrier": "airline", "tailnum": "aircraft"}


def departed_flights():
    """Every flight that left, with its departure as a time in UTC."""
    flights = expected_flights()
    flown = flights[flights["dep_time"].notna()]
    minutes = (flown["minute"] + flown["dep_delay"]).astype("int64")
    left = pd.to_datetime(flown["time_hour"]) + pd.to_timedelta(minutes, unit="min")
    late = (flown["delay"] >= LATE_MINUTES).astype("int64")
    named = flown[["row", "origin", "carrier", "tailnum"]].rename(columns=NAMES)
    return named.assign(left=left, late=late)


def expected_departures(flown):
    """How many left each airport in each hour."""
    hours = flown.assign(hour=flown["left"].dt.floor("h")).groupby(["airport", "hour"])
    return as_text(hours.agg(departures=("row", "size")), ["hour"], ["airport", "hour"])


def expected_late_share(flown):
    """Of each airline, in seven days that begin with each day: every flight is in seven of them."""
    day = flown["left"].dt.floor("D")
    weeks = [flown.assign(day=day - pd.Timedelta(days=back)) for back in range(WEEK_DAYS)]
    airlines = pd.concat(weeks).groupby(["airline", "day"])
    shares = airlines.agg(flights=("row", "size"), late=("late", "sum"))
    shares["share"] = shares["late"] / shares["flights"]
    return as_text(shares, ["day"], ["airline", "day"])


def expected_stays(flown):
    """A stay of an aircraft ends where two departures are more than two days apart."""
    ordered = flown.sort_values(["aircraft", "left"])
    gaps = ordered.groupby("aircraft")["left"].diff()
    stay = (gaps.isna() | (gaps > STAY_GAP)).cumsum()
    stays = ordered.groupby(stay).agg(
        aircraft=("aircraft", "first"),
        first=("left", "first"),
        last=("left", "last"),
        departures=("row", "size"),
    )
    return as_text(stays, ["first", "last"], ["aircraft", "first"])


def as_text(frame, times, keys):
    """With times as the job writes them, by its keys."""
    plain = frame.reset_index()
    for column in times:
        plain[column] = plain[column].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    return plain.set_index(keys)[[each for each in frame.columns if each not in keys]]


def check_windows(name, folder, expected):
    """`expected` has one row a window, by the keys that tell one from another."""
    keys, columns = list(expected.index.names), list(expected.columns)
    segments, files = read_json_lines(folder)
    distinct, faults = distinct_by(segments, lambda segment: tuple(segment[key] for key in keys))
    actual = pd.DataFrame(list(distinct.values()), columns=[*keys, *columns]).set_index(keys)
    faults += listed("missing", expected.index.difference(actual.index))
    faults += listed("not expected", actual.index.difference(expected.index))
    common = expected.index.intersection(actual.index)
    faults += differences(expected.loc[common], actual.loc[common])
    return Outcome(name, files, len(segments), len(distinct), len(expected), faults)


def main(arguments):
    out = Path(arguments[0]) if arguments else OUT
    flown = departed_flights()
    outcomes = [
        check_windows("departures", out / "departures", expected_departures(flown)),
        check_windows("late-share", out / "late-share", expected_late_share(flown)),
        check_windows("stays", out / "stays", expected_stays(flown)),
    ]
    show(outcomes, out, "windows")
    return 1 if any(each.faults for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
