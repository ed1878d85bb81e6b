"""The pages of a supervisor: those of its processes, over real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from prometheus_client import generate_latest
from prometheus_client.core import Exemplar
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from onyx.telemetry.http_server import TelemetryServer
from onyx.telemetry.metrics import PrometheusGroupMetrics
from onyx.telemetry.processes import ProcessPages, ask, metrics_path


class Process:
    """The endpoint of one worker process."""

    def __init__(self, segments: int) -> None:
        metrics = PrometheusGroupMetrics({"submit-job"}, "1.2.3")
        self.input = metrics.task("flights", "parse")
        self.input.batch(read=segments, written=1, read_s=0.1)
        self.healthy: bool | str = True
        self.ready: bool | str = True
        self.running = True
        self.server = TelemetryServer(
            *("127.0.0.1", 0, metrics.registry, lambda: self.healthy, lambda: self.ready),
            lag=lambda: b'[{"group": "%d"}]' % segments,
        )


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    made = [Process(10), Process(32)]
    yield made
    for each in made:
        each.server.close()


@pytest.fixture
def pages(processes: list[Process]) -> ProcessPages:
    ports = [each.server.port for each in processes]
    return ProcessPages(ports, lambda number: processes[number].running)


def test_every_series_of_every_process_is_shown_once(pages: ProcessPages) -> None:
    lines = generate_latest(pages.registry).decode().splitlines()

    for number, segments in (0, 10), (1, 32):
        where = f'job="flights",process="{number}",task="parse"'
        assert f"onyx_task_segments_in_total{{{where}}} {segments}.0" in lines
        assert f"onyx_task_batch_size_sum{{{where}}} {segments}.0" in lines
    types = [line for line in lines if line.startswith("# TYPE")]
    assert "# TYPE onyx_task_segments_in_total counter" in types
    assert "# TYPE onyx_task_batch_size histogram" in types
    assert len(types) == len(set(types))


@pytest.mark.parametrize(
    ("partition", "shown"),
    [
        ("orders/3", "orders/3"),
        ('a "b" \\ {c="d"} # {e}\n\0', "a b  {c=d} # {e}"),
        ("/é/" + "x" * 300, "x" * 109),
    ],
)
def test_a_slow_tree_is_an_example_where_openmetrics_is_asked_for(
    processes: list[Process], pages: ProcessPages, partition: str, shown: str
) -> None:
    processes[1].input.completed(0.3, 5, (partition, 17))
    server = TelemetryServer("127.0.0.1", 0, pages.registry, lambda: True, lambda: True)
    try:
        status, text = ask(server.port, "/metrics", CONTENT_TYPE_LATEST)
        _, plain = ask(server.port, "/metrics")
    finally:
        server.close()

    assert (status, text.count(" # {partition=")) == (200, 1)
    found = [
        (sample.labels, sample.exemplar)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.exemplar is not None
    ]
    where = {"job": "flights", "task": "parse", "process": "1", "le": "0.5"}
    assert found == [(where, Exemplar({"partition": shown, "position": "17"}, 0.3))]
    assert "onyx_segment_complete_seconds_bucket" in plain
    assert "partition=" not in plain


def test_processes_are_asked_only_for_the_series_that_are_wanted(
    pages: ProcessPages, processes: list[Process]
) -> None:
    server = TelemetryServer("127.0.0.1", 0, pages.registry, lambda: True, lambda: True)
    try:
        status, text = ask(server.port, metrics_path(["onyx_task_segments_in_total"]))
    finally:
        server.close()

    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert (status, samples) == (
        200,
        [
            f'onyx_task_segments_in_total{{job="flights",process="{number}",task="parse"}} {value}'
            for number, value in ((0, "10.0"), (1, "32.0"))
        ],
    )
    assert ask(processes[0].server.port, metrics_path(["none_like_this"])) == (200, "")


def test_the_documents_of_all_processes_that_answer_are_one_list(
    pages: ProcessPages, processes: list[Process]
) -> None:
    assert pages.lag() == b'[{"group": "10"},{"group": "32"}]'
    processes[0].server.close()
    assert pages.lag() == b'[{"group": "32"}]'


def test_all_processes_must_be_well(pages: ProcessPages, processes: list[Process]) -> None:
    assert (pages.healthy(), pages.ready()) == (True, True)
    processes[1].healthy = "the thread that the tasks share has not moved for 200 s"
    processes[1].ready = "joining the cluster"
    assert pages.healthy() == "process 1: the thread that the tasks share has not moved for 200 s"
    assert pages.ready() == "process 1: joining the cluster"


def test_a_process_that_is_started_again_is_not_ready_but_no_reason_to_end_the_others(
    pages: ProcessPages, processes: list[Process]
) -> None:
    processes[0].running = False
    assert pages.healthy() is True
    assert pages.ready() == "process 0: it has ended and is started again"


def test_a_process_that_does_not_answer_is_not_well() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        pages = ProcessPages([port], lambda _: True)
        assert str(pages.healthy()).startswith("process 0: no answer: ")
        assert ask(port, "/metrics")[0] == 0
        assert generate_latest(pages.registry) == b""
