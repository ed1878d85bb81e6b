"""A probe fails when the operator stands still, and says what does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onyx_operator import generate
from onyx_operator.informers.informer import Store, WatchDebts
from onyx_operator.liveness import OperatorLiveness
from onyx_operator.work_queue import ObjectKey


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def body(name: str, version: int, uid: str = "u1") -> dict[str, Any]:
    metadata = {"namespace": "default", "name": name, "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata}


def test_a_loop_that_stands_still_is_dead() -> None:
    clock = Clock()
    liveness = OperatorLiveness(60.0, clock)
    assert liveness.alive() is True
    clock.now_s += 60.0
    assert liveness.alive() == "stalled: the event loop"


def test_it_is_ready_when_the_handlers_have_started() -> None:
    liveness = OperatorLiveness(60.0, Clock())
    assert liveness.ready() == "the handlers have not started"
    liveness.started()
    assert liveness.ready() is True


def test_a_watch_that_owes_an_event_for_too_long_is_dead() -> None:
    clock = Clock()
    liveness = OperatorLiveness(60.0, clock)
    watched = WatchDebts("OnyxJob", liveness)
    watched.event(body("one", 5))
    watched.listed([body("one", 5)])
    clock.now_s += 30.0
    watched.listed([body("one", 7)])
    clock.now_s += 59.0
    liveness._beat_s = clock.now_s
    assert liveness.alive() is True
    clock.now_s += 1.0
    assert liveness.alive() == "stalled: OnyxJob"
    watched.event(body("one", 7))
    assert liveness.alive() is True


def test_an_object_that_is_gone_is_owed_no_more() -> None:
    clock = Clock()
    liveness = OperatorLiveness(60.0, clock)
    watched = WatchDebts("OnyxJob", liveness)
    watched.listed([body("one", 7)])
    watched.event(body("one", 6), gone=True)
    clock.now_s += 59.0
    liveness._beat_s = clock.now_s
    clock.now_s += 1.0
    assert liveness.alive() is True


def test_an_older_version_never_replaces_a_newer_one() -> None:
    store = Store()
    store.put(body("one", 7))
    store.put(body("one", 6))
    found = store.get(ObjectKey("default", "one"))
    assert found is not None
    assert found["metadata"]["resourceVersion"] == "7"


def test_an_object_made_anew_replaces_the_former_one_whatever_its_version() -> None:
    store = Store()
    store.put(body("one", 7))
    store.put(body("one", 3, uid="u2"))
    store.drop(body("one", 8))
    found = store.get(ObjectKey("default", "one"))
    assert found is not None
    assert found["metadata"]["uid"] == "u2", "the deletion was of the old one"


def test_the_generated_pages_are_fresh(tmp_path: Path) -> None:
    assert generate.main(["--check"]) == 0, "run python -m onyx_operator.generate"
    assert generate.main(["--check"], tmp_path) == 1
    assert generate.main([], tmp_path) == 0
    assert generate.main(["--check"], tmp_path) == 0
