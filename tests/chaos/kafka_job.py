"""The job under chaos between two topics: the `kafka` input behind a gate. Imported by workers."""

from __future__ import annotations

from pathlib import Path

from chaos_job import GatedFiles
from msgspec.structs import replace

from onyx.plugins.protocol import PluginContext
from onyx.plugins.registry import build_input


def gated_kafka(context: PluginContext) -> GatedFiles:
    """The input behind the gate in option `gate`: messages that may be read of each partition."""
    options = dict(context.options)
    gate = Path(options.pop("gate"))
    return GatedFiles(build_input("kafka", replace(context, options=options)), gate)


def numbered(segment):
    return {"n": segment["n"], "partition": segment["p"], "offset": segment["o"]}
