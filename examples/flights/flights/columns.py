"""What happens to flights in columns: functions over record batches."""

import pyarrow.compute as pc


def delays(flights):
    """Each flight and `delay`: minutes late at the destination, at departure if it never arrived
    there, none if it never left."""
    delay = pc.coalesce(flights["arr_delay"], flights["dep_delay"])
    kept = flights.select(["year", "month", "day", "carrier", "origin", "dest", "flight"])
    return kept.append_column("delay", delay)


def average(event, window, trigger, state_event, found):
    """A line of `averages`: carrier, year and month of a group, and what was found of it."""
    return {**state_event["group_key"], "flights": found["n"], "delay": found["average"]}
