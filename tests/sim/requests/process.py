"""A simulated worker process that takes requests: the real router, mailboxes and journals."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

from tests.sim.requests.loop import VirtualLoop
from tests.sim.requests.network import RequestLink
from tests.sim.requests.outputs import NumberedParts, PlaceAtOnce
from tests.sim.windows.process import Process

from onyx.base.event_loop import EventLoop
from onyx.peer.router.answered import AnsweredRequests
from onyx.peer.router.inputs import InputTokens, RequestInputs
from onyx.peer.router.router import RequestRouter
from onyx.plugins.parts.formats import JsonLinesFormat
from onyx.plugins.protocol import Input, Output, PluginContext
from onyx.plugins.registry import build_input
from onyx.settings import Settings
from onyx.task.task import Task
from onyx.telemetry.interface import NULL_GROUP

if TYPE_CHECKING:
    from tests.sim.requests.world import RequestWorld


class RequestProcess(Process):
    def __init__(self, world: RequestWorld, number: int, peers: int) -> None:
        super().__init__(world, number, peers)
        self.requests = world
        self.transport = RequestLink(world.network, self.group, world.calls)
        self.loop = VirtualLoop(world.clock)
        world.loops.append(self.loop)
        self.router = RequestRouter(
            RequestInputs(self.replica, self.log, world.clock),
            self.mailboxes,
            self.transport,
            self.background,
            random.Random(f"{world.seed}/ids of {self.group}"),
            self.group,
            cast(EventLoop, self.loop),
            self.resolve,
            lambda: self.state_store(durable=True),
            world.clock,
            InputTokens(Settings(), world.clock),
            AnsweredRequests(NULL_GROUP),
        )

    def step(self, task: Task) -> bool:
        self.requests.threads.owner = self
        return super().step(task)

    def die(self) -> None:
        super().die()
        self.requests.threads.end(self, self.requests.options.ghosts)

    def build_input(self, plugin: str, context: PluginContext) -> Input:
        return build_input(plugin, context)

    def build_output(self, plugin: str, context: PluginContext) -> Output:
        self._plugins += 1
        world = self.requests
        place = PlaceAtOnce(world.places[context.task], world.faults, self.group, self._plugins)
        form, limits = JsonLinesFormat(context), world.roll_limits
        return NumberedParts(place, form, context, limits, self)
