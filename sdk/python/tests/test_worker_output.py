"""The lines of a worker are for people: what it runs, what is odd about its options, and what to do."""

from __future__ import annotations

import pathlib
import re
import signal
import urllib.request
from collections.abc import Iterator

import pytest

from test_worker_support import Server, Worker, until
from tidegate.worker.outage import Outage

RUNS_ONE = b"\ntidegate_worker_running 1\n"
ONE = "from tidegate import job\n\n\n@job\ndef one() -> None: ...\n"


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[Server]:
    folder = tmp_path / "server"
    folder.mkdir()
    made = Server(folder)
    yield made
    made.close()


def run(server: Server | str, folder: pathlib.Path, *arguments: str) -> Worker:
    folder.mkdir(exist_ok=True)
    (folder / "app.py").write_text(ONE)
    return Worker(server, folder, "--name", "vm-1", *arguments)


def test_the_first_line_names_the_jobs(server: Server, tmp_path: pathlib.Path) -> None:
    for place, (arguments, line) in enumerate(
        [
            ([], "1 job function of app, queue default, 1 process, up to 16 jobs at a time; "),
            (
                ["--processes", "2", "--concurrency", "1", "--queues", "default,web"],
                "1 job function of app, queues default, web, 2 processes, each up to 1 job at a time; ",
            ),
        ]
    ):
        worker = run(server, tmp_path / str(place), *arguments)
        try:
            worker.prints(f"worker vm-1: {line}{server.url}")
        finally:
            worker.close()


def test_a_queue_that_no_job_names_is_printed_once(server: Server, tmp_path: pathlib.Path) -> None:
    worker = run(server, tmp_path / "worker", "--queues", "defualt", "--processes", "2")
    try:
        worker.prints("no job of app names the queue defualt: jobs come from there only if workflows name it")
        assert worker.stop() == 0
    finally:
        worker.close()
    assert worker.text().count("defualt: jobs come") == 1


def test_one_job_has_some_time_to_end(server: Server, tmp_path: pathlib.Path) -> None:
    worker = Worker(server, tmp_path / "worker", "--health", "0").ready()
    try:
        server.create("nap", {"seconds": 3.0})
        found = re.search(r"http://127.0.0.1:[0-9]+", worker.text())
        assert found is not None
        # The process that gets the signal counts the messages of its children.
        until(lambda: RUNS_ONE in urllib.request.urlopen(f"{found[0]}/metrics").read(), "it runs")
        assert worker.stop(signal.SIGINT) == 0
    finally:
        worker.close()
    assert "no more jobs are taken; 1 job has 18 s to end" in worker.text()


def test_https_to_an_http_port_has_one_advice(server: Server, tmp_path: pathlib.Path) -> None:
    worker = run(server.url.replace("http:", "https:"), tmp_path / "worker")
    try:
        worker.prints("it does not speak TLS. Use http:// in TIDEGATE_SERVER. Trying again")
    finally:
        worker.close()
    assert "Start the server" not in worker.text()


def test_an_outage_names_the_way_out() -> None:
    logged: list[str] = []
    Outage("http://here", logged.append).begin("connection refused", 0)
    advice = "Start the server, or set TIDEGATE_SERVER to its address. Trying again"
    assert logged == [f"http://here does not answer: connection refused. {advice}"]
