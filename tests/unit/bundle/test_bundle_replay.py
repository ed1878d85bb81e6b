"""The batch at which a job has failed runs again: the same exception, another, or none; and what
cannot be run again is refused with its reason."""

from __future__ import annotations

import json
import pdb
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.support.bundles import bundled, failed_world
from tests.support.console_world import GROUPS, ConsoleWorld
from tests.support.jobs.bench import chain

from onyx.bundle.bundle_file import JobBundle
from onyx.bundle.bundled_log import client_of
from onyx.bundle.replay import FailedTask, failed_task, is_same, replay, said_now
from onyx.cli.command_table import run_command
from onyx.client import failure_text
from onyx.errors import NameNotRegistered, SettingsError, UserError
from onyx.ids import JobId
from onyx.log import documents
from onyx.log.interface import Document
from onyx.processors import Processor
from onyx.settings import Settings, TaskSettings

SEGMENTS = [{"n": n, "user": "ada"} for n in range(6)]
Functions = Mapping[str, Any]


def fails(segment: dict[str, Any]) -> dict[str, Any]:
    if segment["n"] == 3:
        raise ValueError(f"no number: {segment['n']}")
    return segment


def columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    if 3 in batch.column("n").to_pylist():
        raise ValueError("no number: 3")
    return batch


def keyed(segment: dict[str, Any], state: Any) -> Any:
    state.seen = (state.seen or 0) + 1
    return fails(segment)


class Failing(Processor):
    def process_item(self, ordinal: int, item: Any) -> bool:
        return bool(fails(item))


def update(window: Any, state: Any, segment: dict[str, Any]) -> Any:
    return fails(segment)["n"]


def sums() -> dict[str, Any]:
    return {"init": lambda window: 0, "create_state_update": update,
            "apply_state_update": lambda window, state, update: state + update}  # fmt: skip


def predicate(event: Any, old: Any, new: Any, all_new: Any) -> bool:
    return bool(fails(new))


def job(fn: str | None = "m:work", work: Mapping[str, Any] = {}, **more: Any) -> dict[str, Any]:
    """read -> work -> write, with more keys of `work`."""
    spec = chain(SEGMENTS, fn=fn, work=work, batch_size=6, **more)
    if fn is None:
        del spec["catalog"][1]["fn"]
    return spec


GROUPED = {"groupByKey": "user", "fluxPolicy": "continue"}
KEPT = {**GROUPED, "deduplicate": False}
WINDOWS = {
    "windows": [{"id": "w", "task": "work", "type": "global", "aggregation": "m:sums"}],
    "triggers": [
        {
            "windowId": "w",
            "type": "segment",
            "threshold": [100, "elements"],
            "refinement": "accumulating",
            "sync": "m:nothing",
        },
    ],
}
CONDITIONS = [{"from": "work", "to": ["write"], "predicate": "m:predicate"}]
CASES: dict[str, tuple[dict[str, Any], Functions]] = {
    "a function": (job(), {"m:work": fails}),
    "a function of a whole batch": (
        job(work={"batchFn": True}),
        {"m:work": lambda segments: [fails(each) for each in segments]},
    ),
    "a function of columns": (job(work={"batchFormat": "arrow"}), {"m:work": columns}),
    "state by key": (job(work={**KEPT, "state": {"seen": "value[int]"}}), {"m:work": keyed}),
    "a processor": (job(None, {**GROUPED, "processor": "m:Work"}), {"m:Work": Failing}),
    "a condition": (
        job(flowConditions=CONDITIONS),
        {"m:work": lambda segment: segment, "m:predicate": predicate},
    ),
    "a window": (
        job(work=KEPT, **WINDOWS),
        {"m:work": lambda segment: segment, "m:sums": sums, "m:nothing": lambda *_: None},
    ),
}


def resolving(functions: Functions) -> Any:
    def resolve(name: str) -> Any:
        if name not in functions:
            raise NameNotRegistered(f"{name} is not registered")
        return functions[name]

    return resolve


def failed(spec: dict[str, Any], functions: Functions, path: Path) -> FailedTask:
    return failed_task(bundled(failed_world(spec, functions), path / "b.gz"))


@pytest.mark.parametrize("case", CASES)
def test_the_batch_fails_as_it_did(case: str, tmp_path: Path) -> None:
    spec, functions = CASES[case]
    found = failed(spec, functions, tmp_path)
    failure = replay(found, resolving(functions))
    assert failure is not None
    now = said_now(found, failure)
    assert (now["type"], now["message"]) == (found.report["type"], found.report["message"])
    assert now["phase"] == found.report["phase"]
    assert is_same(found.report, now)


def test_a_mended_function_passes_and_another_exception_is_told_apart(tmp_path: Path) -> None:
    spec, functions = CASES["a function"]
    found = failed(spec, functions, tmp_path)
    assert replay(found, resolving({"m:work": lambda segment: segment})) is None

    def otherwise(segment: dict[str, Any]) -> Any:
        raise KeyError("user")

    failure = replay(found, resolving({"m:work": otherwise}))
    assert failure is not None
    assert not is_same(found.report, said_now(found, failure))


def test_the_same_place_is_the_same_though_its_message_has_an_address() -> None:
    frame = {"function": "f", "code": "raise E(self)", "line": 3}
    one = {"type": "E", "message": "at 0x1", "errors": [{"frames": [frame]}]}
    other = {"type": "E", "message": "at 0x2", "errors": [{"frames": [{**frame, "line": 9}]}]}
    assert is_same(one, other)
    assert not is_same({**one, "errors": []}, {**other, "errors": []})


def test_hooks_before_the_function_run_and_their_failure_is_one(tmp_path: Path) -> None:
    spec, functions = CASES["a function"]
    seen: list[Any] = []

    def calls() -> dict[str, Any]:
        return {
            "before_task_start": lambda event, lifecycle: {"rate": 2},
            "after_read_batch": lambda event, lifecycle: seen.append(event["rate"]),
        }

    spec = {**spec, "lifecycles": [{"task": "work", "calls": "m:calls"}]}
    found = failed(spec, {**functions, "m:calls": calls}, tmp_path)
    seen.clear()
    assert replay(found, resolving({**functions, "m:calls": calls})) is not None
    assert seen == [2]

    def broken() -> dict[str, Any]:
        return {"before_task_start": lambda event, lifecycle: 1 / 0}

    failure = replay(found, resolving({**functions, "m:calls": broken}))
    assert failure is not None
    assert failure.phase == "before-task-start"


def test_a_large_batch_is_kept_in_part_with_the_segment_that_failed(tmp_path: Path) -> None:
    segments = [{"n": n, "text": "x" * 30_000} for n in range(20)]
    found = failed(chain(segments, fn="m:work", batch_size=20), {"m:work": fails}, tmp_path)
    assert found.batch.count < found.batch.of
    assert 3 in [each["n"] for each in found.segments]
    assert replay(found, resolving({"m:work": fails})) is not None


# --- what cannot be replayed ----------------------------------------------------------------------


def refusal(world: ConsoleWorld, path: Path, values: bool = True) -> str:
    with pytest.raises(UserError) as raised:
        failed_task(bundled(world, path / "b.gz", values))
    return str(raised.value)


def test_without_values_it_is_said_what_to_do(tmp_path: Path) -> None:
    world = failed_world(*CASES["a function"])
    assert "`onyx bundle JOB --values`" in refusal(world, tmp_path, values=False)


@pytest.mark.parametrize("why", ["not allowed", "too large"])
def test_segments_that_were_not_kept_are_missed_in_words(why: str, tmp_path: Path) -> None:
    spec, functions = CASES["a function"]
    settings = Settings(task=TaskSettings(report_values=False))
    if why == "too large":
        settings = Settings()
        spec = chain([{"n": 3, "text": "x" * 300_000}], fn="m:work")
    world = failed_world(spec, functions, settings)
    assert "ONYX_TASK_REPORT_VALUES" in refusal(world, tmp_path)


@pytest.mark.parametrize("state", ["completed", "killed", "running"])
def test_a_job_that_no_task_has_killed_has_nothing_to_replay(state: str, tmp_path: Path) -> None:
    world = ConsoleWorld()
    world.join(*GROUPS[:2])
    job = world.submit("fine", id="broken")
    if state == "completed":
        world.complete(job)
    if state == "killed":
        world.client.kill(job)
    words = {"completed": "has completed", "killed": "by no task", "running": "had not ended"}
    assert words[state] in refusal(world, tmp_path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"phase": "write-batch"}, "it failed in write-batch"),
        ({"phase": "read-batch"}, "it failed in read-batch"),
        ({"task": "nowhere"}, "is no task of its manifest"),
    ],
)
def test_a_failure_that_is_about_no_batch_is_refused(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    world = failed_world(*CASES["a function"])
    path = documents.exception(world.client.replica().killed_jobs[0])
    document = world.log.get_document(path)
    changed = {**json.loads(document.data), **change}
    world.log.put_document(path, json.dumps(changed).encode(), document.version)
    assert why in refusal(world, tmp_path)


# --- the command ----------------------------------------------------------------------------------

MODULE = """
def work(segment):
    if segment["n"] == 3:
        raise ValueError("no number: 3")
    return segment
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the module of a job that has failed, and its bundle."""
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    (tmp_path / "replayed_tasks.py").write_text(MODULE)
    namespace: dict[str, Any] = {}
    exec(compile(MODULE, "replayed_tasks.py", "exec"), namespace)
    name = "replayed_tasks:work"
    world = failed_world(chain(SEGMENTS, fn=name), {name: namespace["work"]})
    bundled(world, tmp_path / "b.gz")
    yield tmp_path
    sys.path[:] = path
    sys.modules.pop("replayed_tasks", None)


def test_the_command_says_then_and_now(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(["replay", "b.gz", "--modules", "replayed_tasks"])
    said = capsys.readouterr().out
    assert ended.value.code == 1
    assert "then: task work, apply-fn: replayed_tasks:work raised ValueError: no number: 3" in said
    assert "now: the same: task work, apply-fn: replayed_tasks:work raised ValueError" in said
    sys.modules.pop("replayed_tasks")
    (folder / "replayed_tasks.py").write_text("def work(segment):\n    return [segment, segment]\n")
    run_command(["replay", "b.gz", "--modules", "replayed_tasks"])
    assert "now: none, it passes" in capsys.readouterr().out


def test_the_debugger_is_entered_where_the_exception_was_raised(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[Any] = []
    monkeypatch.setattr(pdb, "post_mortem", entered.append)
    with pytest.raises(SystemExit):
        run_command(["replay", "b.gz", "--modules", "replayed_tasks", "--debug"])
    (trace,) = entered
    while trace.tb_next is not None:
        trace = trace.tb_next
    assert trace.tb_frame.f_code.co_name == "work"
    assert trace.tb_frame.f_locals["segment"]["n"] == 3


def test_no_module_is_imported_because_a_bundle_names_it(folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"--modules .* it names replayed_tasks"):
        run_command(["replay", "b.gz"])
    assert "replayed_tasks" not in sys.modules
    with pytest.raises(NameNotRegistered, match="offers no functions of replayed_tasks"):
        run_command(["replay", "b.gz", "--modules", "json"])
    assert "replayed_tasks" not in sys.modules


@pytest.mark.parametrize("errors", [5, [5], [{"frames": 5}], [{"frames": [5]}], {"a": 1}])
def test_a_report_that_somebody_has_made_up_is_refused(errors: Any, tmp_path: Path) -> None:
    found = with_report(tmp_path, errors=errors)
    reader = client_of(found)
    assert "cannot be read" in failure_text.whole(reader.exception(JobId("broken")) or {})
    with pytest.raises(UserError, match="no task of its manifest"):
        failed_task(found)


def test_nothing_in_a_report_tells_a_terminal_what_to_do(tmp_path: Path) -> None:
    evil = "\x1b]0;x\x07\n"
    frame = {"file": evil, "line": evil, "function": evil, "code": evil}
    error = {"relation": evil, "type": evil, "message": evil, "frames": [frame]}
    found = with_report(tmp_path, errors=[error, error], segment=evil, detail=evil)
    text = failure_text.whole(failed_task(found).report)
    assert len(text.splitlines()) == len(text.split("\n"))
    assert all(line.isprintable() for line in text.split("\n"))


def with_report(folder: Path, **changed: Any) -> JobBundle:
    """A bundle in which somebody has changed the report."""
    world = failed_world(chain(SEGMENTS, fn="m:fails"), {"m:fails": fails})
    found, path = bundled(world, folder / "b.gz"), documents.exception(JobId("broken"))
    report = json.loads(found.documents[path].data) | changed
    changes = {path: Document(json.dumps(report).encode(), 0)}
    return msgspec.structs.replace(found, documents={**found.documents, **changes})
