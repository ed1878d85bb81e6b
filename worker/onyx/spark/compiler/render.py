"""A plan as text, for `onyx plan`."""

from __future__ import annotations

from collections.abc import Iterator

from onyx.model.job import CatalogEntry, Job
from onyx.model.tables import looked_up
from onyx.model.workflow import children
from onyx.spark.compiler.plan import Exchange, Fragment, Plan, PlannedOutput

_HOW = {
    "staged": "staged, and published by the worker {when}",
    "spooled": "spooled, and written by the worker {when}",
    "called": "called by the fragment",
    "dropped": "dropped",
}


def render(plan: Plan, job: Job) -> str:
    """The plan as lines, each task indented below the one that feeds it."""
    many = f"{len(plan.fragments)} fragment{'s' if len(plan.fragments) > 1 else ''}"
    kind = "streaming query, each micro-batch" if plan.unbounded else "batch query"
    if plan.middles:
        many += f", in {len(plan.pieces)} parts"
    return "\n".join([f"job {plan.job} on Spark: one {kind} of {many}", *_Lines(plan, job).all()])


class _Lines:
    def __init__(self, plan: Plan, job: Job) -> None:
        self._plan = plan
        self._job = job
        self._below = children(job.workflow)
        self._outputs = {each.task: each for each in plan.outputs}

    def all(self) -> Iterator[str]:
        for fragment in self._plan.fragments:
            middles = [each for each in self._plan.middles if each.fragment == fragment.number]
            for middle in middles:
                yield (
                    f"Spark stage {middle.function} of task {middle.task}, once, over all of "
                    f"{', '.join(middle.upstream)}"
                )
            each = "share of the rows" if middles else "share of the groups"
            if fragment.number == 0:
                each = "partition of the inputs"
            yield f"fragment {fragment.number}: one mapInArrow, a task of Spark for each {each}"
            seen: set[str] = set()
            for task in fragment.begins:
                yield from self._tree(fragment, task, 1, seen)

    def _tree(self, fragment: Fragment, task: str, depth: int, seen: set[str]) -> Iterator[str]:
        indent = "  " * depth
        if task in seen:
            yield f"{indent}{task} (above)"
            return
        seen.add(task)
        yield f"{indent}{task}: {', '.join(self._about(task))}"
        for child in self._below[task]:
            exchange = self._plan.exchange(child)
            middle = self._plan.middle(child)
            if exchange is not None:
                where = f"fragment {exchange.fragment}, {_by(exchange)}"
                yield f"{indent}  shuffle to {child} in {where}"
            elif middle is not None:
                yield f"{indent}  written for the Spark stage of {child}"
            else:
                yield from self._tree(fragment, child, depth + 1, seen)

    def _about(self, task: str) -> Iterator[str]:
        entry, output = self._job.entry(task), self._outputs.get(task)
        yield _kind(entry)
        if tables := looked_up(entry):
            yield f"looks up {' and '.join(tables)}, which each process reads once"
            if any(self._job.entry(each).partitioned for each in tables):
                yield "a part for each bucket"
        if entry.maker is not None:
            yield f"{entry.maker} on {'columns' if entry.batch_format == 'arrow' else 'dicts'}"
        if entry.loop_to is not None:
            yield f"sends back to {entry.loop_to}"
        exchange = self._plan.exchange(task)
        if exchange is not None:
            yield from _state(exchange, entry)
            if (exchange.windows or entry.is_stateful) and self._plan.unbounded:
                yield "its state committed with each micro-batch"
        if output is not None:
            yield _written(output, self._plan.unbounded)


def _kind(entry: CatalogEntry) -> str:
    if entry.stage is not None:
        return f"rows of the Spark stage {entry.stage}"
    if entry.type != "input":
        return entry.type
    time = entry.watermark_key or entry.assign_watermark_fn
    return f"input {entry.plugin}" + (f" with watermarks by {time}" if time else "")


def _by(exchange: Exchange) -> str:
    return "all to one bucket" if exchange.key is None else f"by {exchange.key}"


def _state(exchange: Exchange, entry: CatalogEntry) -> Iterator[str]:
    if len(exchange.apart) > 1:
        kept = "together" if entry.sides else "apart"
        yield f"{'brings' if entry.sides else 'keeps'} {' and '.join(exchange.apart)} {kept}"
    for each in exchange.windows:
        where = "combined before" if each.combined else "folded behind"
        reason = f" ({each.reason})" if each.reason else ""
        yield f"{each.type} window {each.id} of {each.aggregation} {where} the shuffle{reason}"
    if exchange.watermarks == "batches":
        yield "watermarks of every batch"


def _written(output: PlannedOutput, unbounded: bool) -> str:
    when = "behind each micro-batch" if unbounded else "at the end"
    return f"{output.plugin} {_HOW[output.how].format(when=when)}"
