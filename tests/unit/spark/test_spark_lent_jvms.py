"""Which JVMs of tests are lent, and which are started by the real `spark-submit`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.spark import borrow_jvm

from onyx.spark.session.opening import configuration

AS_ASKED = {
    "spark.app.name": "a query",
    "spark.master": "local[2]",
    **configuration("local[2]", Path("/scratch"), {"spark.sql.shuffle.partitions": "3"}, True),
}


def asked(**changed: str) -> list[str]:
    settings = {**AS_ASKED, **{f"spark.{key}": value for key, value in changed.items()}}
    return [*(f"--conf={key}={value}" for key, value in settings.items()), "pyspark-shell"]


def test_what_the_engine_asks_for_by_itself_is_lent() -> None:
    assert borrow_jvm.settings_of(asked()) == AS_ASKED


@pytest.mark.parametrize(
    "changed",
    [
        {"master": "spark://127.0.0.1:7077"},
        {"master": "local-cluster[2,1,512]"},
        {"driver.memory": "512m"},
        {"driver.extraJavaOptions": "-XX:+UseG1GC"},
        {"driver.extraClassPath": "/a.jar"},
        {"jars": "/a.jar"},
        {"jars.packages": "a:b:1"},
        {"ui.port": "4040"},
    ],
)
def test_what_a_jvm_that_runs_cannot_have_is_not_lent(changed: dict[str, str]) -> None:
    assert borrow_jvm.settings_of(asked(**changed)) is None


def test_nothing_is_lent_to_who_runs_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM and its Python workers stay in the folder where it was started."""
    monkeypatch.chdir(tmp_path)
    assert borrow_jvm.settings_of(asked()) is None
    os.chdir(borrow_jvm.ROOT)
    assert borrow_jvm.settings_of(["--class=Main", *asked()]) is None
