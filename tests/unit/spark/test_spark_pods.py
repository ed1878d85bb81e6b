"""What the pods of Spark run, as calls."""

from pathlib import Path

import pytest

from onyx.errors import SettingsError
from onyx.spark.pods.programs import SparkInstallation, executor, server

INSTALLED = SparkInstallation(Path("/py/pyspark"), Path("/java"), "/py/bin/python")
GIVEN = {
    "SPARK_DRIVER_URL": "spark://driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "fleet-spark-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_JAVA_OPT_10": "-Dlast=1",
    "SPARK_JAVA_OPT_2": "-Dfirst=1",
}
OF_POD = {"ONYX_POD_NAME": "fleet-spark-0", "ONYX_POD_IP": "10.0.0.3"}


def test_a_server_is_submitted_with_its_pod() -> None:
    call = server(INSTALLED, Path("/etc/spark.properties"), OF_POD)
    assert call.arguments[0] == "/py/pyspark/bin/spark-submit"
    assert "/etc/spark.properties" in call.arguments
    assert "spark.kubernetes.driver.pod.name=fleet-spark-0" in call.arguments
    assert "spark.driver.host=10.0.0.3" in call.arguments
    assert call.variables["PYSPARK_PYTHON"] == "/py/bin/python"


def test_a_server_wants_the_token_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(SettingsError, match=r"ONYX_SPARK_TOKEN_FILE: .*token cannot be read"):
        server(INSTALLED, Path("f"), {"ONYX_SPARK_TOKEN_FILE": str(file)})
    file.write_text("secret-word\n")
    call = server(INSTALLED, Path("f"), {"ONYX_SPARK_TOKEN_FILE": str(file)})
    assert call.variables["SPARK_CONNECT_AUTHENTICATE_TOKEN"] == "secret-word"
    assert not any("secret-word" in each for each in call.arguments)


def test_outside_of_kubernetes_a_server_has_no_pod() -> None:
    assert "--conf" not in server(INSTALLED, Path("f"), {}).arguments


def test_an_executor_gets_what_spark_has_set() -> None:
    call = executor(INSTALLED, GIVEN)
    java, *rest = call.arguments
    assert java == "/java/bin/java"
    assert rest[:2] == ["-Dfirst=1", "-Dlast=1"], "by number, not by text"
    assert rest[2:6] == ["-Xms1024m", "-Xmx1024m", "-cp", "/py/pyspark/jars/*"]
    flags = dict(zip(rest[7::2], rest[8::2], strict=True))
    assert flags == {
        "--driver-url": "spark://driver:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "fleet-spark-exec-3",
    }


def test_classes_that_spark_adds_come_first() -> None:
    call = executor(INSTALLED, {**GIVEN, "SPARK_CLASSPATH": "/extra.jar"})
    assert call.arguments[call.arguments.index("-cp") + 1] == "/extra.jar:/py/pyspark/jars/*"


@pytest.mark.parametrize("name", sorted(set(GIVEN) - {"SPARK_JAVA_OPT_10", "SPARK_JAVA_OPT_2"}))
def test_what_spark_has_not_set_is_named(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} is not set; Spark starts its executors"):
        executor(INSTALLED, {**GIVEN, name: ""})
