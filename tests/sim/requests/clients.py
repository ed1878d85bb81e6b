"""Simulated clients: each hands over one request, to any worker, until it knows what became of it.

It asks again under the same id when there is no answer, the answer says so, or for no reason; some
then ask under that id for something else, which has to be a conflict. One without an id asks once.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import msgspec
from tests.sim.requests.story import Asked
from tests.sim.windows.violation import Violation

from onyx.requests.content import payload_of
from onyx.requests.request import Answer, Append, Form, Level, Payload, Status

if TYPE_CHECKING:
    from tests.sim.requests.process import RequestProcess
    from tests.sim.requests.world import RequestWorld

LEVELS = (Level.ACK, Level.ACK, Level.ACK, Level.JOURNAL, Level.JOURNAL, Level.NONE)
IMPATIENCE = 0.01
"""How often a client goes away before it is answered, each round."""
OF_ZOMBIES = 0.5
"""How often a worker is asked that is cut off, while there is one."""
FORGED_NUMBER = -1


class Client:
    """One request until its end."""

    def __init__(self, world: RequestWorld, asked: Asked, choice: random.Random) -> None:
        self._world = world
        self._choice = choice
        self.asked = asked
        self.level = choice.choice(LEVELS)
        self.begins = choice.randrange(world.begin_rounds)
        """The round in which it asks for the first time."""
        self._again = choice.choice((0, 0, 0, 1, 2))
        """How often it asks again though it knows."""
        self._forges = choice.random() < 0.2
        self._forging = False
        self._task: asyncio.Task[Answer] | None = None
        self._process: RequestProcess | None = None
        self.tried = False
        self.known = False
        """Whether its request is in the journal, or more, as it was told."""
        self.done = False

    def turn(self) -> None:
        """Look for the answer, or ask."""
        world = self._world
        task = self._task
        if task is None:
            self._begin()
        elif world.network.processes.get(self._of.group) is not self._of:
            self._unanswered()
        elif task.done():
            self._task = None
            self._answered(task.result())
        elif world.chaos and self._choice.random() < IMPATIENCE:
            task.cancel()
            self._unanswered()

    @property
    def _of(self) -> RequestProcess:
        assert self._process is not None
        return self._process

    def _begin(self) -> None:
        world = self._world
        if self.done or (world.chaos and world.rounds < self.begins):
            return
        if self.tried and not self.asked.id:
            self.done = True
            return
        if world.draining and (self.tried or world.choice_of_clients.random() < 0.9):
            self.done = True
            return
        if self.tried and world.chaos and self._choice.random() < 0.8:
            return
        self._ask(list(self.asked.segments), self.level)

    def _ask(self, segments: list[dict[str, Any]], level: Level) -> None:
        world = self._world
        self.tried = True
        asked = list(world.members.values())
        if world.zombies and self._choice.random() < OF_ZOMBIES:
            asked = [each for each, _ in world.zombies]
        self._process = world.as_requests(self._choice.choice(asked))
        append = Append(
            job="simulated" if self._choice.random() < 0.5 else world.job_id,
            task="read",
            payload=_payload(segments),
            id=self.asked.id,
            level=level,
            timeout_s=self._choice.choice((0.2, 2.0, 30.0)),
        )
        self._task = self._process.loop.create_task(self._process.router.answer(append))

    def _unanswered(self) -> None:
        self._task = None
        self._forging = False

    def _answered(self, answer: Answer) -> None:
        world, where = self._world, f"{self.asked.id!r} ({self.level})"
        world.note(f"{where}{' forged' if self._forging else ''}: {answer.status} {answer.reason}")
        if self._forging:
            self._forging = False
            if answer.status.reached or answer.status is Status.INVALID:
                raise Violation(f"J3: {where}: other content is {answer.status}: {answer.reason}")
            return
        if answer.status in (Status.CONFLICT, Status.INVALID):
            raise Violation(f"J3: {where}: the same content is {answer.status}: {answer.reason}")
        if answer.status is Status.UNAVAILABLE and "bug in Onyx" in answer.reason:
            raise Violation(f"U: {where}: {answer.reason}")
        if answer.status is Status.FAILED and not world.story.given_up:
            raise Violation(f"J7: {where}: there are dead letters, and it is {answer.reason}")
        if answer.status.final:
            self._reached(answer)

    def _reached(self, answer: Answer) -> None:
        checks, status = self._world.checks, answer.status
        if answer.segments != len(self.asked.segments):
            raise Violation(f"J1: {self.asked.id!r}: {answer.segments} segments were taken")
        if status is not Status.ACCEPTED:
            self.known = True
            checks.answered(self.asked, status)
        elif self.asked.id and self._choice.random() < 0.7:
            self.level = Level.JOURNAL  # and now it wants to know
            return
        if self._forges and self.known and self.asked.id:
            self._forges, self._forging = False, True
            keys = self._choice.choices("abcde", k=len(self.asked.segments))
            forged = zip(self.asked.segments, keys, strict=True)
            other = [{**each, "n": FORGED_NUMBER, "k": key} for each, key in forged]
            self._ask(other, self._choice.choice(LEVELS[:-1]))
        elif self._again and self.asked.id:
            self._again -= 1
            self.level = self._choice.choice(LEVELS[:-1])
        else:
            self.done = True


def _payload(segments: list[dict[str, Any]]) -> Payload:
    """The same bytes for the same segments, or they would not be the same content."""
    if segments[0]["n"] % 2:
        return payload_of(segments)
    return Payload(Form.JSON_LINES, b"\n".join(map(msgspec.json.encode, segments)))
