"""Which inputs are open to whom, and what others may learn of them.

Every request is looked at here, whichever wire it came by, and again whenever it goes to another
job than before. A worker that hands a part of a request over is trusted for its certificate. Where
workers have none, nobody can tell a worker from a stranger, so the token goes with the part, and
the owner of the partition looks at it once more.

Rejected: a secret that all workers share in place of that. It would be one more thing to keep, and
whoever had it would be let in everywhere.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from onyx.base.seams import Clock
from onyx.peer.router.inputs import RequestInput, RequestInputs
from onyx.plugins.options import check_options
from onyx.plugins.requests.options import RequestsOptions
from onyx.plugins.requests.token_options import tokens_of
from onyx.requests.caller import Caller
from onyx.requests.request import Answer, Status, not_final
from onyx.requests.tokens import Tokens
from onyx.rights import rights_of
from onyx.settings import Settings

HTTP = "http"
INPUTS_MAX = 1_024
"""Inputs whose tokens are remembered."""
WHAT = "the input"


class InputTokens:
    """The tokens of all inputs, as one worker has them. Safe from any thread."""

    def __init__(
        self, settings: Settings, clock: Clock, env: Mapping[str, str] = os.environ
    ) -> None:
        self._rights = rights_of(settings)
        self._data_dir = settings.data_dir
        self._clock = clock
        self._env = env
        self._found: OrderedDict[tuple[str, str], Tokens] = OrderedDict()

    def of(self, found: RequestInput) -> Tokens:
        """The tokens of an input. Those whose options are wrong are open to nobody."""
        key = (found.job, found.task)
        tokens = self._found.get(key)
        if tokens is None:
            options, problems = check_options(found.entry.options, RequestsOptions)
            if options is None or problems:
                return Tokens(self._clock, value="")
            tokens = tokens_of(options, self._rights, self._data_dir, self._clock, self._env)
            self._found[key] = tokens
            if len(self._found) > INPUTS_MAX:
                self._found.popitem(last=False)
        return tokens


class Access:
    """Finds inputs for those who may use them."""

    def __init__(
        self,
        inputs: RequestInputs,
        tokens: InputTokens,
        background: Callable[[Callable[[], Any]], Future[Any]],
    ) -> None:
        self._inputs = inputs
        self._tokens = tokens
        self._background = background

    def opens(self, found: RequestInput, caller: Caller) -> bool:
        """Whether an input is open to a caller. From any thread."""
        if caller.worker:
            return True
        if caller.http and found.entry.plugin != HTTP:
            return False
        tokens = self._tokens.of(found)
        return not tokens.wanted or bool(caller.token and tokens.opened_by(caller.token))

    async def find(
        self, job: str, task: str, is_new: bool, caller: Caller
    ) -> RequestInput | Answer:
        """The input that a caller names, or the answer that there is none for it. `is_new`: no
        journal can have the request."""
        found: RequestInput | Answer = self._inputs.known(job, task) or await self._blocking(
            lambda: self._inputs.find(job, task, is_new)
        )
        if caller.worker:
            return found
        if not await self._may_know(job, found, caller):
            unheard_of: Answer = await self._blocking(lambda: self._inputs.unheard_of(job, is_new))
            return unheard_of
        if isinstance(found, Answer):
            return found
        if caller.http and found.entry.plugin != HTTP:
            plugin = found.entry.plugin
            what = f"input {found.task!r} is not served over HTTP: its plugin is {plugin!r}"
            unserved = Answer(Status.UNKNOWN, what)
            return not_final(unserved) if not is_new and found.follows else unserved
        return self._tokens.of(found).refusal(caller.token, WHAT) or found

    async def _may_know(self, job: str, found: RequestInput | Answer, caller: Caller) -> bool:
        """Whether the caller may know what was found: that a job is there, what it is called and
        which inputs it has. A job without an input that is open to the caller is none to it. But
        who knows the whole name of a job or its id learns that a token is wanted."""
        if isinstance(found, RequestInput) and (not caller.http or found.entry.plugin == HTTP):
            return job in (found.job, found.job_name) or self.opens(found, caller)
        inputs = await self._blocking(lambda: self._inputs.of(job))
        return inputs is None or any(self.opens(each, caller) for each in inputs)

    async def _blocking(self, ask: Callable[[], Any]) -> Any:
        return await asyncio.wrap_future(self._background(ask))
