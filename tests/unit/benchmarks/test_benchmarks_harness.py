"""What the benchmarks measure is what they say: whole process trees, right answers, medians."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import data, figures, harness

ROOT = Path(__file__).parents[3]


def test_a_wrong_answer_is_no_figure(bench_data: Path) -> None:
    liar = harness.Contender(
        "liar",
        lambda data, folder: [sys.executable, "-c", "print('ANSWER 1 1')"],
        harness.printed_answer,
    )
    with pytest.raises(harness.WrongAnswer, match="liar"):
        harness.compare([liar], data.segments(20), data.segments(10), 1, 60.0)


def test_an_answer_is_the_sum_of_what_the_processes_printed() -> None:
    assert harness.printed_answer("a log line\nANSWER 3 20\nANSWER 4 1\n", Path()) == (7, 21)
    with pytest.raises(harness.WrongAnswer, match="a log line"):
        harness.printed_answer("a log line", Path())


BURN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
ORPHAN = f"""
import os
if os.fork() == 0:
    if os.fork() == 0:
        {BURN.strip().replace(chr(10), chr(10) + "        ")}
    os._exit(0)
os.wait()
"""


def measured(command: str) -> float:
    """CPU seconds by the harness, in an interpreter of its own: it becomes a subreaper."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from benchmarks import harness\n"
        f"done = harness.run([sys.executable, '-c', {command!r}], {{}}, 60.0)\n"
        "print(done.cpu_s)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return float(done.stdout)


@pytest.mark.parametrize("program", [BURN, ORPHAN], ids=["itself", "an orphan of it"])
def test_the_cpu_of_a_tree_counts_orphans(program: str) -> None:
    assert measured(program) >= 0.3


def test_what_was_started_for_other_purposes_is_left_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        harness.run([sys.executable, "-c", "pass"], {}, 60.0)
        assert stranger.poll() is None
        stranger.communicate(b"\n")
    assert stranger.returncode == 0


def test_a_program_that_fails_is_told_with_its_output() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from benchmarks import harness\n"
        "try: harness.run([sys.executable, '-c', 'raise SystemExit(\"oh no\")'], {}, 60.0)\n"
        "except RuntimeError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert b"exit 1" in done.stdout
    assert b"oh no" in done.stdout


def made(name: str, *cpu_s: float) -> harness.Result:
    """A result of repeats that used so much."""
    contender = harness.Contender(name, lambda data, folder: [], harness.printed_answer)
    return harness.result(contender, [(each, harness.Run(1.0, 0.8, 20, "")) for each in cpu_s])


def test_the_report_has_ratios_and_says_who_is_absent(capsys: pytest.CaptureFixture[str]) -> None:
    absent = harness.Absent("gone", "not installed: pip install gone")
    results = [made("fast", 0.5), made("slow", 0.5, 0.7), made("wild", 0.1, 0.5), absent]
    report = harness.report("Title", results, "fast")
    shown = capsys.readouterr().out
    ratios = [each["ratio"] for each in report["results"] if "ratio" in each]
    assert ratios == [1.0, pytest.approx(1.2), None]
    assert "too noisy" in shown
    assert "pip install gone" in shown


def test_who_is_absent_is_not_run(bench_data: Path) -> None:
    absent = harness.Absent("gone", "not installed")
    found = harness.compare([absent], data.segments(20), data.segments(10), 1, 60.0)
    assert found == [absent]


@pytest.mark.parametrize(
    ("values", "too_noisy"),
    [
        ([1.0, 1.4, 1.2], False),
        ([0.5, 1.4, 0.8], True),
        ([1.0], False),
        ([-0.1], True),
        ([-1.0, -1.1], True),
        ([0.0], True),
    ],
    ids=["narrow", "wider than its median", "one repeat", "negative", "all negative", "nothing"],
)
def test_a_number_is_one_if_its_repeats_agree(values: list[float], too_noisy: bool) -> None:
    assert figures.Repeats(tuple(values)).too_noisy is too_noisy


def test_start_up_is_subtracted_from_the_run_beside_it() -> None:
    whole, start = figures.Repeats((5.0, 9.0, 5.5)), figures.Repeats((2.0, 6.0, 2.0))
    assert whole.less(start).values == (3.0, 3.0, 3.5)
    assert whole.less(start).per(2).typical == 1.5


def test_a_ratio_to_noise_is_noise() -> None:
    sure, noise = figures.Repeats((2.0, 3.0)), figures.Repeats((0.1, 3.0))
    assert sure.over(sure) == (1.0, 1.0)
    assert sure.over(noise) == noise.over(sure) == (None, None)


def test_noise_is_held_against_no_goal(capsys: pytest.CaptureFixture[str]) -> None:
    sure, noise = figures.Repeats((2.0, 3.0)), figures.Repeats((0.1, 3.0))
    found = figures.ratio("ratio", sure, noise, 1.3), figures.typical("cost", noise, "us", 1.0)
    assert [each.ok for each in found] == [None, None]
    figures.publish(figures.Measured(found), None)
    shown = capsys.readouterr().out
    assert shown.count("too noisy") == 2
    assert "SHORT" not in shown


@pytest.mark.parametrize(
    ("arguments", "segments"),
    [([], 500), (["--quick"], 50), (["--tiny"], 5), (["--tiny", "--segments", "7"], 7)],
    ids=["full", "quick", "tiny", "given"],
)
def test_the_size_says_how_much_where_it_is_not_said(arguments: list[str], segments: int) -> None:
    options = figures.Options("Title")
    options.sized("--segments", 500, 50, 5, "of the job")
    found = options.chosen(arguments)
    assert found.segments == segments


def test_a_figure_without_a_goal_is_not_short_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    figure = figures.Figure("cost", 3.0, "ns")
    figures.publish(figures.Measured([figure]), None)
    shown = capsys.readouterr().out
    assert figure.ok is None
    assert "3.00" in shown
    assert "SHORT" not in shown


def test_start_up_is_left_in_where_no_run_tells_it(bench_data: Path) -> None:
    program = "import time\nwhile time.process_time() < 0.1: pass\nprint('ANSWER', *range(2))"
    known = data.Data(bench_data, 20, (0, 1))
    burner = harness.Contender(
        "burner", lambda data, folder: [sys.executable, "-c", program], harness.printed_answer
    )
    (found,) = harness.compare([burner], known, None, 1, 60.0)
    assert isinstance(found, harness.Result)
    assert found.cpu_s_per_million.typical >= 0.1 * 1e6 / 20


def test_a_figure_is_held_against_its_goal_from_the_right_side() -> None:
    verdicts = [
        figures.Figure("ratio", value, "x", 1.3, at_least=at_least).ok
        for value in (1.2, 1.3, 1.4)
        for at_least in (False, True)
    ]
    assert verdicts == [True, False, True, True, False, True]


def test_figures_are_published_as_a_table_and_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = figures.Figure("start", 5.0, "s", 4.0, best=4.5)
    figures.publish(figures.Measured([short], {"more": 1}), tmp_path / "out.json")
    assert "SHORT" in capsys.readouterr().out
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["details"] == {"more": 1}
    (row,) = document["figures"]
    assert (row["name"], row["value"], row["best"], row["ok"]) == ("start", 5.0, 4.5, False)
