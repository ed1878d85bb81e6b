"""The user's functions of workloads b and c: splitting lines, and what windows emit."""


def split(segment):
    return [{"word": word} for word in segment["line"].split()]


def emit_group(event, window, trigger, state_event, state):
    """The state of a group whose window has no bounds."""
    return {"key": state_event["group_key"], "lower": 0, "value": state}


def emit_extent(event, window, trigger, state_event, state):
    return {
        "key": state_event["group_key"],
        "lower": state_event["lower_bound"],
        "value": state,
    }
