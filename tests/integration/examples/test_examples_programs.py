"""Programs of the pages that have a cluster of their own do what the pages say."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.support.patience import WAIT_S

from onyx import api
from onyx.builder import Job, blackhole, sequence
from onyx.cli.commands.append import append
from onyx.cli.options import LogPlace
from onyx.client.appending import addresses_of
from onyx.model.job import Job as Manifest
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
ROOT = Path(__file__).parents[3]
MODULE = "programs_of_the_guide"


def examples(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.fixture
def guide(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The examples of the page, as the module that jobs name."""
    module = ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)
    for code in examples("docs/guide/programs.md"):
        exec(compile(code, "docs/guide/programs.md", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def once(segments: int = 1) -> Manifest:
    rows = [{"n": n} for n in range(segments)]
    return Job("once").read(sequence(segments=rows)).write(blackhole()).build()


def ended(env: TestEnv) -> api.JobId:
    job = env.submit(once())
    env.client.wait(job, WAIT_S)
    return job


def test_a_cluster_in_one_process_completes_a_job(guide: dict[str, Any]) -> None:
    assert guide["run"](api.Settings()) is True


def test_what_a_program_puts_into_a_channel_comes_out_of_another_one(
    guide: dict[str, Any],
) -> None:
    settings = api.Settings(modules=(MODULE,))
    made = guide["through"](settings, range(20))
    assert sorted(each["n"] for each in made) == [2 * n for n in range(20)]


def test_the_log_is_followed_and_folded(guide: dict[str, Any]) -> None:
    with with_test_env(2) as env:
        ended(env)
        submitted = guide["Submitted"](env.settings)
        job = ended(env)
        with submitted.changed:
            assert submitted.changed.wait_for(lambda: submitted.count, WAIT_S)
        submitted.close()
        assert submitted.count == 1
        seen, first = guide["states_until_ended"](env.settings, job)
    assert max(seen) == 2
    assert first.version == 0


def test_a_class_for_metrics_is_given_what_it_asks_for(guide: dict[str, Any]) -> None:
    metrics = guide["Counting"]()
    with with_test_env(2, metrics=metrics) as env:
        env.client.wait(env.submit(once(segments=7)), WAIT_S)
    assert metrics.counts["write"] == 7
    assert metrics.noted


def section(title: str) -> str:
    """A section of the README."""
    return (ROOT / "README.md").read_text().split(f"## {title}\n")[1].split("\n## ")[0]


def shown(text: str) -> list[str]:
    """The indented blocks of a text, outside of its fences."""
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    blocks = re.findall(r"((?:^    .*\n)+)", outside, re.MULTILINE)
    return [textwrap.dedent(each) for each in blocks]


def test_the_jobs_of_the_readme_do_what_the_page_shows_one_after_the_other_in_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own, asked = section("A job of your own"), section("A request and its answer")
    for page, name in ((own, "ages"), (asked, "asked")):
        for language, suffix in (("python", "py"), ("yaml", "yaml")):
            (block,) = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
            (tmp_path / f"{name}.{suffix}").write_text(block)
        monkeypatch.delitem(sys.modules, name, raising=False)
    _, people, rows = shown(own)
    (tmp_path / "people.csv").write_text(people)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with with_test_env(3, modules=["ages", "asked"]) as env:
        assert env.run(manifest_of("ages")).state == "completed"
        job = env.submit(manifest_of("asked"))
        (segment,) = re.findall(r"--segment '(.*?)'", asked)
        workers, place = (
            addresses_of(env.client.replica()),
            LogPlace(tenancy=env.settings.tenancy_id),
        )
        append("asked", "in", segment=segment, worker=workers, place=place)
        env.client.drain(job)
        assert env.client.wait(job, WAIT_S)
    written = [each.read_text() for each in (tmp_path / "out").iterdir() if each.is_file()]
    assert sorted("".join(written).splitlines()) == sorted(rows.splitlines())
    assert shown(asked) == [capsys.readouterr().out]
    for name in ("ages", "asked"):
        monkeypatch.delitem(sys.modules, name)


def manifest_of(name: str) -> Manifest:
    return api.parse_manifest(Path(f"{name}.yaml").read_text(), f"{name}.yaml")


def test_the_test_of_the_page_about_debugging_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    ages = ModuleType("ages")
    exec("def age(year, person): return {'age': year - person['born']}", ages.__dict__)
    monkeypatch.setitem(sys.modules, "ages", ages)
    (code,) = examples("docs/guide/debugging.md")
    names: dict[str, Any] = {}
    exec(compile(code, "docs/guide/debugging.md", "exec", dont_inherit=True), names)
    names["test_ada_is_198"]()
