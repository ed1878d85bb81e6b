"""How long tests wait for what has to come."""

from __future__ import annotations

WAIT_S = 240.0
"""What takes longer hangs, however busy the machine is. No test passes by waiting for so long."""
