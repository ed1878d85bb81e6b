"""Plugins are found by name, and wrong options are reported before anything runs."""

import subprocess
import sys

import pytest
from tests.support.jobs.plugin_context import plugin_context

from onyx.base.on_demand import loaded
from onyx.errors import NameNotRegistered, UserError, UserFunctionError
from onyx.model.plugins import PLUGINS
from onyx.plugins.options import Options, options_of
from onyx.plugins.registry import build_input, build_output

NEEDED_BY_PLUGINS = (
    "pyarrow", "confluent_kafka", "sqlalchemy", "psycopg", "pyspark", "botocore", "urllib3",
)  # fmt: skip


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda each: f"{each.name}-{each.type}")
def test_every_row_leads_to_a_plugin_and_its_options(plugin):
    assert callable(loaded(plugin.factory))
    assert issubclass(options_of(plugin), Options)


def test_no_plugin_is_declared_twice():
    assert len({(each.type, each.name) for each in PLUGINS}) == len(PLUGINS)


def test_options_import_nothing_that_only_a_plugin_needs():
    script = (
        "import sys\nfrom onyx.model.plugins import PLUGINS\n"
        "from onyx.plugins.options import options_of\nfor each in PLUGINS: options_of(each)\n"
        f"print([name for name in {NEEDED_BY_PLUGINS!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_users_own_plugin_is_resolved_by_its_name():
    made = build_input("sequence", plugin_context({"segments": []}))
    context = plugin_context({"any": 1}, functions={"my.plugins:reader": lambda context: made})
    assert build_input("my.plugins:reader", context).partitions() == made.partitions()
    with pytest.raises(NameNotRegistered):
        build_input("my.plugins:other", context)


@pytest.mark.parametrize(
    ("build", "name", "options", "why"),
    [
        (build_input, "file", {}, "did you mean files?"),
        (build_input, "amqp-ish", {}, "its name is not known"),
        (build_input, "blackhole", {}, "can only write; here it must be channel, files"),
        (build_output, "sequence", {}, "can only read"),
        (build_input, "sequence", {}, "option 'segments' is missing"),
        (build_input, "sequence", {"segments": 3}, "option 'segments' is wrong: expected `array`"),
        (build_input, "sequence", {"segments": [{}, 3]}, "option 'segments[1]'"),
        (build_input, "sequence", {"segment": []}, "did you mean segments?"),
        (build_input, "generator", {"rate_per_second": 1}, "did you mean ratePerSecond?"),
        (build_input, "generator", {"ratePerSecond": 0}, "option 'ratePerSecond' is wrong"),
        (build_input, "generator", {"segments": True}, "option 'segments' is wrong"),
        (build_input, "generator", {"partitions": 0}, "option 'partitions' is wrong"),
        (build_output, "blackhole", {"x": 1}, "option 'x' is not known; known are: none"),
        (build_output, "function", {}, "option 'fn' is missing"),
        (build_input, "channel", {"channel": "nobody"}, "open_channel('nobody')"),
    ],
)
def test_mistakes_name_job_task_key_and_cure(build, name, options, why):
    with pytest.raises(UserError) as wrong:
        build(name, plugin_context(options))
    assert "job 'flights', task 'work'" in str(wrong.value)
    assert why in str(wrong.value)


def test_a_plugin_of_a_user_that_raises_is_the_users_error():
    context = plugin_context({}, functions={"my:plugin": lambda context: 1 // 0})
    with pytest.raises(UserFunctionError, match="my:plugin raised ZeroDivisionError"):
        build_output("my:plugin", context)


def test_what_is_missing_in_a_plugin_is_listed():
    context = plugin_context({}, functions={"my:plugin": lambda context: object()})
    with pytest.raises(UserError, match="object without close, column_types, cooper"):
        build_input("my:plugin", context)
