"""Clients of jobs that take requests over HTTP: `python load.py WORK`, with WORK as JSON.

Each client sends one request after the other, each again under its id until it is answered for
good, and prints a line of JSON for each that has ended: what was sent, the status of every try,
what came back. A try without an answer has the status 0 and the error. The file STOP ends the
program when the requests on their way have ended. Nothing but the standard library: it runs in any
pod with Python.
"""

from __future__ import annotations

import http.client
import itertools
import json
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

STOP = Path("/tmp/stop")
SEGMENTS_OF_REQUEST = 3
KEYS = 101
AGAIN = (0, 429, 503, 504)
TRY_S = 10
PAUSE_MAX_S = 1.0


class Load:
    """What all clients share.

    Args:
        urls: of the jobs; requests go to each in turn.
        pause_s: of a client between two requests.
    """

    def __init__(self, urls: list[str], token: str, ca: str, clients: int, pause_s: float) -> None:
        self._urls = urls
        self._token = token
        self._trust = ssl.create_default_context(cadata=ca) if ca else None
        self._numbers = itertools.count()
        self._pause_s = pause_s
        self._printing = threading.Lock()
        self._clients = [threading.Thread(target=self._send_all) for _ in range(clients)]

    def run(self) -> None:
        for each in self._clients:
            each.start()
        for each in self._clients:
            each.join()

    def _send_all(self) -> None:
        while not STOP.exists():
            number = next(self._numbers)  # atomic in CPython
            told = self._sent(number)
            with self._printing:
                print(json.dumps(told), flush=True)
            time.sleep(self._pause_s)

    def _sent(self, number: int) -> dict[str, Any]:
        first = number * SEGMENTS_OF_REQUEST
        numbers = range(first, first + SEGMENTS_OF_REQUEST)
        body = "\n".join(json.dumps({"n": n, "key": n % KEYS}) for n in numbers).encode()
        job = number % len(self._urls)
        request = urllib.request.Request(
            f"{self._urls[job]}?timeout={TRY_S}",
            body,
            {
                "Content-Type": "application/x-ndjson",
                "Idempotency-Key": f"r{number}",
                "Authorization": f"Bearer {self._token}",
            },
        )
        statuses, reasons, status, answer = [], [], 0, {}
        while status in AGAIN:
            status, answer = self._tried(request)
            statuses.append(status)
            reasons.append(answer.get("reason", ""))
            if status in AGAIN:
                time.sleep(min(float(answer.get("retry_after_s", PAUSE_MAX_S)), PAUSE_MAX_S))
        return {
            "request": f"r{number}",
            "job": job,
            "segments": list(numbers),
            "statuses": statuses,
            "reasons": reasons,
            "values": answer.get("values", {}),
            "errors": answer.get("errors", {}),
        }

    def _tried(self, request: urllib.request.Request) -> tuple[int, dict[str, Any]]:
        """Status and answer of one try."""
        try:
            answer = urllib.request.urlopen(request, timeout=2 * TRY_S, context=self._trust)
        except urllib.error.HTTPError as error:
            answer = error
        except (OSError, http.client.HTTPException) as error:
            return 0, {"reason": repr(error)}
        try:
            with answer:
                return answer.status, json.load(answer)
        except (OSError, ValueError, http.client.HTTPException) as error:
            return 0, {"reason": repr(error)}


if __name__ == "__main__":
    Load(**json.loads(sys.argv[1])).run()
