"""Trying again what has failed, and not for ever: restarts, and segments that end processes."""
