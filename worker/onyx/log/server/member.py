"""One server of an ensemble, from an empty folder until it serves. Carries out `formation`.

A server whose folder records that it was allowed to vote before starts at once. A server whose
folder is empty, or has the data of a server that stood alone, first asks every other server what it
holds, and repeats that until `formation.decide` can decide. All the time it answers the same
question of the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from onyx.log.server import data_folder
from onyx.log.server.config import Ensemble
from onyx.log.server.data_folder import Holding
from onyx.log.server.formation import Decision, Holds, Join, Vote, Wait, decide
from onyx.log.server.formation_port import FormationPort, ask
from onyx.log.server.process import ZooKeeperServer

ASK_INTERVAL_S = 1.0

_ANSWERS = {
    Holding.NOTHING: Holds.NOTHING,
    Holding.BEGUN: Holds.NOTHING,
    Holding.ALONE: Holds.ALONE,
    Holding.FOUNDING: Holds.ALONE,
    Holding.SHARED: Holds.SHARED,
}


class Member:
    """A context manager that answers the others; `start` starts the server.

    Args:
        server: not started yet.
        ensemble: its number there.
        host: interface to listen on.
        say: gets what somebody who waits wants to know, once for each change.

    Raises:
        SettingsError: the folder is another server's, or one of a larger ensemble.
        Unavailable: its port is taken.
    """

    def __init__(
        self, server: ZooKeeperServer, ensemble: Ensemble, host: str, say: Callable[[str], None]
    ) -> None:
        self._server = server
        self._ensemble = ensemble
        self._say = say
        self._folder = server.claim()
        self._obstacle, self._complaint = "", ""
        self._port = FormationPort(ensemble, host, self._answer, server.certificates)

    def close(self) -> None:
        """Close the port; the server goes on."""
        self._port.close()

    @property
    def obstacle(self) -> str:
        """Why the server has not been started; empty when it has."""
        return self._obstacle

    def start(self, stop: threading.Event) -> bool:
        """Start the server when it may; False when `stop` was set before.

        Raises:
            SettingsError, Unavailable: as `ZooKeeperServer.launch`.
        """
        found = data_folder.read_holding(self._folder)
        if found not in (Holding.NOTHING, Holding.ALONE):
            self._server.launch()
            return True
        while isinstance(decision := self._decide(), Wait):
            self._obstacle = decision.reason
            self._complain(decision.reason)
            if stop.wait(ASK_INTERVAL_S):
                return False
        self._obstacle = ""
        self._go(decision, found)
        return True

    def serves(self) -> bool:
        """The server serves: from now on its folder counts as one of this ensemble. False when that
        could not be written, as on a full disk; to be tried again."""
        try:
            data_folder.serves(self._folder, len(self._ensemble.servers))
        except OSError as error:
            self._complain(f"{self._folder} cannot be written: {error.strerror}")
            return False
        return True

    def _decide(self) -> Decision:
        me, certificates = self._ensemble.id, self._server.certificates
        others = (id for id in range(1, len(self._ensemble.servers) + 1) if id != me)
        asked = {id: ask(self._ensemble, id, certificates) for id in others}
        return decide(me, {me: self._answer(), **asked})

    def _go(self, decision: Vote | Join, found: Holding) -> None:
        match decision, found:
            case Vote(), Holding.ALONE:
                self._say(f"{len(self._ensemble.servers)} servers form around the data of this one")
                data_folder.found(self._folder, len(self._ensemble.servers))
                self._server.launch()
            case Vote(), _:
                self._say(
                    "all servers have been asked: this one may vote although it holds no data"
                )
                self._server.launch(empty_may_vote=True)
            case _:
                self._say("other servers hold the data: this one receives it before it votes")
                self._server.launch()

    def _answer(self) -> Holds:
        return _ANSWERS[data_folder.read_holding(self._folder)]

    def _complain(self, what: str) -> None:
        """Log it once."""
        if what != self._complaint:
            self._complaint = what
            self._say(what)
