"""Nexmark's events: the same for the same numbers, in the usual proportions, nearly in order."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "nexmark"
EVENTS = 20_000


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return import_module("nexmark.events")


def made(events: ModuleType, kind: str, first: int = 0, last: int = EVENTS) -> pd.DataFrame:
    frame: pd.DataFrame = events.events(kind, np.arange(first, last)).to_pandas()
    return frame


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids(
    events: ModuleType,
) -> None:
    assert [len(made(events, kind)) for kind in events.KINDS] == [400, 1_200, 18_400]


@pytest.mark.parametrize("kind", ["persons", "auctions", "bids"])
def test_events_depend_on_their_number_and_the_seed_only(events: ModuleType, kind: str) -> None:
    whole = made(events, kind)
    parts = [made(events, kind, first, first + 2_500) for first in range(0, EVENTS, 2_500)]
    other = events.events(kind, np.arange(EVENTS), seed=8).to_pandas()

    assert pd.concat(parts, ignore_index=True).equals(whole)
    assert not other.equals(whole)


def test_times_go_back_by_less_than_half_a_second(events: ModuleType) -> None:
    times = made(events, "bids")["date_time"]
    behind = (times.cummax() - times).max()

    assert 0 < behind < events.DISORDER_MS
    assert times.max() - times.min() == pytest.approx(EVENTS / events.EVENTS_A_MS, abs=500)


def test_events_speak_only_of_what_there_is_and_often_of_what_is_hot(events: ModuleType) -> None:
    bids, auctions, persons = (made(events, kind) for kind in ("bids", "auctions", "persons"))

    assert set(bids["auction"]) <= set(auctions["id"])
    assert set(bids["bidder"]) | set(auctions["seller"]) <= set(persons["id"])
    assert auctions["id"].is_unique
    assert persons["id"].is_unique
    hot = (bids["auction"] - events.FIRST_ID) % events.IN_FLIGHT == 0
    assert 0.45 < hot.mean() < 0.55
    assert bids["price"].between(100, 100_000_000).all()


def test_two_files_of_a_kind_have_all_events_between_them(
    events: ModuleType, tmp_path: Path
) -> None:
    import_module("generate").generate(tmp_path, EVENTS)

    assert len(list(tmp_path.iterdir())) == 7, "and the side input"
    for kind in events.KINDS:
        parts = [pq.read_table(path).to_pandas() for path in sorted(tmp_path.glob(f"{kind}-*"))]
        columns = list(parts[0].columns)
        found = pd.concat(parts).sort_values(columns, ignore_index=True)
        assert found.equals(made(events, kind).sort_values(columns, ignore_index=True))
        assert parts[0]["date_time"].max() == pytest.approx(parts[1]["date_time"].max(), abs=1_000)
