"""The JVM of a session: it ends with its worker at every moment, and says why it does not start. No
JVM runs here: a script in the place of `spark-submit` does what one would do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from tests.support.patience import WAIT_S

from onyx.errors import FailsAgain, OnyxError, Unavailable, UserFunctionError
from onyx.spark.session.jvm import Jvm, begin, launch, not_started

MUTE = """#!/bin/sh
echo $$ > {note}.new
mv {note}.new {note}
trap '' HUP INT TERM
while :; do sleep 600; done < /dev/null
"""
"""As a JVM that starts: nobody reads its standard input yet, and it has not said where it is."""
OPENS = """
import os, sys
from pathlib import Path
from onyx.spark.child.environment import environment
from onyx.spark.session.opening import open_session
scratch = Path(sys.argv[1])
os.environ |= environment("local[1]", str(scratch))
open_session("local[1]", "a worker's child", scratch, {})
"""


def spark_home(folder: Path, script: str) -> Path:
    submit = folder / "spark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(script)
    submit.chmod(0o700)
    return folder / "spark"


def test_a_jvm_that_starts_ends_with_a_worker_whose_scratch_folder_another_one_removes(
    tmp_path: Path,
) -> None:
    note, scratch = tmp_path / "pid", tmp_path / "scratch"
    scratch.mkdir()
    home = spark_home(tmp_path, MUTE.format(note=note))
    child = subprocess.Popen(
        [sys.executable, "-c", OPENS, str(scratch)], env={**os.environ, "SPARK_HOME": str(home)}
    )
    for _ in range(int(WAIT_S * 100)):
        if note.exists():
            break
        threading.Event().wait(0.01)
    jvm = psutil.Process(int(note.read_text()))

    child.send_signal(signal.SIGKILL)
    child.wait()
    shutil.rmtree(scratch)
    try:
        jvm.wait(WAIT_S)
    finally:
        if jvm.is_running():
            jvm.kill()


@pytest.mark.parametrize(
    ("code", "lines", "kind", "said"),
    [
        (
            1,
            [
                "WARNING: Using incubator modules: jdk.incubator.vector",
                "Invalid maximum heap size: -Xmx4gigs",
                "Error: Could not create the Java Virtual Machine.",
            ],
            FailsAgain,
            "Invalid maximum heap size: -Xmx4gigs",
        ),
        (
            1,
            [
                "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
                'Exception in thread "main" org.apache.spark.SparkException: Driver cores must be '
                "a positive number",
                "\tat org.apache.spark.deploy.SparkSubmitArguments.error(SparkSubmitArguments)",
            ],
            FailsAgain,
            "org.apache.spark.SparkException: Driver cores must be a positive number",
        ),
        (
            1,
            [
                "Error occurred during initialization of VM",
                "Could not reserve enough space for 943718400000KB object heap",
            ],
            UserFunctionError,
            "Could not reserve enough space for 943718400000KB object heap",
        ),
        (
            1,
            ['Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: a#b]'],
            Unavailable,
            "java.lang.RuntimeException: [unresolved dependency: a#b]",
        ),
        (137, ["Picked up JAVA_TOOL_OPTIONS"], Unavailable, "it has ended with code 137"),
        (-9, [], Unavailable, "it has ended with code -9"),
    ],
    ids=["malformed", "refused", "too large", "no repository", "killed", "killed at once"],
)
def test_a_jvm_that_does_not_start_is_blamed_by_the_line_that_says_why(
    code: int, lines: list[str], kind: type[OnyxError], said: str
) -> None:
    error = not_started(code, lines)
    assert (type(error), str(error)) == (kind, said)


def test_settings_are_given_to_the_jvm_and_its_last_words_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = spark_home(tmp_path, '#!/bin/sh\necho "Error: refused $1"\nexit 1\n')
    monkeypatch.setenv("SPARK_HOME", str(home))
    jvm = Jvm({"spark.driver.memory": "4 gigs"})
    with pytest.raises(FailsAgain, match=r"^Error: refused --conf=spark.driver.memory=4 gigs$"):
        jvm.address()


def test_a_jvm_that_has_begun_is_the_one_that_is_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = tmp_path / "starts"
    home = spark_home(tmp_path, f'#!/bin/sh\necho begun >> {starts}\necho "Error: no"\nexit 1\n')
    monkeypatch.setenv("SPARK_HOME", str(home))
    begin({})
    with pytest.raises(FailsAgain):
        launch({})
    assert starts.read_text().split() == ["begun"]
    with pytest.raises(FailsAgain):
        launch({})
    assert starts.read_text().split() == ["begun", "begun"], "what has failed is not tried again"
