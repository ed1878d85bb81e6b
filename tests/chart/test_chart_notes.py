"""What Helm says at the end: what to do next, and what is missing for production."""

from __future__ import annotations

from tests.support.generated.chart import notes, value_set


def test_it_says_how_to_wait_apply_test_and_uninstall() -> None:
    reported = notes()

    assert "kubectl -n onyx wait oc/onyx --for=condition=Ready" in reported
    assert "kubectl -n onyx apply -f job.yaml" in reported
    assert "helm -n onyx test onyx" in reported
    assert "kubectl -n onyx delete oj --all" in reported


def test_it_says_what_the_defaults_leave_out() -> None:
    reported = notes()

    assert "the workers know no functions of yours" in reported
    assert "the workers share no volume" in reported
    assert "there is one ZooKeeper server" in reported
    assert "without the webhook" not in reported
    assert "without the webhook" in notes({"webhook": {"enabled": False}})


def test_it_says_which_secrets_stay() -> None:
    secrets = "onyx-authority onyx-tls onyx-zookeeper-account"
    assert f"kubectl -n onyx delete secret {secrets}" in notes()
    given = {**value_set("production"), "console": {"enabled": False}}
    assert "delete secret" not in notes(given)


def test_it_says_how_to_see_the_console_and_its_token() -> None:
    forward, token = (
        "kubectl -n onyx port-forward svc/onyx-console 8484:",
        "get secret onyx-console",
    )
    assert forward not in notes()
    assert f"{forward}80" in notes({"console": {"enabled": True}})
    assert token in notes({"console": {"enabled": True}})
    assert f"{forward}443" in notes(value_set("production"))
    assert "get secret mine" in notes({"console": {"enabled": True, "existingSecret": "mine"}})


def test_it_has_nothing_to_say_about_what_is_there() -> None:
    assert "NOTE" not in notes(value_set("production"))


def test_it_says_when_spark_is_there() -> None:
    assert "SparkReady" not in notes()
    assert "oc/onyx --for=condition=SparkReady" in notes({"spark": {"enabled": True}})


def test_it_says_when_there_is_no_place_for_state() -> None:
    reported = notes({"s3": {"existingSecret": "keys"}})

    assert "cluster.settings.ONYX_STATE_URL=s3://bucket/prefix" in reported
    assert "ONYX_STATE_URL" not in notes({"data": {"create": True}})


def test_it_warns_of_a_zookeeper_that_forgets() -> None:
    reported = notes({"zookeeper": {"persistence": {"enabled": False}}})

    assert "all jobs are lost" in reported


def test_it_says_that_there_are_no_workers() -> None:
    reported = notes({"cluster": {"create": False}})

    assert "apply an OnyxCluster" in reported
    assert "oc/onyx" not in reported
