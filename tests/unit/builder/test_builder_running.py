"""A job that was put together is checked, planned and drawn as one from a file."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from tests.support.jobs import job_functions as own

from onyx.builder import Job, JobFailed, blackhole, files, plugin, sequence, stdout
from onyx.builder import running as builder_running
from onyx.cli.command_table import run_command
from onyx.client.statuses import JobStatus
from onyx.errors import InvariantViolated, ManifestError, OnyxError, UserError
from onyx.ids import JobId, Position
from onyx.model import job as model
from onyx.settings import Settings

JOB = Job("job").read(sequence(segments=[{"n": 1}])).map(own.inc).write(stdout())


def test_a_valid_job_has_no_problems() -> None:
    assert JOB.validate() == []


def test_a_key_without_effect_is_warned_of() -> None:
    (found,) = JOB.set(medium="kafka").validate()
    assert found.path == "spec.catalog[2].medium"


def test_a_key_that_only_the_operator_reads_is_warned_of() -> None:
    job = Job("job", desired_state="Suspended").read(sequence(segments=[])).write(stdout())
    (found,) = job.validate()
    assert found.path == "spec.desiredState"


def test_a_module_that_is_elsewhere_is_warned_of() -> None:
    (found,) = JOB.at("inc").map("far_away:f").write(blackhole(), name="end").validate()
    assert "module far_away is not here" in str(found)


def test_a_function_that_cannot_be_called_so_is_a_problem() -> None:
    with pytest.raises(ManifestError, match=r"spec\.catalog\[1\]\.fn: .*is called as fn\(by, more"):
        Job("job").read(sequence(segments=[])).map(own.add, by=1, more=2).write(stdout()).validate()


def test_options_that_a_plugin_does_not_have_are_problems() -> None:
    job = Job("job").read(files("people.csv", headers=True)).write(stdout())  # type: ignore[call-overload]
    with pytest.raises(ManifestError, match="did you mean header"):
        job.validate()


def test_a_plan_refuses_what_spark_has_not() -> None:
    reads = Job("job").read(sequence(segments=[]), segments_per_second_max=9)
    key = r"spec\.catalog\[0\]\.segmentsPerSecondMax"
    with pytest.raises(ManifestError, match=f"{key}: is not for engine"):
        reads.write(stdout()).plan()


def test_the_plan_is_that_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job("job").read(files("in.jsonl")).map(own.inc).write(files("out"))
    file = tmp_path / "job.yaml"
    file.write_text(job.to_yaml())
    run_command(["plan", str(file)])
    assert capsys.readouterr().out == f"{job.plan()}\n"


def test_submit_hands_over_the_job_with_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[tuple[Settings, model.Job]] = []
    monkeypatch.setattr(builder_running, "submit_job", lambda *them: handed.append(them))
    monkeypatch.setenv("ONYX_TENANCY_ID", "theirs")
    JOB.submit()
    mine = Settings(tenancy_id="mine")
    JOB.submit(mine)
    assert [(found.tenancy_id, job) for found, job in handed] == [
        ("theirs", JOB.build()),
        ("mine", JOB.build()),
    ]


def test_a_job_that_has_not_completed_says_why() -> None:
    status = JobStatus(JobId("id"), "ages", "killed", Position(7), waiting_for="why")
    assert str(JobFailed(status)) == "job ages is killed: why"


GREEDY = """
from onyx.builder import Job, sequence, stdout

def same(segment):
    return segment

Job("greedy").read(sequence(segments=[])).map(same).write(stdout()).{verb}()
"""


@pytest.fixture
def greedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module that submits or runs its job as soon as it is imported."""
    name = f"builder_greedy_{request.param}"
    (tmp_path / f"{name}.py").write_text(GREEDY.format(verb=request.param))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


@pytest.mark.parametrize("greedy", ["run", "submit"], indirect=True)
def test_a_job_does_not_start_while_another_imports_its_module(greedy: str) -> None:
    job = Job("job").read(sequence(segments=[])).map(f"{greedy}:same").write(stdout())
    with pytest.raises(ManifestError, match=r'put it below if __name__ == "__main__":'):
        job.run()


def test_a_module_that_runs_nothing_may_hold_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "builder_holder.py").write_text(GREEDY.format(verb="validate"))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(importlib.import_module("builder_holder"), ModuleType)


def test_the_drawing_is_svg_with_a_box_a_task_even_if_the_job_is_not_whole() -> None:
    job = Job("a<b").read(plugin("my:plugin"), name="first").when((">", "n", 1)).map("app:f<g")
    svg = ElementTree.fromstring(job._repr_svg_())
    text = "".join(svg.itertext())
    assert "first" in text
    assert "app:f<g" in text
    assert job._repr_svg_().count("stroke-dasharray") == 1
    assert Job("empty")._repr_svg_().startswith("<svg")


def test_nothing_is_submitted_from_a_job_that_is_not_valid() -> None:
    with pytest.raises(UserError):
        Job("job").submit()


@pytest.mark.parametrize("call", ["build", "validate", "plan", "run", "submit"])
def test_an_error_shows_the_line_that_calls_and_nothing_below(call: str) -> None:
    wrong = Job("wrong").read(files("nowhere/*.csv", format="none"))  # type: ignore[arg-type]
    with pytest.raises(OnyxError) as raised:
        getattr(wrong, call)()
    frames = [Path(each.path).name for each in raised.traceback]
    assert frames == ["test_builder_running.py", "running.py"]
    assert raised.value.__suppress_context__


def test_a_notebook_shows_the_message_of_an_error_and_all_of_a_bug() -> None:
    assert UserError("a\nb")._render_traceback_() == ["error: a", "b"]
    assert not hasattr(InvariantViolated("a bug"), "_render_traceback_")
