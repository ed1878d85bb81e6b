"""What happens to one flight: plain functions over dicts, and the predicates that route them.

A predicate gets the event, the segment before and after the function of its task, all segments
that the function made of it, and then the parameters named in the job file.
"""

MISSING = "NA"
INTEGERS = (
    *("row", "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time"),
    *("sched_arr_time", "arr_delay", "flight", "air_time", "distance", "hour", "minute"),
)
TEXTS = ("carrier", "tailnum", "origin", "dest", "time_hour")
REQUIRED = ("row", "year", "month", "day", "carrier", "origin", "dest", "distance")


def parse(record):
    """A record of the CSV file, all text, as a flight with types; NA becomes None.

    Raises ValueError for a record that cannot be a flight: the job routes those to a file of
    their own.
    """
    flight = {}
    for key in INTEGERS:
        text = record.get(key)
        flight[key] = None if text in (None, "", MISSING) else int(text)
    for key in TEXTS:
        text = record.get(key)
        flight[key] = None if text in (None, "", MISSING) else text
    missing = [key for key in REQUIRED if flight[key] is None]
    if missing:
        raise ValueError(f"no value for {', '.join(missing)}")
    if not 1 <= flight["month"] <= 12:
        raise ValueError(f"there is no month {flight['month']}")
    if flight["distance"] <= 0:
        raise ValueError(f"a distance of {flight['distance']} miles")
    return flight


def derive(flight):
    """Add `delay`, minutes late at the destination (at departure if it never arrived there), and
    `speed` in miles an hour; None where the flight has no such figure."""
    arrived, departed, minutes = flight["arr_delay"], flight["dep_delay"], flight["air_time"]
    flight["delay"] = departed if arrived is None else arrived
    flight["speed"] = round(flight["distance"] * 60 / minutes, 1) if minutes else None
    return flight


def is_value_error(event, record, error, all_new):
    """A record that `parse` refused."""
    return isinstance(error, ValueError)


def describe(event, record, error):
    """What is written of a bad record: the record, and why it was refused."""
    return {"record": dict(record), "error": str(error)}
