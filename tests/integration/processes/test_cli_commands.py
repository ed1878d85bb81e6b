"""The command as a person or a script uses it: output, exit codes, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.patience import WAIT_S, rounds
from tests.support.servers.ports import free_port
from tests.support.servers.processes import ran, workers_of

from onyx.cli.local_peers import cores
from onyx.log.server.process import ZooKeeperServer

BAD = Path(__file__).parents[2] / "unit" / "model" / "bad"
COMMANDS = (
    "init",
    "run",
    "validate",
    "submit",
    "kill",
    "suspend",
    "resume",
    "drain",
    "jobs",
    "log",
)
COMMANDS += ("state", "replica", "gc", "worker", "log-server", "zookeeper")
pytestmark = pytest.mark.server

TASKS = """\
def inc(segment):
    return {**segment, "n": segment["n"] + 1}


def boom(segment):
    raise ValueError("boom at " + str(segment["n"]))


def make(position):
    return {"n": position}
"""
SIZES = """
import os


def size(segment):
    return {"size": len(segment["line"]), "process": os.getpid()}
"""
JOB = """\
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: trivial}
spec:
  workflow: [[read, work], [work, write]]
  catalog:
    - {name: read, type: input, plugin: sequence, batchSize: 10,
       options: {segments: [{"n": 1}, {"n": 2}]}}
    - {name: work, type: function, fn: "my_tasks:inc", batchSize: 10}
    - {name: write, type: output, plugin: blackhole, batchSize: 10}
"""
ENDLESS = JOB.replace("sequence, ", "generator, segmentsPerSecondMax: 1000, ").replace(
    'segments: [{"n": 1}, {"n": 2}]', "segments: 1000000000000"
)
"""No faster than a person reads, so that it takes no processor from other tests."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder: jobs, and their functions beside them."""
    (tmp_path / "my_tasks.py").write_text(TASKS)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "boom.yaml").write_text(JOB.replace(":inc", ":boom"))
    (tmp_path / "endless.yaml").write_text(ENDLESS)
    return tmp_path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-P", "-m", "onyx.cli", *map(str, arguments)]


def onyx(folder: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `onyx ...` in a folder to its end."""
    return ran(folder, *arguments, timeout_s=WAIT_S, environment=environment)


def test_the_help_of_every_command_says_what_it_does_in_a_whole_sentence(tmp_path: Path) -> None:
    listing = onyx(tmp_path, "--help").stdout
    assert "..." not in listing.split("commands:")[1]
    for name in COMMANDS:
        assert name in listing


def test_validate_tells_all_problems_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(
        JOB.replace("batchSize: 10", "batchSise: 10", 1).replace("[work, write]", "[work, wrote]")
    )
    done = onyx(tmp_path, "validate", "bad.yaml")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "bad.yaml:7: spec.catalog[0].batchSise" in done.stderr
    assert "wrote" in done.stderr
    assert "Traceback" not in done.stderr
    assert int(done.stderr.splitlines()[-1].split()[0]) >= 2


def test_validate_answers_programs_in_json(folder: Path) -> None:
    good = onyx(folder, "validate", "--json", "job.yaml", "--modules", "my_tasks")
    answer = json.loads(good.stdout)
    assert (good.returncode, answer["valid"]) == (0, True)
    assert answer["peers_needed"] == 3
    assert answer["peers_by_task"] == {"read": 1, "work": 1, "write": 1}
    bad = onyx(folder, "validate", "--json", BAD / "cycle.yaml")
    answer = json.loads(bad.stdout)
    assert (bad.returncode, answer["valid"]) == (2, False)
    assert {"path", "message", "hint", "where"} == set(answer["problems"][0])


def test_validate_looks_up_functions_as_run_does(folder: Path) -> None:
    (folder / "typo.yaml").write_text(JOB.replace(":inc", ":incc"))
    (folder / "elsewhere.yaml").write_text(JOB.replace("my_tasks:", "not_here:"))
    (folder / "arity.yaml").write_text(JOB.replace(":inc", ":pair"))
    with (folder / "my_tasks.py").open("a") as file:
        file.write("\n\ndef pair(a, segment):\n    return segment\n")
    typo, elsewhere, arity = (
        onyx(Path("/"), "validate", folder / f"{name}.yaml")
        for name in ("typo", "elsewhere", "arity")
    )
    assert (typo.returncode, elsewhere.returncode, arity.returncode) == (2, 0, 2)
    assert "did you mean inc? [task work]" in typo.stderr
    assert "elsewhere.yaml:9: spec.catalog[1].fn: module not_here is not here" in elsewhere.stderr
    assert "my_tasks:pair is called as fn(segment), but missing" in arity.stderr
    assert "arity.yaml:9: spec.catalog[1].fn" in arity.stderr


def test_validate_knows_a_cluster(tmp_path: Path) -> None:
    text = "apiVersion: onyx.dev/v1beta1\nkind: OnyxCluster\nmetadata: {name: onyx}\nspec: {}\n"
    (tmp_path / "good.yaml").write_text(text)
    (tmp_path / "bad.yaml").write_text(text.replace("{}", "{replica: 2}"))
    good = onyx(tmp_path, "validate", "good.yaml")
    assert (good.returncode, good.stdout) == (0, "good.yaml: cluster onyx is valid\n")
    bad = onyx(tmp_path, "validate", "bad.yaml")
    assert bad.returncode == 2
    assert "bad.yaml:4: spec.replica: is not a key of a cluster" in bad.stderr


def test_validate_looks_up_functions_beside_the_job_file(folder: Path, tmp_path: Path) -> None:
    (folder / "typo.yaml").write_text(JOB.replace(":inc", ":incc"))
    done = onyx(Path("/"), "validate", folder / "typo.yaml", "--modules", "my_tasks")
    assert done.returncode == 2
    assert "spec.catalog[1].fn" in done.stderr
    assert "inc" in done.stderr


POISONED = """\
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: poisoned}
spec:
  workflow: [[read, work], [work, write], [work, bad]]
  catalog:
    - {name: read, type: input, plugin: generator, options: {segments: 6000, fn: "my_tasks:make"}}
    - {name: work, type: function, fn: "my_tasks:slow", deadLetter: bad}
    - {name: write, type: output, plugin: blackhole}
    - {name: bad, type: output, plugin: blackhole}
  flowConditions:
    - {from: work, to: [write], predicate: [">", amuont, 1]}
"""
SLOW = """

def slow(segment):
    import time
    time.sleep(0.001)
    if segment["n"] % 2:
        raise ValueError("odd")
    return segment
"""


def test_a_run_with_all_segments_in_dead_letters_is_no_success(folder: Path) -> None:
    work, bad = "batchSize: 10}", "{name: bad, type: output, plugin: blackhole}"
    lost = JOB.replace("my_tasks:inc", "my_tasks:boom").replace(
        'boom", ' + work, 'boom", deadLetter: bad}\n    - ' + bad
    )
    (folder / "lost.yaml").write_text(lost)
    done = onyx(folder, "run", "lost.yaml")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 of 2 segments of work went to bad; first error: ValueError: boom" in done.stdout
    assert "job trivial has no result: all segments of work failed" in done.stderr


@pytest.mark.slow
def test_a_run_says_what_did_not_go_on_and_counts_right_after_a_kill(folder: Path) -> None:
    (folder / "poisoned.yaml").write_text(POISONED)
    with (folder / "my_tasks.py").open("a") as file:
        file.write(SLOW)
    arguments = ("run", "--json", "--processes", "2", "--fail-on-dead-letters", "10")
    running = subprocess.Popen(
        command(*arguments, "poisoned.yaml"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    said = []
    for line in running.stderr:
        said.append(line)
        found = workers_of(psutil.Process(running.pid))
        if re.search(r"[1-9][\d,]* segments read", line) and len(found) == 2:
            found[0].kill()
            break
    out, err = running.communicate(timeout=WAIT_S * 2)
    assert running.returncode == 1, err
    answer = json.loads(out)
    rows = {row["task"]: row for row in answer["tasks"]}
    read, work = rows["read"], rows["work"]
    assert answer["state"] == "completed"
    assert read["completed"] == 6000
    assert read["retried"] == read["segments_in"] - 6000 > 0
    assert work["dead_letters"] >= 3000 <= work["unmatched"]
    assert "went to bad; first error: ValueError: odd (my_tasks.py, line" in answer["outcomes"][0]
    assert "matched no flow condition" in answer["outcomes"][1]
    assert "no key 'amuont'" in answer["outcomes"][1]
    assert "--fail-on-dead-letters" in err


@pytest.mark.slow
def test_ctrl_c_ends_a_run_whose_function_hangs_and_says_what_it_waits_for(folder: Path) -> None:
    (folder / "my_tasks.py").write_text("import time\n\ndef inc(segment):\n    time.sleep(600)\n")
    running = subprocess.Popen(
        command("run", "job.yaml"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert running.stdout is not None
    for line in running.stdout:
        if "2 segments read" in line:
            break
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=WAIT_S)
    assert running.returncode == 130
    assert "waiting for a worker process to leave: in apply-fn of task work of job" in out


def test_a_run_that_refuses_its_job_leaves_no_process_and_no_folder(folder: Path) -> None:
    """ZooKeeper starts, and what forks workers imports, while the job is checked."""
    (folder / "typo.yaml").write_text(JOB.replace(":inc", ":incc"))
    scratch = folder / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        command("run", "typo.yaml"),
        cwd=folder,
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "spec.catalog[1].fn: my_tasks:incc" in done.stderr
    assert "did you mean inc?" in done.stderr
    assert list(scratch.iterdir()) == []
    assert [each for each in psutil.process_iter() if _is_of(each, scratch)] == []


def _is_of(process: psutil.Process, scratch: Path) -> bool:
    try:
        return process.environ().get("TMPDIR") == str(scratch)
    except psutil.Error:
        return False


def test_a_run_refuses_a_module_that_does_not_exist(folder: Path) -> None:
    (folder / "module.yaml").write_text(JOB.replace("my_tasks:inc", "my_task:inc"))
    done = onyx(folder, "run", "module.yaml")
    assert done.returncode == 2
    assert "'my_task' cannot be imported" in done.stderr


def test_an_unreachable_zookeeper_is_told_in_one_line(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = onyx(tmp_path, "jobs", "--zookeeper", address, ONYX_ZOOKEEPER_CONNECT_TIMEOUT_S="0.3")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: no ZooKeeper answered at {address} within 0.3 s")
    assert len(done.stderr.splitlines()) == 1


def test_too_few_peers_are_told(folder: Path) -> None:
    done = onyx(folder, "run", "job.yaml", "--peers", 2)
    assert done.returncode == 2
    assert "needs 3 peers, --peers gives 2" in done.stderr


def test_run_shows_what_was_done(folder: Path) -> None:
    """Also with an option that looks like a function and is something else."""
    option = 'batchSize: 10, options: {queue: "localhost:orders"}}'
    (folder / "job.yaml").write_text(JOB.replace('inc", batchSize: 10}', f'inc", {option}'))
    assert "orders" in (folder / "job.yaml").read_text()
    done = onyx(folder, "run", "job.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "job trivial is completed"
    read = next(line for line in done.stdout.splitlines() if line.startswith("│ read"))
    assert [cell.strip() for cell in read.split("│")[1:6]] == ["read", "2", "2", "2", "0"]
    assert done.stderr == ""


@pytest.mark.skipif(cores() < 2, reason="more processes are for more cores")
def test_a_run_over_large_files_has_several_processes_and_says_so(folder: Path) -> None:
    """A line is a megabyte, so that there is little to do for many bytes."""
    with (folder / "my_tasks.py").open("a") as file:
        file.write(SIZES)
    (folder / "in").mkdir()
    for number in range(2):
        (folder / f"in/{number}.txt").write_text(("x" * 1_000_000 + "\n") * 26)
    read = 'files, options: {path: "in/*", format: text}}'
    write = "files, options: {path: out, format: jsonl}}"
    job = re.sub(r"sequence, .*\n.*", read, JOB).replace("blackhole, batchSize: 10}", write)
    (folder / "job.yaml").write_text(job.replace(":inc", ":size"))
    done = onyx(folder, "run", "job.yaml")
    assert done.returncode == 0, done.stderr
    assert "2 processes for 2 files of 50 MiB (--processes 1 for one)" in done.stderr
    lines = (line for part in folder.glob("out/*") for line in part.read_text().splitlines())
    rows = [json.loads(line) for line in lines]
    assert [row["size"] for row in rows] == [1_000_000] * 52
    assert len({row["process"] for row in rows}) == 2


def test_a_job_that_fails_says_which_task_and_why(folder: Path) -> None:
    done = onyx(folder, "run", "--json", "boom.yaml")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["state"] == "failed"
    assert answer["exception"]["message"] == "boom at 1"
    assert "my_tasks:boom raised ValueError: boom at 1" in answer["exception"]["detail"]
    assert "boom at 1" not in done.stderr, "it is said once"
    assert next(row for row in answer["tasks"] if row["task"] == "work")["errors"] == 2


@pytest.mark.slow
def test_a_run_that_takes_too_long_is_given_up(folder: Path) -> None:
    done = onyx(folder, "run", "endless.yaml", "--timeout", 1)
    assert done.returncode == 1
    assert "had not ended after 1 s" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)],
    ids=lambda each: each.name,
)
def test_an_interrupted_run_leaves_nothing_behind(
    folder: Path, number: signal.Signals, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with subprocess.Popen(
        command("run", "endless.yaml", "--processes", 2, "--log-level", "INFO"),
        cwd=folder,
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "running" in line)
        assert "segments read, " in line, "progress for a log"
        process.send_signal(number)
        rest = process.communicate(timeout=WAIT_S)[0]
    assert process.returncode == 130, rest
    assert list(scratch.iterdir()) == []


def test_a_kept_log_has_what_a_killed_run_left_and_a_console_shows_it(folder: Path) -> None:
    """The next run in that log ends the job of the killed one, which would take its peers."""
    pytest.importorskip("starlette")
    words = command("run", "endless.yaml", "--keep", "log", "--console")
    with subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True) as killed:
        assert killed.stderr is not None
        address = killed.stderr.readline().split(" at ")[1].strip()
        while "running" not in (page := _fetched(address)):
            assert killed.poll() is None, page
        killed.kill()
    done = onyx(folder, "run", "job.yaml", "--keep", "log")
    assert (done.returncode, done.stderr) == (0, "")
    with subprocess.Popen(
        command("console", "--kept", "log", "--port", 0),
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as shown:
        assert shown.stdout is not None
        page = _fetched(shown.stdout.readline().split(" at ")[1].strip())
        shown.terminate()
    assert "completed" in page
    assert "killed" in page
    assert shown.returncode == 0


LASTING = ENDLESS.replace("1000000000000", "900").replace("PerSecondMax: 1000", "PerSecondMax: 300")
LASTING = LASTING.replace("spec:", "spec:\n  guarantee: exactly-once")
LASTING = LASTING.replace("blackhole,", "files, options: {path: out, rollSegments: 50},")


def test_a_run_that_is_killed_with_all_its_processes_is_resumed_and_writes_each_segment_once(
    folder: Path,
) -> None:
    (folder / "lasting.yaml").write_text(LASTING)
    words = ("run", "lasting.yaml", "--keep", "log")
    with subprocess.Popen(command(*words), cwd=folder, stdout=subprocess.PIPE) as killed:
        next(1 for _ in rounds() if len(list((folder / "out").glob("*.jsonl"))) > 1)
        killed.kill()
    before = {each.name for each in (folder / "out").glob("*.jsonl")}
    done = onyx(folder, *words, "--resume")
    assert (done.returncode, done.stderr) == (0, "")
    parts = list((folder / "out").glob("*.jsonl"))
    assert _written(parts) == list(range(1, 901))
    assert before < {each.name for each in parts}, "what was published stays"
    again = onyx(folder, *words, "--resume")
    assert again.returncode == 2
    assert "no job was interrupted in log: leave --resume out" in again.stderr


def test_a_job_that_its_user_interrupts_stays_for_its_file_and_no_other(folder: Path) -> None:
    (folder / "lasting.yaml").write_text(LASTING)
    words = ("run", "lasting.yaml", "--keep", "log")
    with subprocess.Popen(
        command(*words), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as interrupted:
        next(1 for _ in rounds() if (folder / "out").is_dir())
        interrupted.send_signal(signal.SIGINT)
        assert "--resume lets it go on" in interrupted.communicate(timeout=WAIT_S)[1]
    other = onyx(folder, "run", "job.yaml", "--keep", "log", "--resume")
    assert other.returncode == 2
    assert "interrupted in log (trivial) is not the one of the file" in other.stderr
    done = onyx(folder, *words, "--resume")
    assert (done.returncode, done.stderr) == (0, "")
    assert _written((folder / "out").glob("*.jsonl")) == list(range(1, 901))


def test_to_resume_needs_a_folder(folder: Path) -> None:
    done = onyx(folder, "run", "job.yaml", "--resume")
    assert done.returncode == 2
    assert "say with --keep in which one" in done.stderr


def _written(parts: Iterable[Path]) -> list[int]:
    lines = [line for each in parts for line in each.read_text().splitlines()]
    return sorted(json.loads(line)["n"] for line in lines)


def _fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=WAIT_S) as answer:
        return str(answer.read().decode())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), port=free_port()) as server:
        yield server


def test_a_cluster_is_used_from_the_command_line(folder: Path, server: ZooKeeperServer) -> None:
    there = {"ONYX_ZOOKEEPER_ADDRESS": server.address, "ONYX_TENANCY_ID": "cli"}
    assert "no jobs yet" in onyx(folder, "jobs", **there).stdout
    worker = _worker(folder, there)
    try:
        done = onyx(folder, "submit", "--wait", "--json", "job.yaml", "job.yaml", **there)
        assert done.returncode == 0, done.stderr
        submitted = [json.loads(line)["job"] for line in done.stdout.splitlines()]
        assert len(set(submitted)) == 2
        assert onyx(folder, "submit", "job.yaml", "nowhere.yaml", **there).returncode == 2
        endless = onyx(folder, "submit", "endless.yaml", **there).stdout.strip()
        _check_lifecycle(folder, there, endless)
        _check_options(folder, there, endless)
        _check_code(folder, there, endless)
        assert "killed" in onyx(folder, "kill", endless, **there).stdout
        refused = onyx(folder, "suspend", endless, **there)
        assert (refused.returncode, "was killed" in refused.stderr) == (2, True)
        listed = {each["id"]: each["state"] for each in _json(folder, "jobs", there)}
        assert listed.pop(endless) == "killed"
        other = listed.keys() - set(submitted)
        assert {listed[job] for job in submitted} == {"completed"}
        assert {listed[job] for job in other} == {"completed"}
        assert onyx(folder, "jobs", "nonsense", **there).returncode == 2
        _check_inspection(folder, there, endless)
        collected = json.loads(onyx(folder, "gc", "--json", **there).stdout)
        assert endless in collected["jobs"]
        assert "no jobs yet" in onyx(folder, "jobs", **there).stdout
    finally:
        worker.send_signal(signal.SIGTERM)
        output = worker.communicate(timeout=WAIT_S)[0]
    assert worker.returncode == 0, output
    joined = (
        f"joined tenancy cli of the log at {server.address} with 3 peers; modules: my_tasks; code: "
    )
    assert output.count(joined) == 1
    entries = onyx(folder, "log", "--json", **there).stdout.splitlines()
    last = [json.loads(line)["fn"] for line in entries][-1]
    assert last == "group-leave-cluster", "it left and was not found dead"


def _worker(folder: Path, there: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command("worker", "--peers", 3, "--modules", "my_tasks"),
        cwd=folder,
        env={**os.environ, **there},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _check_code(folder: Path, there: dict[str, str], job: str) -> None:
    """A worker that starts after an edit works with other code on the same job."""
    (before,) = _code(folder, there, job, hashes=1)
    with (folder / "my_tasks.py").open("a") as file:
        file.write("# edited\n")
    edited = _worker(folder, there)
    try:
        assert edited.stdout is not None
        warned = next(line for line in edited.stdout if "began with code" in line)
        found = _code(folder, there, job, hashes=2)
        shown = " ".join(onyx(folder, "jobs", job, **there).stdout.split())
    finally:
        edited.send_signal(signal.SIGTERM)
        edited.communicate(timeout=WAIT_S)
    (after,) = found - {before}
    assert "peers mixed trivial " in shown
    assert " its peers run different code: " in shown
    assert f", with {before} it began; restart the workers with the wrong one" in shown
    assert f"job {job} began with code {before}, and this worker runs it with {after}" in warned


def _code(folder: Path, there: dict[str, str], job: str, hashes: int) -> set[str]:
    """The hashes that `onyx jobs` shows, when there are so many."""
    for _ in range(60):
        (found,) = json.loads(onyx(folder, "jobs", "--json", job, **there).stdout)
        if len(found["code"]) == hashes:
            return set(found["code"])
    raise AssertionError(found)


def _check_lifecycle(folder: Path, there: dict[str, str], job: str) -> None:
    assert "is suspended: `onyx resume" in onyx(folder, "suspend", job, **there).stdout
    answer = json.loads(onyx(folder, "resume", "--json", job, **there).stdout)
    assert (answer["id"], answer["state"]) == (job, "running")
    other = onyx(folder, "submit", "endless.yaml", **there).stdout.strip()
    done = onyx(folder, "drain", "--wait", other, **there)
    assert (done.returncode, done.stdout) == (0, f"job {other} is completed\n"), "it had no peers"


def _check_options(folder: Path, there: dict[str, str], job: str) -> None:
    done = onyx(folder, "set", job, "read", "maxPending=500", "batchTimeout=5ms", **there)
    assert (done.returncode, "set: read batchTimeout=5 maxPending=500" in done.stdout) == (0, True)
    (listed,) = [each for each in _json(folder, "jobs", there) if each["id"] == job]
    assert listed["options"] == {"read": {"batchTimeout": 5, "maxPending": 500}}
    for wrong, why in (
        (("read", "minPeers=2"), "minPeers: cannot change while the job runs"),
        (("nowhere", "maxPending=5"), "nowhere: is no task of the job"),
        (("read", "maxPending"), "'maxPending' is not KEY=VALUE"),
    ):
        refused = onyx(folder, "set", job, *wrong, **there)
        assert (refused.returncode, why in refused.stderr) == (2, True), refused.stderr
    assert onyx(folder, "set", job, "read", "maxPending=default", **there).returncode == 0


def _check_inspection(folder: Path, there: dict[str, str], job: str) -> None:
    lines = onyx(folder, "log", "--json", **there).stdout.splitlines()
    entries = [json.loads(line) for line in lines]
    assert [entry["position"] for entry in entries] == list(range(len(entries)))
    submitted = next(each["position"] for each in entries if each["args"].get("id") == job)
    later = onyx(folder, "log", "--json", "--from", submitted, **there).stdout.splitlines()
    assert later == lines[submitted:]
    at = json.loads(onyx(folder, "replica", "--json", "--at", submitted, **there).stdout)
    before = json.loads(onyx(folder, "replica", "--json", "--at", submitted - 1, **there).stdout)
    assert (job in json.dumps(at), job in json.dumps(before)) == (True, False)
    beyond = onyx(folder, "replica", "--at", 99999, **there)
    assert (beyond.returncode, "ends before it" in beyond.stderr) == (2, True)


def _json(folder: Path, name: str, there: dict[str, str]) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = json.loads(onyx(folder, name, "--json", **there).stdout)
    return answer
