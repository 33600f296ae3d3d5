"""How a worker ends, and what it says when it cannot do its work."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fake_server import FakeServer, answer
from test_worker_support import APP, Server, Worker, is_alive, until
from tidegate.worker.console import Console

_SUBPROCESS = """
import subprocess

@job
def starts(file: str):
    started = subprocess.Popen(["sleep", "60"])
    part = pathlib.Path(file + ".part")
    part.write_text(str(started.pid))
    part.rename(file)
    time.sleep(60)

@job
def starts_and_exits(file: str):
    if pathlib.Path(file).exists():
        return
    started = subprocess.Popen(["sleep", "60"])
    pathlib.Path(file).write_text(str(started.pid))
    os._exit(0)
"""


_UNTIL_FILE = """
@job
def until_file(folder: str):
    pathlib.Path(folder, "begun").write_text("")
    while not pathlib.Path(folder, "go").exists():
        time.sleep(0.01)
    pathlib.Path(folder, "ended").write_text("")
"""

_COUNTS = """
import itertools

_calls = itertools.count(1)

@job
def counts(folder: str, number: int):
    with open(os.path.join(folder, "calls"), "a") as calls:
        calls.write(f"{number}\\n")
    if next(_calls) == 200:
        pathlib.Path(folder, "begun").write_text("")
        while not pathlib.Path(folder, "go").exists():
            time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("server"))
    yield made
    made.close()


def test_a_signal_after_a_drain_leaves_the_grace(server: Server, tmp_path: pathlib.Path) -> None:
    worker = Worker(server, tmp_path, "--name", "drained").ready()
    # A job that is leased and has not begun would go back, and the worker would end before the signal.
    workflow = server.create("begins", {"file": str(tmp_path / "begun"), "seconds": 1.5})
    until((tmp_path / "begun").exists, "it runs")
    server.client.drain_worker("drained")
    worker.prints("drain: ")
    assert worker.stop() == 0
    assert server.job(workflow)["state"] == "succeeded"


def test_the_grace_after_a_drain_has_an_end(server: Server, tmp_path: pathlib.Path) -> None:
    worker = Worker(server, tmp_path, "--name", "drained-2", "--grace", "0.2s").ready()
    workflow = server.create("begins", {"file": str(tmp_path / "begun"), "seconds": 60})
    until((tmp_path / "begun").exists, "it runs")
    server.client.drain_worker("drained-2")
    worker.prints("drain: ")
    assert worker.stop() == 0
    assert server.state(workflow) == "ready"
    server.client.cancel_workflow(workflow)


@pytest.mark.parametrize("how", ["child", "worker", "stop", "twice"])
def test_what_a_job_has_started_does_not_outlive_it(server: Server, tmp_path: pathlib.Path, how: str) -> None:
    (tmp_path / "app.py").write_text(APP + _SUBPROCESS)
    worker = Worker(server, tmp_path, "--grace", "0.2s").ready()
    workflow = server.create("starts", {"file": str(tmp_path / "pid")})
    until((tmp_path / "pid").exists, "it has started a process")
    started = int((tmp_path / "pid").read_text())
    if how == "child":
        # It would begin again in another process.
        server.client.cancel_workflow(workflow)
        os.kill(worker.children()[0], signal.SIGKILL)
    elif how == "worker":
        worker.process.kill()
    else:
        worker.process.terminate()
        if how == "twice":
            worker.prints("no more jobs")
            worker.process.terminate()
    until(lambda: not is_alive(started), "it has ended")
    worker.close()
    if how != "child":
        server.client.cancel_workflow(workflow)


def test_what_a_job_has_started_ends_also_when_it_exits_well(server: Server, tmp_path: pathlib.Path) -> None:
    (tmp_path / "app.py").write_text(APP + _SUBPROCESS)
    worker = Worker(server, tmp_path).ready()
    workflow = server.create("starts_and_exits", {"file": str(tmp_path / "pid")})
    until(lambda: server.state(workflow) == "succeeded", "it has run again")
    started = int((tmp_path / "pid").read_text())
    until(lambda: not is_alive(started), "what it had started has ended")
    worker.close()


def test_a_result_that_the_server_refuses_is_lost(server: Server, tmp_path: pathlib.Path) -> None:
    """The worker counted it as a success: only the server knew that it was not wanted any more."""
    (tmp_path / "app.py").write_text(APP + _UNTIL_FILE)
    worker = Worker(server, tmp_path, "--lease", "600s").ready()
    workflow = server.create("until_file", {"folder": str(tmp_path)})
    until((tmp_path / "begun").exists, "it runs")
    # The parent, which gets the notice first, stands still.
    os.kill(worker.process.pid, signal.SIGSTOP)
    try:
        server.client.cancel_workflow(workflow)
        (tmp_path / "go").write_text("")
        until((tmp_path / "ended").exists, "it ends")
        # Reported with it, or later.
        after = server.create("noop")
        until(lambda: server.state(after) == "succeeded", "another one is reported")
    finally:
        os.kill(worker.process.pid, signal.SIGCONT)
    worker.prints("the lease is over (cancelled), and the result was dropped")
    assert worker.stop() == 0


def test_something_else_that_answers_for_a_while_ends_no_worker(tmp_path: pathlib.Path) -> None:
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")
    worker = Worker(server, tmp_path / "w").ready()
    try:
        assert server.job(server.create("noop"))["state"] == "succeeded"
        host, port = server.url.removeprefix("http://").split(":")
        server.kill()
        refusal = answer(b'{"code": 42, "message": "unknown operation"}', "422 Unprocessable Content")
        with FakeServer(*[refusal] * 20, at=(host, int(port))) as other:
            until(lambda: len(other.requests) > 3, "the worker asks")
        server.start()
        worker.prints("connected again")
        assert server.job(server.create("noop"))["state"] == "succeeded"
        assert worker.stop() == 0
    finally:
        worker.close()
        server.close()


def test_too_many_queues_are_an_error(server: Server, tmp_path: pathlib.Path) -> None:
    worker = Worker(server, tmp_path, "--queues", ",".join(f"q{n}" for n in range(101)))
    assert worker.process.wait(10) == 2
    assert "names 101 queues, and a worker serves at most 100" in worker.text()


def test_a_token_that_is_refused_later_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TOKEN", "adminadminadminadmin")
    tokens = tmp_path / "tokens"
    admin = "admin boss adminadminadminadmin\n"
    tokens.write_text(f"{admin}work worker workworkworkworkwork\n")
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server", TIDEGATE_TOKENS_FILE=str(tokens))
    worker = Worker(server, tmp_path / "w", TIDEGATE_TOKEN="workworkworkworkwork").ready()
    try:
        assert server.job(server.create("noop"))["state"] == "succeeded"
        for left, printed in (
            (admin, "refuses the token of this worker: the token is not known"),
            (f"{admin}read worker workworkworkworkwork\n", "refuses the token of this worker: the token of worker has"),
        ):
            tokens.write_text(left)
            server.kill()
            server.start()
            worker.prints(printed)
            assert worker.process.poll() is None
        tokens.write_text(f"{admin}work worker workworkworkworkwork\n")
        server.kill()
        server.start()
        worker.prints("connected again")
        assert server.job(server.create("noop"))["state"] == "succeeded"
        assert worker.stop() == 0
        assert "workwork" not in worker.text()
    finally:
        worker.close()
        server.close()


def test_a_program_that_was_broken_is_loaded_when_it_is_whole(server: Server, tmp_path: pathlib.Path) -> None:
    whole = APP.replace("def noop", "def mended")
    (tmp_path / "app.py").write_text("def f(:\n")
    worker = Worker(server, tmp_path, "--reload")
    try:
        worker.prints("SyntaxError")
        (tmp_path / "part.py").write_text("x = = 1\n")
        (tmp_path / "app.py").write_text("import part\n" + whole)
        worker.prints("(part.py, line 1)")
        (tmp_path / "part.py").write_text("x = 1\n")
        worker.ready()
        assert server.job(server.create("mended"))["state"] == "succeeded"
    finally:
        worker.close()


def test_a_worker_without_an_output_works(server: Server, tmp_path: pathlib.Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    command = f"exec {sys.executable} -m tidegate.worker app --name mute >&- 2>&-"
    environment = {**os.environ, "TIDEGATE_SERVER": server.url}
    process = subprocess.Popen(["sh", "-c", command], cwd=tmp_path, env=environment)
    try:
        assert server.job(server.create("noop"))["state"] == "succeeded"
    finally:
        process.terminate()
        assert process.wait(20) == 0


def test_a_slow_reader_holds_up_no_thread() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as out, os.fdopen(reading, "rb") as read:
        console = Console(out=out)
        for _ in range(2000):
            console.log("x" * 100)
        read.read1(1_000_000)
        console.log("the last")
        output = read.read1(1_000_000).decode()
    assert "lines were left out here" in output
    assert "the last" in output


def test_a_job_of_a_worker_that_was_killed_while_it_stopped_is_not_lost(server: Server, tmp_path: pathlib.Path) -> None:
    """A job that took longer than the time between two deployments had failed after the fourth."""
    begun = tmp_path / "begun"
    workflow = server.create("begins", {"file": str(begun), "seconds": 60.0}, max_lost=0)
    worker = Worker(server, tmp_path, "--lease", "5s").ready()
    next_one: Worker | None = None
    try:
        until(begun.exists, "it runs")
        worker.process.send_signal(signal.SIGTERM)
        worker.prints("no more jobs are taken")
        ends: set[str] = set()

        def extended() -> int:
            ends.add(server.job(workflow, wait=0)["lease_expires_at"])
            return len(ends)

        # One extension may have been on its way at the signal.
        until(lambda: extended() > 2, "the lease is extended twice")
        for process in (*worker.children(), worker.process.pid):
            os.kill(process, signal.SIGKILL)
        begun.unlink()
        next_one = Worker(server, tmp_path, "--lease", "5s").ready()
        until(begun.exists, "it runs again", 20)
        shown = server.job(workflow, wait=0)
        assert (shown["state"], shown["lost_total"]) == ("running", 0)
        server.client.cancel_workflow(workflow)
    finally:
        worker.close()
        if next_one is not None:
            next_one.close()


def test_a_worker_that_stops_half_way_spends_no_units_without_a_call(tmp_path: pathlib.Path) -> None:
    """Jobs that it had taken ahead under a rate limit took their units with them."""
    folder, calls = tmp_path / "server", tmp_path / "calls"
    (folder / "config").mkdir(parents=True)
    (folder / "config" / "vendor.yaml").write_text(
        "domain: vendor\ndescriptors:\n  - key: account\n    rate_limit: {unit: year, requests_per_unit: 600}\n"
    )
    server = Server(folder)
    (tmp_path / "app.py").write_text(APP + _COUNTS)
    limits = [{"domain": "vendor", "entries": [["account", "acme"]]}]
    made: list[dict[str, Any]] = []
    for number in range(800):
        params = {"folder": str(tmp_path), "number": number}
        made.append({"name": "counts", "handler": "app.counts", "params": params, "limits": limits})
    server.client.create_workflows({"workflows": [{"name": "counts", "jobs": [one]} for one in made]})
    worker = Worker(server, tmp_path, "--concurrency", "1")
    next_one: Worker | None = None
    try:
        until((tmp_path / "begun").exists, "it is half way", 20)
        worker.process.send_signal(signal.SIGTERM)
        worker.prints("no more jobs are taken")
        (tmp_path / "go").write_text("")
        assert worker.process.wait(20) == 0
        # Some that were taken ahead may begin before their process knows that the worker stops.
        assert 200 <= len(calls.read_text().splitlines()) < 600
        next_one = Worker(server, tmp_path, "--concurrency", "1")
        until(lambda: server.count("succeeded") == 600, "all units are used", 60)
        assert len(set(calls.read_text().splitlines())) == len(calls.read_text().splitlines()) == 600
    finally:
        worker.close()
        if next_one is not None:
            next_one.close()
        server.close()
