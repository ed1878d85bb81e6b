"""What a user does: apply a job, look at it, delete it."""

from __future__ import annotations

import pytest
from tests.e2e.kube import CommandError
from tests.e2e.release import FLIGHTS, WITH_SPARK, Release

VALUES = WITH_SPARK


def test_the_flights_job_completes_with_the_counts_of_pandas(release: Release) -> None:
    release.prepare_flights()

    release.kube.kubectl("apply", "--filename", str(FLIGHTS / "job.yaml"))

    release.await_completed("flights")
    release.kube.wait("oj/flights", "Completed")
    reported = release.kube.kubectl(
        "exec", release.worker(), "--", "python", "/app/check.py", "/data/out"
    )
    assert "counts agree with pandas" in reported
    columns = release.kube.kubectl("get", "oj", "flights")
    assert "Completed" in columns
    release.kube.kubectl("delete", "oj", "flights", "--timeout=60s")


def test_the_windows_of_the_flights_equal_those_of_pandas(release: Release) -> None:
    release.prepare_flights()

    release.kube.kubectl("apply", "--filename", str(FLIGHTS / "windows.yaml"))

    release.await_completed("flights-windows")
    reported = release.kube.kubectl(
        "exec", release.worker(), "--", "python", "/app/check_windows.py", "/data/out"
    )
    assert "windows agree with pandas" in reported
    release.kube.kubectl("delete", "oj", "flights-windows", "--timeout=60s")


def test_the_job_of_the_chart_passes(release: Release) -> None:
    assert "Phase:          Succeeded" in release.kube.helm("test", "onyx", "--timeout", "4m")


def test_a_deleted_job_is_killed(release: Release) -> None:
    squares = release.start_squares("endless", per_second=100)
    squares.await_some()

    release.kube.kubectl("delete", "oj", "endless", "--timeout=60s")

    (job,) = [each for each in release.jobs_by_log() if each["name"] == "endless"]
    assert job["state"] == "killed"


def test_a_job_that_is_wrong_is_refused_as_installed_and_runs_once_it_is_right(
    release: Release,
) -> None:
    squares = release.start_squares("first-wrong", segments=1_000, per_second=1_000)
    right = squares.manifest(per_second=1_000)
    right["metadata"]["name"] = "wrong"
    wrong = {**right, "spec": {**right["spec"], "workflow": [["numbers", "nowhere"]]}}

    with pytest.raises(CommandError, match="nowhere"):
        release.kube.apply(wrong)

    release.kube.apply(right)
    release.await_completed("wrong")
    squares.assert_whole()


def test_the_api_server_refuses_what_the_schema_forbids(release: Release) -> None:
    manifest = release.start_squares("fine", segments=10, per_second=10).manifest(10)
    manifest["metadata"]["name"] = "not-fine"
    manifest["spec"]["catalog"][0]["batchSize"] = "many"

    try:
        release.kube.apply(manifest)
        reported = "nothing"
    except CommandError as error:
        reported = str(error)

    assert "batchSize" in reported
    release.await_completed("fine")
