"""For tests of jobs and plugins: a whole cluster, a queue in memory, and checks of a plugin."""

from onyx.plugins.channel import open_channel
from onyx.plugins.channel_queue import Channel
from onyx.testing.columns_kit import check_columns_input
from onyx.testing.env import TestEnv, with_test_env
from onyx.testing.plugin_kit import check_input, check_output

__all__ = [
    "Channel",
    "TestEnv",
    "check_columns_input",
    "check_input",
    "check_output",
    "open_channel",
    "with_test_env",
]
