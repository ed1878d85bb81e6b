"""The user's functions of workloads b and c: splitting lines, what windows emit, and files of which
nobody knows whether more will come.
"""

from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import InputOptions
from onyx.plugins.options import read_options


def growing_files(context):
    return FilesInput(context, read_options(context, InputOptions))


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
