"""What the outliers job does with a flight, and with the mean delay to a destination."""

from flights.tasks import derive, parse


def fly(record):
    """What is needed of a flight; nothing of one that never left."""
    flight = derive(parse(record))
    if flight["dep_time"] is None:
        return []
    return {"row": flight["row"], "destination": flight["dest"], "delay": flight["delay"]}


def mean(event, window, trigger, state_event, delay):
    """A destination and the mean delay of the flights to it, in minutes."""
    return {"destination": state_event["group_key"], "mean": delay["average"]}
