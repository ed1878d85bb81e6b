"""The alert rules as Prometheus itself judges them: syntax, and when each fires."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml
from tests.monitoring.prometheus import INSTALLED
from tests.support.generated import promql

pytestmark = INSTALLED
CASES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("alert_cases.yaml").read_text()
)


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_rules() -> None:
    promtool("check", "rules", str(promql.RULES))


def test_every_alert_has_a_case() -> None:
    assert [rule["alert"] for rule in promql.rules()] == list(dict.fromkeys(map(alert_of, CASES)))


def test_an_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    """In one process for all: each case has its own series."""
    cases = [case(name, which) for name in CASES for which in ("fires", "quiet")]
    file = tmp_path / "test.yaml"
    file.write_text(
        yaml.safe_dump(
            {"rule_files": [str(promql.RULES)], "evaluation_interval": "1m", "tests": cases}
        )
    )

    promtool("test", "rules", str(file))


def alert_of(name: str) -> str:
    """The alert of a case: `OnyxJobFallsBehind, in bytes` is another one of the same."""
    return name.partition(",")[0]


def case(name: str, which: str) -> dict[str, Any]:
    """What promtool takes: the series of a case, and whether the alert fires by then."""
    alert = alert_of(name)
    firing = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
    expected = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if which == "fires" else []
    return {
        "name": f"{name} {which}",
        "interval": "1m",
        "input_series": CASES[name][which],
        "promql_expr_test": [
            {
                "expr": f"count by (alertname) ({firing})",
                "eval_time": CASES[name]["at"],
                "exp_samples": expected,
            }
        ],
    }
