"""Where the dead letters of a task are, and the input by which they go in again: what a job says of
that. Pure.

A segment goes in at the task where it failed, because that is the form that it has. So there has to
be an input that takes requests and gives them to this task alone. Rejected: a way that every job
has without a word, as an inbox of every task: a job would not end, and what comes into a task would
not be in its graph. Also a segment that goes back to the input of the job and from there through
all tasks: it has been changed on its way, and what it brought about on other ways is done already.
"""

from __future__ import annotations

from onyx.client.redrive.elsewhere import PLACES
from onyx.errors import UserError
from onyx.model.job import CatalogEntry, Job
from onyx.model.plugins import keeps_parts, takes_requests
from onyx.model.report import nearest
from onyx.model.workflow import children


def place_of_letters(job: Job, task: str) -> str | CatalogEntry:
    """Where the dead letters of a task are written: the location, as the job names it, or the
    output that writes them into a topic or a table.

    Raises:
        UserError: there is none that can be read.
    """
    entry = _entry(job, task)
    if entry.dead_letter is None:
        path = entry.options.get("deadLetterPath")
        if isinstance(path, str):
            return path
        raise UserError(
            f"task {task} of job {job.name} has no deadLetter: nothing of it is kept; --from names "
            "a folder with letters of before"
        )
    output = job.entry(entry.dead_letter)
    path = output.options.get("path")
    if output.type == "output" and output.plugin in PLACES:
        return output
    if not keeps_parts(output.type, output.plugin) or not isinstance(path, str):
        what = output.plugin or output.fn or output.type
        raise UserError(
            f"the dead letters of task {task} go to {output.name} ({what}), where nobody can read "
            "them one by one: write them to a folder or a bucket (plugin files), a topic (kafka) "
            "or a table (sql), or copy them to a folder and name it by --from"
        )
    return path


def way_in(job: Job, task: str, into: str = "") -> CatalogEntry:
    """The input by which segments come to a task. `into`: the one that somebody names.

    Raises:
        UserError: there is none, or there are several; the message says what to add to the job.
    """
    entry = _entry(job, task)
    if job.engine == "spark":
        raise UserError(
            f"job {job.name} has engine: spark, which takes no requests: redrive into a job with "
            "engine: peers that has the task, or upgrade this job to it"
        )
    inputs = [each for each in job.catalog if takes_requests(each.type, each.plugin)]
    if into:
        named = next((each for each in inputs if each.name == into), None)
        if named is not None:
            return named
        others = ", ".join(each.name for each in inputs) or "none"
        raise UserError(
            f"{into} is no input of job {job.name} that takes requests; it has {others}"
        )
    if entry in inputs:
        return entry
    is_input = entry.type == "input"
    wanted, fn = (_gets(job, entry), entry.fn) if is_input else ({task}, None)
    found = [each for each in inputs if each.fn == fn and _gets(job, each) == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(each.name for each in found)
        raise UserError(f"several inputs lead to task {task}: {names}; --into names one of them")
    does = f', fn: "{fn}"' if fn else ""
    edges = ", ".join(f"[again, {each}]" for each in sorted(wanted))
    raise UserError(
        f"job {job.name} has no way in for segments of task {task}: add an input that takes "
        "requests and leads there alone, in catalog `{name: again, type: input, plugin: "
        f"requests{does}}}` and in workflow `{edges}`, and submit it with --upgrade; or --into "
        "names an input that takes requests"
    )


def _entry(job: Job, task: str) -> CatalogEntry:
    names = [each.name for each in job.catalog]
    if task not in names:
        hint = nearest(task, names) or f"it has {', '.join(names)}"
        raise UserError(f"job {job.name} has no task {task}; {hint}")
    return job.entry(task)


def _gets(job: Job, entry: CatalogEntry) -> set[str]:
    """The tasks that get what an input reads."""
    apart = job.late_children(entry.name) | {entry.dead_letter}
    return set(children(job.workflow).get(entry.name, ())) - apart
