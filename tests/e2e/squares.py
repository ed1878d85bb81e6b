"""The user's code of these tests: given to the workers as a file, as the chart allows."""


def square(segment):
    return {"n": segment["n"], "square": segment["n"] ** 2}


def square_of_group(segment):
    return {**square(segment), "group": segment["n"] % 8}


def total(event, window, trigger, state_event, total):
    """The squares of a group in an extent of a window, added up."""
    return {"group": state_event["group_key"], "from": state_event["lower_bound"], "total": total}
