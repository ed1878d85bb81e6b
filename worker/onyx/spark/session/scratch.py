"""Where Spark's own files go on this machine: shuffles, spools, copies of parts.

They need not survive, and may be gigabytes. A folder of `state.local.scratch` goes with its owner,
or with the next one when the owner was killed; a temporary folder would stay, in a pod until that
is removed.
"""

from __future__ import annotations

from onyx.errors import Blocked, SettingsError
from onyx.state.local.scratch import Scratch, temporary_folder
from onyx.storage.file_system import is_full


def spark_scratch() -> Scratch:
    """A new folder in the system's temporary folder.

    Raises:
        Blocked: its disk is full.
        SettingsError: nothing can be written there.
    """
    try:
        return Scratch(temporary_folder(), "TMPDIR")
    except SettingsError as error:
        if is_full(error):
            raise Blocked(f"{error}, or free some space") from error
        raise
