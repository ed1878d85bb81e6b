"""The `kafka` plugins, which need a package of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onyx.plugins.kafka.options import KafkaInputOptions, KafkaOutputOptions
from onyx.plugins.options import read_options, task_error
from onyx.plugins.protocol import PluginContext

if TYPE_CHECKING:
    from onyx.plugins.kafka.input import KafkaInput
    from onyx.plugins.kafka.output import KafkaOutput


def kafka_input(context: PluginContext) -> KafkaInput:
    options = read_options(context, KafkaInputOptions)
    try:
        from onyx.plugins.kafka.client import KafkaClient
        from onyx.plugins.kafka.input import KafkaInput
    except ImportError as error:
        raise _missing(context, error) from error
    return KafkaInput(KafkaClient(context, options), options)


def kafka_output(context: PluginContext) -> KafkaOutput:
    options = read_options(context, KafkaOutputOptions)
    try:
        from onyx.plugins.kafka.client import KafkaClient
        from onyx.plugins.kafka.output import KafkaOutput
    except ImportError as error:
        raise _missing(context, error) from error
    return KafkaOutput(KafkaClient(context, options), options)


def _missing(context: PluginContext, error: ImportError) -> Exception:
    what = f"plugin 'kafka' needs {error.name}: pip install 'onyx-on-kubernetes[kafka]'"
    return task_error(context, what)
