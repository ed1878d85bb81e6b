"""The alert rules as Prometheus itself judges them: syntax, and when each fires."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.monitoring.prometheus import program
from tests.support.generated import promql

CASES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("alert_cases.yaml").read_text()
)


def promtool(*arguments: str) -> None:
    done = subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_rules() -> None:
    promtool("check", "rules", str(promql.RULES))


def test_every_alert_has_a_case() -> None:
    assert [rule["alert"] for rule in promql.rules()] == list(CASES)


@pytest.mark.parametrize("fires", [True, False], ids=["fires", "quiet"])
@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_when_it_should_and_only_then(
    alert: str, fires: bool, tmp_path: Path
) -> None:
    case = CASES[alert]
    firing = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
    expected = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if fires else []
    test = {
        "interval": "1m",
        "input_series": case["fires" if fires else "quiet"],
        "promql_expr_test": [
            {
                "expr": f"count by (alertname) ({firing})",
                "eval_time": case["at"],
                "exp_samples": expected,
            }
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(
        yaml.safe_dump(
            {"rule_files": [str(promql.RULES)], "evaluation_interval": "1m", "tests": [test]}
        )
    )

    promtool("test", "rules", str(file))
