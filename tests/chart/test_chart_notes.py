"""What Helm says at the end: what to do next, and what is missing for production."""

from __future__ import annotations

from tests.support.chart import notes, value_set


def test_it_says_how_to_wait_apply_test_and_uninstall() -> None:
    told = notes()

    assert "kubectl -n onyx wait oc/onyx --for=condition=Ready" in told
    assert "kubectl -n onyx apply -f job.yaml" in told
    assert "helm -n onyx test onyx" in told
    assert "kubectl -n onyx delete oj --all" in told


def test_it_says_what_the_defaults_leave_out() -> None:
    told = notes()

    assert "the workers know no functions of yours" in told
    assert "the workers share no volume" in told
    assert "there is one ZooKeeper server" in told
    assert "without the webhook" in told


def test_it_has_nothing_to_say_about_what_is_there() -> None:
    assert "NOTE" not in notes(value_set("production"))


def test_it_says_when_there_is_no_place_for_state() -> None:
    told = notes({"s3": {"existingSecret": "keys"}})

    assert "cluster.settings.ONYX_STATE_URL=s3://bucket/prefix" in told
    assert "ONYX_STATE_URL" not in notes({"data": {"create": True}})


def test_it_warns_of_a_zookeeper_that_forgets() -> None:
    told = notes({"zookeeper": {"persistence": {"enabled": False}}})

    assert "all jobs are lost" in told


def test_it_says_that_there_are_no_workers() -> None:
    told = notes({"cluster": {"create": False}})

    assert "apply an OnyxCluster" in told
    assert "oc/onyx" not in told
