"""An input of a source that has acks, in either mode."""

from __future__ import annotations

from onyx.plugins.protocol import PluginContext
from onyx.plugins.sources.input import JournalledInput
from onyx.plugins.sources.native import NativeInput
from onyx.plugins.sources.options import LiveOptions
from onyx.plugins.sources.protocol import OpenSource

LiveInput = JournalledInput | NativeInput


def live_input(
    context: PluginContext,
    options: LiveOptions,
    partitions: int,
    opener: OpenSource,
    examine: bool = False,
) -> LiveInput:
    """The input, as the option `mode` says."""
    if options.mode == "native":
        returns_failures = options.on_failure == "source"
        return NativeInput(context, partitions, opener, examine, returns_failures)
    return JournalledInput(context, options, partitions, opener, examine)
