"""Whole jobs through a real cluster in this process: ZooKeeper, peers, channels in memory.

Cases whose lifecycles are described in words get them from `LIFECYCLES`. What windows hold is what
their triggers say for the last time. One cluster serves all cases of a file with the same peer
configuration.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from tests.conformance import manifests
from tests.conformance.adapters import integration_functions as functions
from tests.conformance.words import function, predicate
from tests.support.jobs.yaml_jobs import until

from onyx import api
from onyx.client.statuses import JobStatus
from onyx.plugins.channel import open_channel
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx.testing import TestEnv, with_test_env

MODULE = functions.__name__
LIFECYCLES = {
    "learn-4-1": ("times-three", "sees_batches"),
    "learn-4-2": ("identity", "keeps_maximum"),
    "learn-4-3": ("identity", "injects_state"),
    "example-parameterized": ("adder", "injects_42"),
    "exception-data-of-tail-task": ("all", "kills"),
    "handler-sees-function-exception": ("f", "kills"),
    "handler-sees-flow-predicate-exception": ("f", "kills"),
    "restart-through-every-phase": ("f", "restarts"),
}
PARTS = ("workflow", "catalog", "flow_conditions", "task_scheduler", "windows", "triggers")
_RENAMED = {"fn:raise": "raises"}
Segments = list[dict[str, Any]]


_running = ExitStack()


@functools.cache
def _cluster(fn_params: str = "{}") -> TestEnv:
    """One for each peer configuration that a case asks for."""
    settings = Settings(fn_params=json.loads(fn_params))
    return _running.enter_context(with_test_env(0, modules=[MODULE], settings=settings))


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    try:
        return _check(case)
    finally:
        if case is document["cases"][-1]:
            _running.close()
            _cluster.cache_clear()


def _check(case: dict[str, Any]) -> str | None:
    if case["id"] == "cluster-one-job":
        case = {**case, **_one_job()}
    elif "steps" in case or "n_groups" in case:
        return _members(case)
    functions.reset()
    env = _cluster(json.dumps(case.get("peer_config", {}).get("onyx.peer/fn-params", {})))
    api.start_peers(case["n_peers"], env.group)
    try:
        until(env, lambda replica: len(replica.peers) == case["n_peers"])
        return _run(env, case)
    finally:
        # As the replica has them: a peer that was restarted is another one now.
        for peer in env.client.replica().peers:
            env.group.remove_peer(peer)
        until(env, lambda replica: not replica.peers)


def _members(case: dict[str, Any]) -> str | None:
    """Groups and peers that come and go, and the log collected meanwhile; no jobs."""
    with ExitStack() as stack:
        env = stack.enter_context(with_test_env(0, modules=[MODULE]))
        groups = [env.group]
        for _ in range(case.get("n_groups", 1) - 1):
            groups.append(api.start_peer_group(env.settings))
            stack.callback(api.shutdown_peer_group, groups[-1])
        steps = case.get("steps") or [{"start_peers": case.get("n_peers", 0)}]
        peers: list[api.Peer] = []
        for step in steps:
            peers += api.start_peers(step.get("start_peers", 0), env.group)
            stopped, peers = peers[: step.get("stop_peers", 0)], peers[step.get("stop_peers", 0) :]
            api.shutdown_peers(stopped)
            if step.get("gc"):
                api.gc(env.settings)
        expected = case["expected"]
        until(env, lambda replica: _has(replica, expected))
    return None


def _has(replica: Replica, expected: dict[str, Any]) -> bool:
    reported: dict[str, Any] = {
        "peers": len(replica.peers),
        "groups": len(replica.groups),
        "prepared": dict(replica.prepared),
        "accepted": dict(replica.accepted),
        "pairs_keys_equal_values": set(replica.pairs) == set(replica.pairs.values()),
    }
    return all(reported[key] == wanted for key, wanted in expected.items())


def _run(env: TestEnv, case: dict[str, Any]) -> str | None:
    outputs = {
        entry["onyx/name"]: open_channel(f"{case['id']}-{entry['onyx/name']}")
        for entry in case["catalog"]
        if entry["onyx/type"] == "output"
    }
    job = _manifest(case)
    with ThreadPoolExecutor(10) as pool:
        submitted = set(pool.map(lambda _: env.submit(job), range(case.get("submissions", 1))))
    if len(submitted) != 1:
        return f"{len(submitted)} jobs"
    (job_id,) = submitted
    counts: list[int] = []

    def note(replica: Replica) -> None:
        if replica.run(job_id).allocation and not counts:
            counts.extend(len(each) for each in replica.run(job_id).allocation.values())

    env.client.wait(job_id, 60.0, progress=note)
    found = {name: channel.take() for name, channel in outputs.items()}
    return _compare(case, env.client.status(job_id), found, counts)


def _compare(
    case: dict[str, Any], status: JobStatus, found: dict[str, Segments], counts: list[int]
) -> str | None:
    expected = case["expected"]
    # The original has one word for a job that somebody kills and one that a task ends.
    state = "killed" if status.state == "failed" else status.state
    if state != expected.get("job_state", "completed"):
        return f"the job is {status.state}: {status.exception}"
    compare = expected.get("compare", "multiset")
    for task, wanted in expected.get("outputs", {}).items():
        if in_order(found[task], compare) != in_order(segments_of(wanted), compare):
            return f"{task} got {found[task][:20]}"
    checks: list[tuple[Any, Any]] = []
    if "recorded" in expected:
        wanted = segments_of(expected["recorded"])
        checks.append((in_order(functions.recorded, "set"), in_order(wanted, "set")))
    for task, windows in expected.get("window_contents", {}).items():
        for window, extents in windows.items():
            held = functions.extents.get((task, window), {})
            checks.append((in_order([*held.values()], "set"), in_order([*extents.values()], "set")))
    if "stored_exception" in expected:
        reported = status.exception or {}
        checks.append((reported.get("message"), expected["stored_exception"]["message"]))
        offending = expected["stored_exception"].get("data", {}).get("offending-task")
        checks.append((reported.get("task"), offending or reported.get("task")))
    if "handler_called" in expected:
        checks.append((bool(functions.handled), expected["handler_called"]))
    if "count_set" in expected:
        checks.append((sorted(set(counts)), expected["count_set"]))
        checks.append((sum(counts), expected["total"]))
    if "after_batch_sees" in case:
        wanted = case["after_batch_sees"]
        checks.append((in_order(functions.seen, "multiset"), in_order(wanted, "multiset")))
    if "lifecycle_state_after" in case:
        checks.append((functions.state[0], case["lifecycle_state_after"]))
    wrong = [f"expected {wanted}, got {got}" for got, wanted in checks if got != wanted]
    return "; ".join(wrong) or None


def in_order(segments: Sequence[Any], compare: str) -> Sequence[str]:
    """Segments as the case compares them: a list, a multiset or a set."""
    texts = [json.dumps(segment, sort_keys=True) for segment in segments]
    if compare == "list":
        return texts
    return sorted(set(texts)) if compare == "set" else sorted(texts)


def segments_of(value: Any) -> Segments:
    """The segments of a case, which may be written as ranges and repeats."""
    if isinstance(value, list):
        return value
    if "$range" in value:
        each = value["$range"]
        return [{each["key"]: n} for n in range(each["start"], each["stop"])]
    if "$concat" in value:
        return [segment for part in value["$concat"] for segment in segments_of(part)]
    repeat = value["$repeat"]
    return segments_of(repeat["segments"]) * int(repeat["times"])


def _describe(case: dict[str, Any]) -> None:
    """Functions of the case that are not written down become what their words say."""
    conditions = json.dumps(case.get("flow_conditions") or [])
    for name, words in case.get("functions", {}).items():
        ours = _named(manifests.function(name)).partition(":")[2]
        if "<" in name or hasattr(functions, ours):
            continue
        make = predicate if f'"{name}"' in conditions else function
        found = make(words)
        found.__module__, found.__name__, found.__qualname__ = MODULE, ours, ours
        setattr(functions, ours, found)


def spec_of(case: dict[str, Any]) -> dict[str, Any]:
    """The spec of the job of a case, but for the plugins, which the cases leave out."""
    _describe(case)
    job = {key: case[key] for key in PARTS if key in case}
    spec: dict[str, Any] = _named(
        manifests.spec({key.replace("_", "-"): value for key, value in job.items()})
    )
    for entry in spec["catalog"]:
        if case["id"] == "learn-4-3" and "fn" in entry:
            entry["fn"] = f"{MODULE}:summing"
    for trigger in spec.get("triggers", ()):
        trigger.setdefault("refinement", "accumulating")
        trigger["sync"] = f"{MODULE}:keep_extent"
    if spec.get("windows"):
        spec["guarantee"] = "exactly-once"
    if case["id"] in LIFECYCLES:
        task, calls = LIFECYCLES[case["id"]]
        spec["lifecycles"] = [{"task": task, "calls": f"{MODULE}:{calls}"}]
    if "submissions" in case:
        spec["metadata"] = {"jobId": case["id"]}
    return spec


def _manifest(case: dict[str, Any]) -> dict[str, Any]:
    spec = spec_of(case)
    for entry in spec["catalog"]:
        _fill(entry, case)
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": case["id"].replace(".", "-")},
        "spec": spec,
    }


def _fill(entry: dict[str, Any], case: dict[str, Any]) -> None:
    options = entry.setdefault("options", {})
    if entry["type"] == "input":
        source = open_channel(f"{case['id']}-{entry['name']}")
        source.put(*segments_of(case["inputs"][entry["name"]]))
        source.close()
        entry["plugin"] = "channel"
        options["channel"] = source.name
    elif entry["type"] == "output":
        entry["plugin"] = "channel"
        options["channel"] = f"{case['id']}-{entry['name']}"


def _named(value: Any) -> Any:
    """`fn:even_error?` as the function of the module that stands for the case's."""
    if isinstance(value, dict):
        return {key: _named(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_named(each) for each in value]
    if isinstance(value, str) and value.startswith("fn:"):
        return f"{MODULE}:{_RENAMED.get(value, value.removeprefix('fn:').removesuffix('?'))}"
    return value


def _one_job() -> dict[str, Any]:
    catalog = [
        {"onyx/name": "a", "onyx/type": "input", "onyx/batch-size": 1},
        {"onyx/name": "b", "onyx/type": "function", "onyx/fn": "fn/identity", "onyx/batch-size": 1},
        {"onyx/name": "c", "onyx/type": "output", "onyx/batch-size": 1},
    ]
    return {"workflow": [["a", "b"], ["b", "c"]], "catalog": catalog, "inputs": {"a": [{"n": 1}]}}
