"""The plugin of the guide, tested as the guide says."""

import re
from pathlib import Path

import msgspec
import pytest

from onyx.model.plugins import PLUGINS, BuiltIn
from onyx.plugins.options import options_of

GUIDES = Path(__file__).parents[3] / "docs" / "guide"
GUIDE = (GUIDES / "plugins.md").read_text()


def test_the_plugin_of_the_guide_passes_the_test_of_the_guide(tmp_path):
    names = {"__name__": "guide"}
    for code in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL):
        exec(compile(code, "docs/guide/plugins.md", "exec"), names)
    (tmp_path / "columns").mkdir()
    names["test_table"](tmp_path)
    names["test_columns_of_a_table"](tmp_path / "columns")
    names["test_outputs"](tmp_path)
    gathering = names["GatheringOutput"](_table(names, tmp_path))
    gathering.write([{"n": n} for n in range(1_001)])
    assert gathering.durable() == 1_001
    gathering.write([{"n": 0}])
    assert gathering.durable() == 1_001
    gathering.flush()
    assert gathering.durable() == len(names["written"](_table(names, tmp_path))) - 12
    gathering.close()


def _table(names, tmp_path):
    return names["TableOptions"](file=str(tmp_path / "out.db"), table="numbers")


TOGETHER = dict.fromkeys(("iterator", "nats", "redis", "source"), "queues.md")
"""Pages of several plugins."""


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda each: f"{each.name}-{each.type}")
def test_every_option_is_in_the_guide(plugin: BuiltIn) -> None:
    pages = [
        page.read_text()
        for pattern in (f"{plugin.name}.md", f"{plugin.name}-*.md", TOGETHER.get(plugin.name, ""))
        if pattern
        for page in GUIDES.glob(pattern)
    ]
    text = "".join(pages) or GUIDE
    for field in msgspec.structs.fields(options_of(plugin)):
        assert f"`{field.encode_name}`" in text
