"""A worker shows the token of its cluster to the server of its cluster, and to no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from onyx.errors import SettingsError
from onyx.spark.child.environment import environment
from onyx.spark.session.connect import with_token

OWN = "sc://fleet-spark.team.svc:15002"


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "token").write_text("a-secret/word\n")
    return {"ONYX_SPARK_MASTER": OWN, "ONYX_SPARK_TOKEN_FILE": str(tmp_path / "token")}


@pytest.mark.parametrize(
    ("master", "shown"),
    [
        (OWN, f"{OWN}/;authorization=Bearer%20a-secret/word"),
        (OWN.upper().replace("SC", "sc"), "authorization="),
        (f"{OWN}/", f"{OWN}/;authorization="),
        (f"{OWN}/;user_id=me;", f"{OWN}/;user_id=me;authorization="),
    ],
)
def test_the_token_goes_to_the_server_of_the_cluster(
    master: str, shown: str, variables: dict[str, str]
) -> None:
    assert shown in with_token(master, variables)


@pytest.mark.parametrize(
    "master",
    ["sc://elsewhere:15002", f"{OWN}0", "sc://fleet-spark.team.svc.evil:15002", "local[2]"],
)
def test_no_other_server_sees_it(master: str, variables: dict[str, str]) -> None:
    assert with_token(master, variables) == master
    assert with_token(OWN, {"ONYX_SPARK_MASTER": OWN}) == OWN


@pytest.mark.parametrize("text", ["", "two words", "a\nb"])
def test_a_file_without_a_token_is_named(text: str, variables: dict[str, str]) -> None:
    Path(variables["ONYX_SPARK_TOKEN_FILE"]).write_text(text)
    with pytest.raises(SettingsError, match="holds no token: one word is wanted"):
        with_token(OWN, variables)


def test_a_variable_with_which_pyspark_would_speak_tls_is_not_for_that_server(
    variables: dict[str, str],
) -> None:
    taken = variables | {"SPARK_CONNECT_AUTHENTICATE_TOKEN": "another"}
    assert "SPARK_CONNECT_AUTHENTICATE_TOKEN" not in environment(OWN, "/tmp", taken)
    taken |= {"ONYX_JOB_VARIABLES": "SPARK_CONNECT_*"}
    assert "SPARK_CONNECT_AUTHENTICATE_TOKEN" in environment("sc://other:1", "/tmp", taken)
    taken |= {"ONYX_JOB_VARIABLES": ""}
    assert "SPARK_CONNECT_AUTHENTICATE_TOKEN" not in environment("sc://other:1", "/tmp", taken)
