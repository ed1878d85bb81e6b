"""What is generated for the builder is what the model and the plugins declare."""

from __future__ import annotations

from pathlib import Path

import onyx.builder
from onyx.builder import generate
from onyx.builder.generated import keys, plugins
from onyx.model.manifest import SECTIONS
from onyx.model.plugins import NAMES


def test_the_generated_modules_are_up_to_date() -> None:
    assert generate.stale() == [], "run python -m onyx.builder.generate"


def test_a_stale_module_is_noticed_and_written(tmp_path: Path) -> None:
    assert generate.main(["--check"], tmp_path) == 1
    assert generate.main([], tmp_path) == 0
    assert generate.main(["--check"], tmp_path) == 0


def test_every_plugin_has_a_function() -> None:
    assert {*NAMES} <= {*onyx.builder.__all__}
    assert all(callable(getattr(plugins, name)) for name in NAMES)


def test_every_key_of_a_task_has_a_type() -> None:
    placed = {"name", "type", "plugin", "spark_stage"}
    of_tasks = {key.field for key in SECTIONS["catalog"].keys} - placed
    assert keys.TaskKeys.__annotations__.keys() == of_tasks
