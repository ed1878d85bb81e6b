"""Does the output of the outliers job agree with pandas, all of it and exactly?

    python examples/flights/check_outliers.py [OUT]

Means of whole minutes are exact quotients, whoever adds up. The exit code is 0 if all agrees, 1 if
anything differs.
"""

import sys
from pathlib import Path

from check import check_route, expected_flights, show
from prepare import OUT

MINUTES = 240
ORIGIN = "JFK"


def expected_outliers(flights):
    """Flights far later than the mean of their destination, by row number."""
    flown = flights[flights["dep_time"].notna() & (flights["origin"] == ORIGIN)].rename(
        columns={"dest": "destination"}
    )
    mean = flown.groupby("destination")["delay"].transform("mean")
    found = flown.assign(mean=mean)[flown["delay"] >= mean + MINUTES]
    return found[["row", "destination", "delay", "mean"]]


def main(arguments):
    out = Path(arguments[0]) if arguments else OUT
    outcome = check_route("outliers", out / "outliers", expected_outliers(expected_flights()))
    show([outcome], out, "outliers")
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
