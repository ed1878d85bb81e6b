"""For tests of jobs and plugins: a cluster around a block, and a kit that tries a plugin out."""

from onyx.testing.env import TestEnv, with_test_env

__all__ = ["TestEnv", "with_test_env"]
