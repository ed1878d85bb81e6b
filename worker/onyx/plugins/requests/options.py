"""Options of the inputs `requests` and `http`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from onyx.errors import Problem
from onyx.plugins.options import JournalOptions
from onyx.plugins.starting import StartFrom, wrong_start

if TYPE_CHECKING:  # options are also checked where Arrow is not installed
    from onyx.base.seams import Clock
    from onyx.requests.tokens import Tokens
    from onyx.rights import Rights


class RequestsOptions(JournalOptions, frozen=True):
    """How requests are spread, kept and remembered, and who may send them."""

    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Journals that take requests, each owned by one peer. A request goes to the one of its id."""
    partition_key: str | None = None
    """Key of a segment: segments with the same value go to the same partition, in the order in
    which they are taken. Without it, the segments of a request stay together."""
    remember_requests: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 100_000
    """Ids of requests that each partition remembers. One that is not processed always is."""
    remember_seconds: Annotated[int, msgspec.Meta(ge=0, le=31_536_000)] = 3_600
    """How long an id is remembered."""
    start_from: StartFrom | None = None
    """Where a job begins that upgrades another one with `initialize` for this input: at the
    `beginning` of what that has kept, at a time, a position, or so long or so many segments ago, or
    at the `end` with what is not processed, beyond which nothing begins. Without it the journal is
    a new one."""
    on_failure: Literal["answer", "retry"] = "retry"
    """Which failure of a segment is the answer to its request: with `answer` the first one, also
    where a function or a flow condition asks for a retry; with `retry` the one after the last
    retry."""
    token_file: str | None = None
    """File on each worker with the tokens (`Authorization: Bearer ...`) that open the input, one a
    line. It is read again when it changes. Without it and `tokenEnv`, anybody may send."""
    token_env: str | None = None
    """Variable of the workers' environment that holds the token."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from super().wrong()
        if self.start_from is not None:
            yield from wrong_start(self.start_from, {})
        if self.token_file is not None and self.token_env is not None:
            yield Problem("tokenEnv", "cannot be there together with tokenFile", "take one of them")
        for option, name in (("tokenFile", self.token_file), ("tokenEnv", self.token_env)):
            if name == "":
                yield Problem(option, "is empty", "leave it out for an input that is open to all")

    def tokens(self, rights: Rights, data_dir: str, clock: Clock, env: Mapping[str, str]) -> Tokens:
        """The tokens that a worker has for them. What the job may not name holds none."""
        from onyx.requests.tokens import Tokens
        from onyx.storage.opening import absolute

        path = self.token_file and absolute(self.token_file, data_dir)
        if path is not None and rights.why_not_path(path) is not None:
            return Tokens(clock, value="")
        value = self.token_env
        if value is not None:
            value = "" if rights.why_not_variable(value) else env.get(value, "")
        return Tokens(clock, path, value)
