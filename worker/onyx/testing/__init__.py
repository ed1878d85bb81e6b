"""For tests: a whole cluster, a queue in memory, stages of Spark, and checks of plugins and
processors."""

from onyx.plugins.channel import Channel, open_channel
from onyx.testing.columns_kit import check_columns_input
from onyx.testing.env import TestEnv, with_test_env
from onyx.testing.plugin_kit import check_input, check_output
from onyx.testing.processors import Watermark, verify_processor
from onyx.testing.stages import run_stage

__all__ = [
    "Channel",
    "TestEnv",
    "Watermark",
    "check_columns_input",
    "check_input",
    "check_output",
    "open_channel",
    "run_stage",
    "verify_processor",
    "with_test_env",
]
