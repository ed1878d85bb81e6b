"""A job that cannot run stops no other one: real workers look up what it names, before."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.servers.cluster import Cluster
from tests.support.servers.processes import onyx

from onyx.errors import JobRefused, Unavailable
from onyx.ids import JobId
from onyx.log.server.process import ZooKeeperServer
from onyx.submission import preflight

pytestmark = pytest.mark.server
PEERS = 4
OFFERED = """
import time
from onyx.errors import UserError
from onyx.plugins.blackhole import BlackholeOutput
from onyx.plugins.small_options import BlackholeOptions

def same(segment):
    return segment

def hangs():
    time.sleep(3600)

def exits():
    raise SystemExit("not today")

def fussy(context):
    if context.options.get("colour") != "green":
        raise UserError("option colour must be green")
    return BlackholeOutput(context, BlackholeOptions())
"""
Spec = dict[str, Any]
SPEC: Spec = {
    "workflow": [["read", "work"], ["work", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "generator", "batchSize": 10,
         "options": {"ratePerSecond": 50}},
        {"name": "work", "type": "function", "fn": "offered:same", "batchSize": 10},
        {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 10},
    ],
}  # fmt: skip


def manifest(spec: Spec) -> Spec:
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "j"}}
    return {**head, "spec": spec}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("successors")
    (folder / "offered.py").write_text(OFFERED)
    return folder


@pytest.fixture(scope="module")
def running(zookeeper: ZooKeeperServer, folder: Path) -> Iterator[tuple[Cluster, JobId]]:
    """Two workers, and a job on them; the module has one function more now than when they came."""
    with Cluster(zookeeper.address, folder, folder / "offered.py") as cluster:
        cluster.start_workers(2, PEERS)
        job = cluster.submit(manifest(SPEC))
        cluster.await_ready(job)
        added = "\n\ndef added(segment):\n    return segment\n"
        (folder / "offered.py").write_text(OFFERED + added)
        yield cluster, job


def still_runs(cluster: Cluster, job: JobId) -> bool:
    replica = cluster.client.replica()
    return replica.jobs == (job,) and bool(replica.run(job).allocation)


def after(job: JobId, change: Callable[[Spec], object]) -> Spec:
    spec = copy.deepcopy(SPEC)
    change(spec)
    return manifest({**spec, "upgrade": {"from": job, **spec.get("upgrade", {})}})


WINDOW = {"id": "w", "task": "work", "type": "global"}
TRIGGER = {"windowId": "w", "type": "segment", "threshold": [1, "element"],
           "refinement": "accumulating"}  # fmt: skip


def entry(number: int, **keys: Any) -> Callable[[Spec], object]:
    return lambda spec: spec["catalog"][number].update(keys)


@pytest.mark.short(5)
@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (entry(1, fn="offered:added"), "task work: offered:added: offered has no 'added'"),
        (entry(1, fn="other:same"), "offers no functions of other"),
        (
            lambda spec: (
                entry(0, plugin="offered:gone")(spec),
                spec.update(upgrade={"tasks": {"read": "initialize"}}),
            ),
            "offered has no 'gone'",
        ),
        (entry(0, options={"fn": "offered:gone"}), "task read: offered:gone"),
        (entry(2, plugin="offered:fussy", options={"colour": "red"}), "colour must be green"),
        (
            lambda spec: (
                entry(2, plugin="spark", options={"path": "x", "stage": "offered:gone"})(spec),
                spec.update(upgrade={"tasks": {"write": "initialize"}}),
            ),
            "offered:gone",
        ),
        (
            lambda spec: spec.update(lifecycles=[{"task": "all", "calls": "offered:exits"}]),
            "not today",
        ),
        (
            lambda spec: spec.update(
                flowConditions=[{"from": "work", "to": ["write"], "predicate": "offered:gone"}]
            ),
            "offered:gone",
        ),
        (
            lambda spec: (
                entry(1, deduplicate=False)(spec),
                spec.update(
                    windows=[{**WINDOW, "aggregation": "offered:gone"}],
                    triggers=[{**TRIGGER, "sync": "offered:same"}],
                ),
            ),
            "offered:gone",
        ),
        (
            lambda spec: (
                entry(1, deduplicate=False)(spec),
                spec.update(
                    windows=[{**WINDOW, "aggregation": "count"}],
                    triggers=[{**TRIGGER, "sync": "offered:gone"}],
                ),
            ),
            "offered:gone",
        ),
        (entry(1, minPeers=7), "needs 9 peers"),
        (entry(1, requiredTags=["gpu"]), "task work needs a peer with tags [gpu]"),
    ],
)
def test_a_job_that_no_worker_can_run_is_refused_and_the_old_job_goes_on(
    running: tuple[Cluster, JobId], change: Callable[[Spec], object], reported: str
) -> None:
    cluster, job = running
    with pytest.raises(JobRefused) as refused:
        cluster.submit(after(job, change))
    assert reported in str(refused.value)
    assert still_runs(cluster, job)


@pytest.mark.slow
def test_a_worker_that_hangs_over_it_is_named_and_goes_on_with_its_work_and_other_checks(
    running: tuple[Cluster, JobId], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, job = running
    lifecycles = [{"task": "all", "calls": "offered:hangs"}]
    with monkeypatch.context() as patch:
        patch.setattr(preflight, "ANSWER_TIMEOUT_S", 2.0)
        with pytest.raises(Unavailable, match=r"no answer from \S+:\d+, \S+:\d+ within 2 s"):
            cluster.submit(after(job, lambda spec: spec.update(lifecycles=lifecycles)))
    with pytest.raises(JobRefused, match="offers no functions of other"):
        cluster.submit(after(job, entry(1, fn="other:same")))
    assert still_runs(cluster, job)
    assert all(worker.running for worker in cluster.workers)


def test_the_command_line_shows_the_plan_and_fills_in_the_old_job(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """A worker that came later knows the function; those before it do not."""
    (tmp_path / "offered.py").write_text(OFFERED)
    with Cluster(zookeeper.address, tmp_path, tmp_path / "offered.py") as cluster:
        cluster.start_workers(1, PEERS)
        job = cluster.submit(manifest(SPEC))
        cluster.await_ready(job)
        (tmp_path / "offered.py").write_text(OFFERED + "\n\ndef added(segment):\n    return None\n")
        cluster.start_workers(1, PEERS)
        bad, good, wrong = (tmp_path / f"{name}.yaml" for name in ("bad", "good", "wrong"))
        answers = {"upgrade": {"tasks": {"read": "initialize"}}}
        changed = copy.deepcopy(SPEC)
        changed["catalog"][1]["fn"] = "offered:added"
        bad.write_text(yaml.safe_dump(manifest(changed)))
        good.write_text(yaml.safe_dump(manifest({**SPEC, **answers})))
        wrong.write_text(yaml.safe_dump(manifest({**SPEC, "upgrade": {"from": "other"}})))

        dry = onyx(cluster.settings, "submit", bad, "--upgrade", job, "--dry-run")
        assert dry.returncode == 2, dry.stderr
        assert "offered has no 'added'" in dry.stdout
        assert "1 of 2 workers" in dry.stdout
        refused = onyx(cluster.settings, "submit", bad, "--upgrade", job)
        assert refused.returncode == 1
        assert "offered has no 'added'" in refused.stderr
        contradiction = onyx(cluster.settings, "submit", wrong, "--upgrade", job)
        assert contradiction.returncode == 2
        assert "spec.upgrade.from: is 'other'" in contradiction.stderr
        assert still_runs(cluster, job)

        dry = onyx(cluster.settings, "submit", good, "--upgrade", job, "--dry-run", "--json")
        assert dry.returncode == 0, dry.stdout + dry.stderr
        assert json.loads(dry.stdout)["problems"] == []
        new = JobId(onyx(cluster.settings, "submit", good, "--upgrade", job).stdout.strip())
        cluster.await_ready(new)
        assert cluster.replica.killed_jobs == (job,)


KEPT = """
from onyx.processors import Processor

def seen(segment, state):
    state.seen = (state.seen or 0) + 1
    return segment

def others(segment, state):
    return seen(segment, state)

class Passes(Processor):
    def process_item(self, ordinal, item):
        return self.try_emit(item)
"""
GROUPED = {"groupByKey": "n", "minPeers": 1, "fluxPolicy": "continue"}
EVERY_KIND: Spec = {
    "guarantee": "exactly-once",
    "workflow": [["read", "state"], ["read", "processor"], ["state", "join"],
                 ["processor", "join"], ["join", "windows"], ["windows", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "generator", "batchSize": 10,
         "watermarkKey": "n", "options": {"ratePerSecond": 50}},
        {"name": "state", "type": "function", "fn": "offered:seen", "state": {"seen": "value[int]"},
         **GROUPED},
        {"name": "processor", "type": "function", "processor": "offered:Passes", **GROUPED},
        {"name": "join", "type": "join", "left": {"task": "state", "key": "n", "at": "n"},
         "right": {"task": "processor", "key": "n", "at": "n", "prefix": "r_"}, "how": "inner",
         "within": {"before": "1s", "after": "1s"}},
        {"name": "windows", "type": "reduce", **GROUPED},
        {"name": "write", "type": "output", "plugin": "blackhole"},
    ],
    "windows": [{"id": "w", "task": "windows", "type": "global", "aggregation": "count"}],
    "triggers": [{"windowId": "w", "type": "segment", "threshold": [1, "element"],
                  "refinement": "accumulating", "emit": "rows"}],
}  # fmt: skip


def kept(number: int, **keys: Any) -> Spec:
    """The job with each kind of state, with other keys of one entry."""
    spec = copy.deepcopy(EVERY_KIND)
    spec["catalog"][number].update(keys)
    return manifest(spec)


@pytest.mark.slow
def test_every_kind_of_state_is_upgraded_or_refused_with_the_reason(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    (tmp_path / "offered.py").write_text(KEPT)
    with Cluster(zookeeper.address, tmp_path, tmp_path / "offered.py") as cluster:
        cluster.start_workers(1, 8)
        first = cluster.submit(kept(0))
        cluster.await_ready(first)
        second = cluster.submit_after(kept(0), first)
        third = cluster.submit_after(kept(1, fn="offered:others"), second)
        for why, number, keys in [
            (
                "state seen was value[int] and is value[float]",
                1,
                {"state": {"seen": "value[float]"}},
            ),
            ("grouping was n and is m", 2, {"groupByKey": "m"}),
            ("how was inner and is left", 3, {"how": "left"}),
            ("grouping was n and is r_n", 4, {"groupByKey": "r_n"}),
        ]:
            with pytest.raises(JobRefused, match=re.escape(why)):
                cluster.submit_after(kept(number, **keys), third)
        assert still_runs(cluster, third)
        assert cluster.replica.killed_jobs == (first, second)
