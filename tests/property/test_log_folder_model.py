"""What one client does to the log of a folder has the results that it has in memory, although
answers are lost and the server starts again in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.log.logs import served, settings_of
from tests.support.log.markers import marker
from tests.support.log.memory_log import MemoryLog

from onyx.ids import NO_POSITION, Position
from onyx.log.interface import ClientLog, Origin
from onyx.log.local.log import LocalClientLog
from onyx.log.local.server import ServerLink

SEEDS, STEPS, LIVES = 12, 40, 3
PATHS = ("a", "of/a", "of/b", "of/a/deep")


def step(chance: random.Random, number: int) -> Callable[[ClientLog], Any]:
    """Something to be done. What is written differs from all that was, as content in logs does."""
    path, version = chance.choice(PATHS), chance.choice([None, None, 0, 1, 2])
    at = Position(chance.randrange(-1, 20))
    return chance.choice(
        [
            lambda log: log.append(marker(f"m{number}")),
            lambda log: log.append(marker(f"m{number}")),
            lambda log: log.put_document(path, b"%d" % number, version),
            lambda log: log.put_document(path, b"%d" % number, version),
            lambda log: log.get_document(path),
            lambda log: log.delete_documents(path),
            lambda log: (list(log.list_documents("of")), list(log.list_folders(""))),
            lambda log: log.get_chunk(log.put_chunk(b"%d" % (number % 5))),
            lambda log: log.read(at, entries_max=chance.choice([1, 3, 100])),
            lambda log: log.claim(f"owner-{number}"),
            lambda log: _collected(log, number),
        ]
    )


def _collected(log: ClientLog, number: int) -> tuple[bool, Origin]:
    entries = log.read(NO_POSITION)
    if not entries:
        return False, log.origin()
    middle = entries[len(entries) // 2].position
    return log.collect(Origin(middle, b"replica %d" % number)), log.origin()


@pytest.mark.short(4)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_results_are_those_of_memory_whatever_is_lost(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, loses, flush = random.Random(seed), random.Random(seed), ServerLink.flush

    def losing(link: ServerLink) -> int:
        if link._owed and link.store is not None and loses.random() < 0.2:
            raise ConnectionResetError
        return flush(link)

    monkeypatch.setattr(ServerLink, "flush", losing)
    model, settings = MemoryLog().client(), settings_of(tmp_path / "log")
    with closing(model):
        for life in range(LIVES):
            with served(tmp_path / "log"), closing(LocalClientLog(settings)) as log:
                for number in range(life * STEPS, (life + 1) * STEPS):
                    state = chance.getstate()
                    made = step(chance, number)(log)
                    chance.setstate(state)
                    assert made == step(chance, number)(model), (seed, number)
                assert log.read(NO_POSITION) == model.read(NO_POSITION)
