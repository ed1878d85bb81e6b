"""What `onyx jobs` prints, and what it imports for that."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from onyx import __version__
from onyx.cli import command as onyx
from onyx.cli.status_table import lines, print_status, print_statuses
from onyx.client.statuses import JobStatus
from onyx.ids import JobId, Position
from onyx.reports.measures import InputMeasures, JobMeasures, TaskMeasures

UUID = "0b6f2a0e-4c47-4b1c-9d5e-1f3a5b7c9d11"
LONG = "x" * 90
WAITS = f"needs 8 peers (read 1, work 4, write 3); the cluster has 6, 4 of them free, and {LONG}"


def status(job: str, name: str = "flights", **more: object) -> JobStatus:
    return JobStatus(JobId(job), name, "running", Position(7), 9, **more)  # type: ignore[arg-type]


def test_ids_are_whole_and_nothing_is_broken_in_80_columns() -> None:
    shown = list(lines([status(UUID), status("nightly-1", waiting_for=WAITS)], 80))
    assert shown == [
        "job                                   state    peers  engine  name",
        f"{UUID}  running  9      peers   flights",
        "nightly-1                             running  9      peers   flights",
        "    needs 8 peers (read 1, work 4, write 3); the cluster has 6, 4 of them free,",
        "    and",
        f"    {LONG}",
    ]


def test_the_code_that_peers_run_is_shown_in_80_columns_with_what_is_wrong_of_it() -> None:
    warning = "its peers run different code: 5 run 3f2a9c01, 4 run 9d01aa3e; restart the workers"
    mixed = {"3f2a9c01": 5, "9d01aa3e": 4}
    shown = list(
        lines(
            [
                status(UUID, code={"3f2a9c01": 9}),
                status("mixed", code=mixed, code_warning=warning),
                status("waits", waiting_for="is suspended"),
            ],
            80,
        )
    )
    assert shown == [
        "job                                   state    peers  engine  code      name",
        f"{UUID}  running  9      peers   3f2a9c01  flights",
        "mixed                                 running  9      peers   mixed     flights",
        "    its peers run different code: 5 run 3f2a9c01, 4 run 9d01aa3e; restart the",
        "    workers",
        "waits                                 running  9      peers             flights",
        "    is suspended",
    ]
    assert max(map(len, shown)) <= 80


def test_programs_get_the_code_and_the_warning(capsys: pytest.CaptureFixture[str]) -> None:
    print_statuses([status("j", code={"3f2a9c01": 9}, code_warning="why")], as_json=True)
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["code"], found["code_warning"]) == ({"3f2a9c01": 9}, "why")


FAILED = "1 of 1 segments of work failed, as the answers to their requests say"


@pytest.mark.parametrize(
    ("more", "first"),
    [
        ({"state": "killed"}, "job j is killed"),
        ({"state": "failed"}, "job j has failed"),
        ({"state": "completed"}, "job j is completed"),
        ({"state": "running", "waiting_for": WAITS}, f"job j is running: {WAITS}"),
    ],
    ids=lambda each: each["state"] if isinstance(each, dict) else "",
)
def test_what_became_of_segments_does_not_look_like_why_a_job_has_ended(
    capsys: pytest.CaptureFixture[str], more: dict[str, object], first: str
) -> None:
    options = {"work": {"maxPending": 9}}
    shown = msgspec.structs.replace(status("j", outcomes=(FAILED,), options=options), **more)
    print_status(shown, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        first, f"    {FAILED}", "    set: work maxPending=9",
    ]  # fmt: skip


def test_what_is_measured_of_a_job_stands_below_it_and_of_a_single_one_its_tasks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tasks = (
        TaskMeasures("j", "read", 1, in_per_s=1500, out_per_s=1500, busy=0.5,
                     input=InputMeasures(1, 12)),
        TaskMeasures("j", "write", 2, in_per_s=700, busy=1.0, queue_segments=4000),
    )  # fmt: skip
    shown = status("j", measured=JobMeasures(1500.0, 12), tasks=tasks)
    print_statuses([shown], as_json=False)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[-4:]]
    assert rows == [
        ["1,500", "segments", "a", "second,", "12", "segments", "behind"],
        ["task", "peers", "in/s", "out/s", "busy", "held", "waiting", "behind"],
        ["read", "1", "1,500", "1,500", "50%", "0%", "0", "12"],
        ["write", "2", "700", "0", "50%", "0%", "4,000"],
    ]
    print_statuses([shown], as_json=True)
    (found,) = json.loads(capsys.readouterr().out)
    assert found["measured"]["segments_behind"] == 12
    assert found["tasks"][1]["queue_segments"] == 4000


def test_what_comes_from_workers_moves_no_cursor_and_forges_no_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = "\x1b[2J\u202eevil\nrow"
    frame = {"file": bad, "line": 1, "function": bad, "code": bad}
    shown = status(
        "j",
        name=bad,
        deaths=bad,
        code_warning=bad,
        measured=JobMeasures(unknown=bad, silent={"g": bad}),
        tasks=(TaskMeasures("j", bad, 1), TaskMeasures("j", "write", 1)),
        exception={"task": bad, "phase": bad, "errors": [{"type": bad, "frames": [frame]}]},
    )
    print_statuses([shown], as_json=False)
    print_status(shown, as_json=False)
    found = capsys.readouterr().out
    assert "\\x1b[2J\\u202eevil" in found
    assert all(each.isprintable() for each in found.splitlines())
    assert not any(line.startswith("row") for line in found.splitlines())


def test_a_job_with_the_longest_names_cuts_no_other_column() -> None:
    long = JobStatus(JobId("j" * 128), "n" * 63, "suspended", Position(7))
    head, row = lines([long], 80)
    assert row == f"{'j' * 128}  suspended  0      peers   {'n' * 63}"
    assert head.split() == ["job", "state", "peers", "engine", "name"]


def test_to_list_jobs_imports_nothing_that_makes_or_runs_one() -> None:
    code = "import json, sys, onyx.cli.commands.jobs; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    heavy = ("rich", "onyx.model.parsing", "onyx.model.job", "onyx.submission", "onyx.plugins")
    assert "onyx.cli.commands.jobs" in loaded
    assert [each for each in heavy if each in loaded] == []


def test_to_ask_workers_and_to_show_a_console_needs_no_batches() -> None:
    code = "import json, sys, onyx.console.serve; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert "onyx.client.measures" in loaded
    assert not {"numpy", "pyarrow"} & set(loaded)


def test_the_version_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["onyx", "--version"])
    onyx()
    assert capsys.readouterr().out == f"onyx {__version__}\n"
