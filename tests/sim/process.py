"""One simulated worker process: the real group, append queue and log tail on a simulated client.

What the executor and the kazoo edge do in production is done here in a few lines; everything that
decides is the product's own code. A frozen process (SIGSTOP) keeps a backlog and works it off when
it is resumed, before it learns anything new (Z7).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from tests.sim.client import Client
from tests.sim.collecting import Collecting
from tests.sim.tasks import Running, Tasks
from tests.sim.zk import Reply, Status
from tests.support.log.runs import by_job

from onyx.ids import GroupId, JobId, PeerId, Position
from onyx.log import append_queue
from onyx.log.interface import Origin, Session
from onyx.log.zookeeper import subscription as tails
from onyx.peer import group, life
from onyx.peer import group as do
from onyx.peer import group as on
from onyx.replica import effects, members
from onyx.replica.command import Command
from onyx.replica.commands import ReportLoss, RestartTask
from onyx.replica.state import Replica

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

RESTART_S = 0.3
BACK_OFF_S = 0.5
POLL_S = 15.0


class Process:
    """A place where incarnations of a worker run, one after the other."""

    def __init__(self, cluster: Cluster, number: int, peers: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.options = cluster.options
        self.jobs = cluster.jobs
        self.number = number
        self.peers = peers
        self.chance = cluster.world.stream(f"process/{number}")
        self.incarnation = 0
        self.running = False
        self.frozen = False
        self.backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.state: group.GroupState | None = None
        self.group = GroupId("")
        self.queue: append_queue.AppendQueue | None = None
        self.wanted: list[PeerId] = []
        self.lost: list[ReportLoss] = []
        """What dead incarnations have left to report, until its entry has been read."""

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        if not self.running:
            self.running = True
            self._begin()

    def crash(self) -> None:
        """SIGKILL, or its own end inside user code: then the next incarnation knows over what."""
        if self.running:
            self.world.log(self.group, "killed")
            self._die_over_something()
            self._stop()
            self.running = False
            self.queue = None

    def _die_over_something(self) -> None:
        """What the supervisor would read; drawn, so that it is now one segment and now several."""
        if self.state is None or not self.tasks.running or self.chance.random() < 0.5:
            return
        running = self.tasks.running[self.chance.choice(sorted(self.tasks.running))]
        first = self.chance.randrange(4)
        last = first + self.chance.choice((0, 0, 3))
        self.lost.append(
            ReportLoss(
                job=running.job,
                task=running.task,
                loss=f"{self.group}"[:64],
                runs=((0, first, last),),
                id="ab" if first == last else "",
                killed=first % 2 == 0,
            )
        )

    def freeze(self) -> None:
        if self.running and not self.frozen:
            self.world.log(self.group, "frozen")
            self.frozen = True
            self.client.freeze()

    def thaw(self) -> None:
        if not self.frozen:
            return
        self.world.log(self.group, "thawed")
        self.frozen = False
        backlog, self.backlog = self.backlog, []
        self.client.thaw()
        for action, args in backlog:
            action(*args)

    def leave(self) -> None:
        """SIGTERM."""
        if self.running and self.state is not None:
            self.run(self._feed, on.Leave())

    @property
    def joined(self) -> bool:
        return self.running and self.state is not None and self.state.joined

    @property
    def replica(self) -> Replica:
        assert self.state is not None
        return self.state.replica

    def run(self, action: Callable[..., None], *args: Any) -> None:
        """Run something in this process, now or when it is thawed."""
        if self.frozen:
            self.backlog.append((action, args))
        else:
            action(*args)

    def later(self, delay_s: float, action: Callable[..., None], *args: Any) -> None:
        """A timer of this incarnation."""
        self.world.after(delay_s, self._due, self.incarnation, action, args)

    def _due(self, incarnation: int, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        if incarnation == self.incarnation:
            self.run(self._still, incarnation, action, args)

    def _still(self, incarnation: int, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        if incarnation == self.incarnation and self.running:
            action(*args)

    def _begin(self) -> None:
        self.incarnation += 1
        token = f"{self.chance.getrandbits(32):08x}"
        self.group = GroupId(f"{token}-{self.number}.{self.incarnation}")
        self.state = None
        self.client = Client(
            self.world,
            self.cluster.server,
            self.group,
            self.options.session_timeout_s,
            self.run,
            self._session,
        )
        self.queue = self.cluster.bug.queue(self)
        self.tasks = Tasks(self)
        self.client.open(self._register)

    def _stop(self) -> None:
        self.incarnation += 1
        self.client.die()
        self.frozen = False
        self.backlog = []
        self.state = None

    def _restart(self) -> None:
        self._stop()
        self.later(RESTART_S, self._begin)

    # --- starting an incarnation ----------------------------------------------------------------

    def _register(self) -> None:
        self.client.call("create_pulse", (self.group,), self._registered)

    def _registered(self, reply: Reply) -> None:
        if reply.status in (Status.OK, Status.NODE_EXISTS):
            self.client.call("origin", (), self._started)

    def _started(self, reply: Reply) -> None:
        if reply.status is not Status.OK or self.state is not None:
            return
        position, stored, _ = reply.value
        replica = Replica() if stored is None else self.cluster.decode(stored)
        self.world.log(self.group, "starts at", position)
        self.tail = tails.LogTail(Position(position))
        self.state, actions = group.start(self.group, replica)
        self._execute(actions)
        self._read(self.tail.start())
        self._feed(on.ReportLosses(tuple(self.lost)))
        self.wanted = []
        for _ in range(self.peers):
            self.add_peer()
        self.later(self.chance.uniform(0, POLL_S), self._poll)
        if self.options.collects_s is not None:
            Collecting(self, self.options.collects_s)

    def add_peer(self) -> None:
        peer = PeerId(f"{self.group}-{len(self.wanted)}-{self.chance.getrandbits(16):04x}")
        self.wanted.append(peer)
        self._feed(on.AddPeers((peer,), {"address": f"host-{self.number}:1"}))

    def remove_peer(self) -> None:
        if self.wanted:
            peer = self.wanted.pop(self.chance.randrange(len(self.wanted)))
            self._feed(on.RemovePeer(peer))

    def restart_peer(self) -> None:
        """A lifecycle says `restart` of the task that a peer has."""
        if not self.wanted:
            return
        peer = self.wanted.pop(self.chance.randrange(len(self.wanted)))
        running = self.tasks.running.get(peer)
        if running is not None:
            afresh = len(self.wanted) == 0
            self.propose(peer, RestartTask(job=running.job, task=running.task, afresh=afresh))
        self._feed(on.RemovePeer(peer))
        self.add_peer()

    def _session(self, session: Session) -> None:
        self.world.log(self.group, session.value)
        if self.state is None:
            if session is Session.CONNECTED:
                self._register()
            elif session is Session.LOST:
                self._restart()
            return
        assert self.queue is not None
        self.send(self.queue.on_session(session))
        if session is Session.CONNECTED:
            self._read(self.tail.on_connected())
            if self.cluster.bug.rearms:
                for target in self._watched():
                    self._watch(target)
        self._feed(on.SessionChanged(session))

    # --- the group ------------------------------------------------------------------------------

    def _feed(self, event: on.Event) -> None:
        if self.state is None:
            return
        self.cluster.fold.current = self
        told = _told(self.state.replica)
        self.state, actions = group.step(self.state, event)
        self._execute(actions)
        if self.state is not None and _told(self.state.replica) != told:
            self.tasks.look_again()

    def _execute(self, actions: tuple[do.Action, ...]) -> None:
        incarnation = self.incarnation
        for action in actions:
            if incarnation == self.incarnation:
                self._perform(action)

    def _perform(self, action: do.Action) -> None:
        match action:
            case do.AppendCommands(commands, parent):
                if self.queue is not None and not self.queue.fenced:
                    self.send(self.queue.enqueue(commands, parent))
            case effects.WatchPulse(target):
                self._watch(target)
            case effects.UnwatchPulse():
                pass
            case effects.ProbePulse(target):
                self.client.call("exists", (target, False), lambda r: self._probed(target, r))
            case do.StartPauseTimer(number):
                timeout_s, heard_s = self.options.session_timeout_s, self.client.confirmed_s()
                delay_s = life.pause_delay_s(self.world.now_s, heard_s, timeout_s)
                self.later(delay_s, self._feed, on.PauseDue(number))
            case do.StartBackOff():
                self.later(self.chance.uniform(0, 2 * BACK_OFF_S), self._feed, on.BackOffElapsed())
            case do.Pause():
                self.tasks.pause()
            case do.Resume():
                self.tasks.resume()
            case do.Restart(reason):
                self.world.log(self.group, "restarts:", reason)
                self._restart()
            case do.GroupLeft():
                self.world.log(self.group, "left")
                self.client.close()
                self._stop()
                self.running = False
            case _:
                self.world.log(self.group, action)
                self.tasks.execute(action)

    def propose(self, peer: PeerId, command: Command) -> None:
        self._feed(on.Propose(peer, command))

    def permitted(self) -> bool:
        heard_s = self.client.confirmed_s()
        return life.permitted(self.world.now_s, heard_s, self.options.session_timeout_s)

    def emit(self, peer: PeerId, running: Running) -> None:
        self.cluster.checkers.emitted(self, peer, running)

    # --- pulses ---------------------------------------------------------------------------------

    def _watched(self) -> tuple[GroupId, ...]:
        return members.watched_by(self.replica, self.group)

    def _watch(self, target: GroupId) -> None:
        """Level-triggered: after a change or a new connection, look again while it is wanted."""
        if self.state is None or target not in self._watched():
            return
        self.client.watch(("pulse", target), lambda cause: self._pulse_event(target, cause))
        self.client.call("exists", (target, True), lambda reply: self._probed(target, reply))

    def _pulse_event(self, target: GroupId, cause: str) -> None:
        if cause == "changed":
            self._watch(target)

    def _probed(self, target: GroupId, reply: Reply) -> None:
        if reply.status is Status.OK and not reply.value:
            self._feed(on.PulseGone(target))

    # --- the log --------------------------------------------------------------------------------

    def send(self, request: append_queue.Append | None) -> None:
        if request is not None:
            arguments = (request.fence, request.payloads)
            self.client.call("append", arguments, lambda r: self._appended(request.attempt, r))

    def _appended(self, attempt: int, reply: Reply) -> None:
        if self.state is None or self.queue is None:
            return
        result = {
            Status.OK: append_queue.Reply.WRITTEN,
            Status.NO_NODE: append_queue.Reply.PULSE_GONE,
        }.get(reply.status, append_queue.Reply.UNKNOWN)
        self.send(self.queue.on_reply(attempt, result))

    def _poll(self) -> None:
        self._read(self.tail.on_poll())
        self.later(POLL_S, self._poll)

    def _read(self, actions: tails.Actions) -> None:
        """Like `log.zookeeper.subscription`: whole listings only at the start and after a break."""
        incarnation = self.incarnation
        wanted: list[Position] = []
        for action in actions:
            if incarnation != self.incarnation or self.state is None:
                return
            match action:
                case tails.ListChildren(tails.Cause.CHANGED):
                    self.client.call("status", (), self._look_ahead)
                case tails.ListChildren():
                    self.client.watch(("log", ""), self._log_event)
                    self.client.call("children", (True,), self._listed)
                case tails.GetEntry(position):
                    wanted.append(position)
                case tails.ReadOrigin(above):
                    self.client.call("origin", (), lambda r, above=above: self._origin(above, r))
                case tails.Deliver(item):
                    self._deliver(item)
        if wanted and incarnation == self.incarnation:
            self._get(tuple(wanted))

    def _log_event(self, cause: str) -> None:
        if self.state is not None:
            self._read(self.tail.on_watch(tails.Cause(cause)))

    def _listed(self, reply: Reply) -> None:
        if self.state is not None and reply.status is Status.OK:
            self._read(self.tail.on_children(reply.value))

    def _look_ahead(self, reply: Reply) -> None:
        if self.state is None or reply.status is not Status.OK:
            return
        following = reply.value
        self.client.watch(("entry", str(following)), self._log_event)
        self.client.call("entry_exists", (following,), self._following)
        numbers = range(self.tail.position + 1, following)
        self._read(self.tail.on_children([Position(number) for number in numbers]))

    def _following(self, reply: Reply) -> None:
        if self.state is not None and reply.status is Status.OK and reply.value:
            self._read(self.tail.on_watch(tails.Cause.AGAIN))

    def _get(self, positions: tuple[Position, ...]) -> None:
        def got(reply: Reply) -> None:
            if self.state is not None and reply.status is Status.OK:
                answers = zip(positions, reply.value, strict=True)
                self._read(tuple(a for p, data in answers for a in self.tail.on_entry(p, data)))

        self.client.call("get", (positions,), got)

    def _origin(self, above: Position, reply: Reply) -> None:
        if self.state is not None and reply.status is Status.OK:
            position, stored, _ = reply.value
            found = Origin(Position(position), stored) if position > above else None
            self._read(self.tail.on_origin(found))

    def _deliver(self, item: Any) -> None:
        if isinstance(item, Origin):
            self._feed(on.OriginRead(item.position, self.cluster.decode(item.replica)))
        else:
            self._feed(on.EntryRead(item))
            heard = getattr(item.command, "loss", None)
            self.lost = [each for each in self.lost if each.loss != heard]
        if self.state is not None:
            same = self.cluster.checkers.applied(self, self.state.replica)
            if same is not self.state.replica:
                self.state = replace(self.state, replica=same)


def _told(replica: Replica) -> list[dict[JobId, object]]:
    """What inputs are told about reading."""
    return [by_job(replica, "draining"), by_job(replica, "paused")]
