"""The worker's side of the end of a query: what it left staged or spooled becomes visible.

The plugins are built by the worker, with its incarnation and its `permitted`, so a worker that was
declared dead publishes nothing: its staged work has been removed. Publishing may be repeated after
a crash, by this worker or the next one, with the same reply: a token that was published is passed
over. Only what is spooled is written again, as everything is that such outputs write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from onyx.errors import Fenced, UserError
from onyx.plugins.protocol import Output, StagingOutput
from onyx.spark.query.request import OutputResult
from onyx.spark.query.spools import read_spool

POLL_S = 0.05
"""Between two looks at whether a plugin has written what it was given."""


def publish(
    outputs: Mapping[str, OutputResult],
    build: Callable[[str], Output],
    wanted: Callable[[], bool],
) -> None:
    """Publish what a query has written, and seal each output; blocks.

    Args:
        outputs: of the reply.
        build: makes the plugin of a task, whose context has the `attempt` of the request and a
            hyphen as its `writer`.
        wanted: false once the worker is to stop, or may have been declared dead.

    Raises:
        Fenced: it was not wanted any more.
        OnyxError: as `Output.write` and `Output.seal`. It may be called again.
    """
    for task, result in outputs.items():
        plugin = build(task)
        if not wanted():
            raise Fenced(f"task {task!r}: nothing is published any more")
        if isinstance(plugin, StagingOutput):
            for token in result.tokens:
                plugin.finish(token)
        elif result.tokens:
            raise UserError(f"task {task!r}: its plugin cannot publish what was staged")
        _write(plugin, result, wanted)
        plugin.seal()
        if isinstance(plugin, StagingOutput):
            plugin.sweep()
        plugin.close()


def _write(plugin: Output, result: OutputResult, wanted: Callable[[], bool]) -> None:
    written = plugin.durable()
    for spool in result.spools:
        for segments in read_spool(Path(spool)):
            plugin.write(segments)
            written += len(segments)
    plugin.flush()
    while plugin.durable() < written:
        if not wanted():
            raise Fenced("what was spooled is not written any more")
        time.sleep(POLL_S)
        plugin.tick()
