"""The user's functions of workload a, the same for every program that is measured."""

import json
import os
from pathlib import Path


def inc(segment):
    return {**segment, "n": segment["n"] + 1}


def even(segment):
    return segment["n"] % 2 == 0


def inc_even(segment):
    """Add one; a segment that is odd then ends here."""
    segment = inc(segment)
    return segment if even(segment) else None


def is_even(event, old, new, all_new):
    """`even` as the predicate of a flow condition."""
    return even(new)


class Answer:
    """What has reached the sink in this process."""

    count = 0
    total = 0


def count(segments):
    """The sink: count and sum, a batch at a time."""
    Answer.count += len(segments)
    Answer.total += sum([segment["n"] for segment in segments])


def calls():
    """Lifecycle of the sink: each process leaves its share of the answer in a folder."""
    return {"after_task_stop": leave_answer}


def leave_answer(event, lifecycle):
    path = Path(lifecycle.options["folder"]) / f"{os.getpid()}.json"
    path.write_text(json.dumps([Answer.count, Answer.total]))
