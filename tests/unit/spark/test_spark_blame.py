"""Whose fault an error of Spark is, and what is shown of it. The texts are Spark's own."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PythonException, SparkRuntimeException

from onyx.errors import FailsAgain, OnyxError, SettingsError, Unavailable, UserFunctionError
from onyx.spark.session.blame import blame

TRACED = """
  An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 2047, in main
    process()
  File "/home/ada/stages.py", line 7, in late
    import helper
{raised}

JVM stacktrace:
org.apache.spark.api.python.PythonException
\tat org.apache.spark.api.python.BasePythonRunner
"""
ABORTED = (
    "An error occurred while calling o197.collectToPython.\n: org.apache.spark.SparkException: Job "
    "aborted due to stage failure: Task 0 in stage 4.0 failed 1 times, most recent failure: Lost "
    "task 0.0 in stage 4.0 (TID 4) (localhost executor driver): {what}\n"
    "\tat org.apache.spark.api.python.BasePythonRunner"
)
FINAL, FAILED, AWAY = FailsAgain, UserFunctionError, Unavailable


class PassedOn(Py4JError):
    """As Py4J shows an exception of the JVM that PySpark has no class for."""

    __module__ = "py4j.protocol"


def in_python(raised: str) -> Exception:
    return PythonException(TRACED.format(raised=raised))


def in_task(what: str) -> Exception:
    return PassedOn(ABORTED.format(what=what))


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            AnalysisException("[UNRESOLVED_COLUMN.X] no column `nix`. SQLSTATE: 42703;\n'Project"),
            FINAL,
            "AnalysisException: [UNRESOLVED_COLUMN.X] no column `nix`",
        ),
        (SparkRuntimeException("[CAST] 'a' is no INT. SQLSTATE: 22018"), FINAL, "'a' is no INT"),
        (SparkRuntimeException("[INTERNAL_ERROR] a bug. SQLSTATE: XX000"), FAILED, "a bug"),
        (SparkRuntimeException("[FAILED_READ_FILE] x. SQLSTATE: KD001"), FAILED, "FAILED_READ"),
        (
            in_python("ModuleNotFoundError: No module named 'helper'"),
            FINAL,
            "ModuleNotFoundError: No module named 'helper'; Spark's Python does not find it: "
            "install it where executors run, or give it to the worker (--modules), which sends it "
            "along\n  at /home/ada/stages.py:7 in late",
        ),
        (
            in_python("ModuleNotFoundError: No module named 'onyx.spark'; 'onyx' is no package"),
            FINAL,
            "where executors, or the Connect server, run",
        ),
        (in_python("KeyError: 'carrier'"), FINAL, "KeyError: 'carrier'\n  at /home/ada/stages.py"),
        (in_python("mine.Odd: two\nlines of text"), FINAL, "mine.Odd: two\nlines of text\n  at"),
        (in_python("ConnectionResetError: by peer"), FAILED, "ConnectionResetError: by peer"),
        (
            in_task("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"),
            FAILED,
            "PassedOn: org.apache.spark.SparkException: Python worker exited unexpectedly",
        ),
        (in_task("java.lang.IllegalArgumentException: no such codec"), FINAL, "no such codec"),
        (in_task("java.io.IOException: Mkdirs failed"), FAILED, "java.io.IOException: Mkdirs"),
        (in_task("ExecutorLostFailure (executor 1 exited)"), AWAY, "ExecutorLostFailure"),
        (Py4JNetworkError("Answer from Java side is empty"), AWAY, "Answer from Java"),
        (ConnectionRefusedError(111, "Connection refused"), AWAY, "Connection refused"),
        (RuntimeError("a bug of ours"), FAILED, "RuntimeError: a bug of ours"),
        (FailsAgain("it is wrong"), FINAL, "it is wrong"),
        (SettingsError("no Java"), FINAL, "no Java"),
        (UserFunctionError("too slow"), FAILED, "too slow"),
        (Unavailable("no server"), AWAY, "no server"),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", None),
)
def test_an_error_is_final_when_its_kind_is_and_shows_the_line_of_its_cause(
    error: Exception, kind: type[OnyxError], said: str
) -> None:
    found = blame(error).error()
    assert type(found) is kind
    assert said in str(found)
    assert "JVM stacktrace" not in str(found)
    assert "\tat " not in str(found)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KeyError("carrier"), FINAL),
        (ModuleNotFoundError("no module named 'helper'"), FINAL),
        (AssertionError(), FINAL),
        (TimeoutError("the database"), FAILED),
        (FileNotFoundError(2, "not there yet"), FAILED),
        (Unavailable("not now"), AWAY),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_what_a_stage_raises_is_final_but_for_files_and_connections(
    error: Exception, kind: type[OnyxError]
) -> None:
    assert type(blame(error, of_user=True).error()) is kind
