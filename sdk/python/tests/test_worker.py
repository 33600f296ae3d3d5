"""The worker against the real server: how jobs end, what is said, and how it starts and stops."""

from __future__ import annotations

import pathlib
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from test_worker_support import APP, Server, Worker, is_alive, until


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Worker]]:
    """A server, and a worker for tests that leave both as they are."""
    server = Server(tmp_path_factory.mktemp("server"))
    worker = Worker(server, tmp_path_factory.mktemp("worker"), "--health", "0").ready()
    yield server, worker
    worker.close()
    server.close()


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[Server]:
    folder = tmp_path / "server"
    folder.mkdir()
    made = Server(folder)
    yield made
    made.close()


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """Workers that a test adds are ended after it."""
    made: list[Worker] = []
    yield made
    for worker in made:
        worker.close()


@pytest.mark.parametrize(
    ("handler", "params", "output"),
    [("noop", {}, None), ("anoop", {}, "async"), ("add", {"a": 1, "b": 2}, 3)],
)
def test_a_job_returns(running: tuple[Server, Worker], handler: str, params: dict[str, Any], output: Any) -> None:
    job = running[0].job(running[0].create(handler, params))
    assert (job["state"], job.get("output")) == ("succeeded", output)


@pytest.mark.parametrize(
    ("handler", "kind", "message", "attempts"),
    [
        ("boom", "ValueError", "it broke", 2),
        ("never", "NonRetryable", "no use", 1),
        ("large", "NonRetryable", "2,000,002 bytes as JSON, and at most 1,048,576 are kept", 1),
        ("strange", "NonRetryable", "not JSON", 1),
        ("surrogate", "NonRetryable", "not JSON", 1),
        ("add", "NonRetryable", "needs the param 'a'", 1),
        ("leaves", "SystemExit", "3", 2),
    ],
)
def test_a_job_fails(running: tuple[Server, Worker], handler: str, kind: str, message: str, attempts: int) -> None:
    server = running[0]
    workflow = server.create(handler, retries=1, backoff="10ms")
    job = server.job(workflow)
    assert (job["state"], job["attempt"]) == ("failed", attempts)
    error = job["errors"][-1] if "errors" in job else job["error"]
    assert error["kind"] == kind
    assert message in error["message"]
    assert "tidegate/worker" not in (error.get("trace") or "")


def test_a_job_names_the_pause_before_its_next_attempt(running: tuple[Server, Worker]) -> None:
    server = running[0]
    job = server.job(server.create("again", retries=1, backoff="1h"))
    assert (job["state"], job["output"]) == ("succeeded", 2)


def test_notes_are_kept_within_their_bounds(running: tuple[Server, Worker]) -> None:
    server = running[0]
    workflow = server.create("talks")
    path = f"/v1/workflows/{workflow}/jobs/talks"
    until(lambda: bool(server.client.request("GET", path).get("progress")), "progress is shown", 3)
    assert server.state(workflow) == "running"
    progress = server.client.request("GET", path)["progress"]
    assert progress["percent"] == 40
    assert progress["text"].endswith("…")
    server.job(workflow)
    lines = [item["text"] for item in server.client.request("GET", f"{path}/log?limit=1000")["items"]]
    assert lines[:2] == ["INFO app: hello you", "a line"]
    assert lines[2].endswith("…")
    assert len(lines) == 256
    assert lines[-1] == "… 48 more lines in half a second were left out"


def test_figures_and_health_are_served(running: tuple[Server, Worker]) -> None:
    server, worker = running
    server.job(server.create("noop"))
    found = re.search(r"http://127.0.0.1:\d+", worker.text())
    assert found is not None
    with urllib.request.urlopen(f"{found[0]}/healthz") as answer:
        assert answer.read() == b"1 of 1 processes run jobs\n"

    def text() -> str:
        with urllib.request.urlopen(f"{found[0]}/metrics") as answer:
            return str(answer.read().decode())

    until(lambda: 'tidegate_worker_jobs_total{handler="app.noop",outcome="succeeded"} ' in text(), "jobs are counted")
    for name in ("job_seconds_bucket", "running", "claims_total", "report_retries_total"):
        assert f"tidegate_worker_{name}" in text()
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"{found[0]}/other")


@pytest.mark.parametrize("handler", ["waits", "awaits"])
def test_a_job_sees_that_it_is_cancelled(running: tuple[Server, Worker], tmp_path: pathlib.Path, handler: str) -> None:
    server = running[0]
    file = tmp_path / "reason"
    workflow = server.create(handler, {"file": str(file)})
    until(file.exists, "it runs")
    began = time.monotonic()
    server.client.request("POST", f"/v1/workflows/{workflow}:cancel", body={})
    until(lambda: file.exists() and file.read_text() == "cancelled", "the job notices", 3)
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("handler", ["waits", "awaits"])
def test_a_job_sees_that_its_time_is_over(running: tuple[Server, Worker], tmp_path: pathlib.Path, handler: str) -> None:
    server = running[0]
    file = tmp_path / "reason"
    job = server.job(server.create(handler, {"file": str(file)}, timeout="1s"))
    assert job["state"] == "failed"
    until(lambda: file.exists() and file.read_text() == "timed_out", "the job notices", 3)


def test_many_jobs_are_run_and_printed_in_few_lines(
    server: Server, workers: list[Worker], tmp_path: pathlib.Path
) -> None:
    server.create_many("noop", 3000)
    server.create_many("anoop", 1000)
    workers.append(worker := Worker(server, tmp_path / "w", "--processes", "2"))
    server.wait_all(30)
    assert server.count("succeeded") == 4000
    assert worker.stop() == 0
    counted = {one["handler"]: one["succeeded"] for one in worker.events("summary")}
    assert counted == {"app.noop": 3000, "app.anoop": 1000}
    assert len(worker.events("job")) < 1000
    assert sum(one["ended"] - one["shown"] for one in worker.events("jobs")) + len(worker.events("job")) == 4000


def test_sigterm_finishes_what_runs(server: Server, workers: list[Worker], tmp_path: pathlib.Path) -> None:
    ids = server.create_many("nap", 8, {"seconds": 3.0})
    workers.append(worker := Worker(server, tmp_path / "w", "--concurrency", "4", "--processes", "1").ready())
    until(lambda: [server.state(one) for one in ids].count("running") == 4, "four run")
    # A job that was handed out and has not begun goes back.
    time.sleep(0.5)
    assert worker.stop() == 0
    states = sorted(server.state(one) for one in ids)
    assert states == ["ready"] * 4 + ["succeeded"] * 4


def test_jobs_that_do_not_end_in_time_are_given_back(
    server: Server, workers: list[Worker], tmp_path: pathlib.Path
) -> None:
    ids = [server.create("nap", {"seconds": 60}), server.create("anap", {"seconds": 60})]
    # This one ends when it is cancelled, and returns something that is not its result.
    ids.append(server.create("waits", {"file": str(tmp_path / "reason")}))
    workers.append(worker := Worker(server, tmp_path / "w", "--grace", "0.5s").ready())
    until(lambda: all(server.state(one) == "running" for one in ids), "they run")
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < 6
    assert [server.state(one) for one in ids] == ["ready"] * 3
    assert all(server.job(one, wait=0)["attempt"] <= 1 for one in ids)


def test_a_second_signal_ends_at_once(server: Server, workers: list[Worker], tmp_path: pathlib.Path) -> None:
    workflow = server.create("begins", {"file": str(tmp_path / "begun"), "seconds": 60})
    workers.append(worker := Worker(server, tmp_path / "w").ready())
    until((tmp_path / "begun").exists, "it runs")
    children = worker.children()
    worker.process.send_signal(signal.SIGINT)
    worker.prints("SIGINT")
    assert worker.stop(seconds=5) == 1
    assert not any(is_alive(child) for child in children)
    until(lambda: server.state(workflow) == "ready", "it goes back")


def test_drain_ends_the_worker_when_its_jobs_have_ended(
    server: Server, workers: list[Worker], tmp_path: pathlib.Path
) -> None:
    # A job that is leased and has not begun would go back.
    workflow = server.create("begins", {"file": str(tmp_path / "begun"), "seconds": 1.5})
    workers.append(worker := Worker(server, tmp_path / "w", "--name", "drained").ready())
    until((tmp_path / "begun").exists, "it runs")
    server.client.request("POST", "/v1/workers/drained:drain", body={})
    worker.prints("drain", 3)
    later = server.create("noop")
    assert worker.process.wait(10) == 0
    assert (server.state(workflow), server.state(later)) == ("succeeded", "ready")
    # The drain was for that process. The next one of this name has jobs, on its stream, too.
    workers.append(worker := Worker(server, tmp_path / "w", "--name", "drained").ready())
    assert server.job(later)["state"] == "succeeded"
    assert "drain:" not in worker.text()
    assert worker.stop() == 0


def test_a_changed_program_is_loaded_again(server: Server, workers: list[Worker], tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "w"
    workers.append(worker := Worker(server, folder, "--reload").ready())
    assert server.job(server.create("add", {"a": 1, "b": 2}))["output"] == 3
    (folder / "app.py").write_text(APP.replace("return a + b", "return a * b * 100"))
    worker.prints("has changed")
    until(lambda: server.job(server.create("add", {"a": 1, "b": 2}))["output"] == 200, "the new program runs", 10)
    (folder / "app.py").write_text("this is(")
    worker.prints("SyntaxError")
    (folder / "app.py").write_text(APP)
    until(lambda: server.job(server.create("add", {"a": 1, "b": 2}), wait=2).get("output") == 3, "it is back", 10)
    assert worker.stop() == 0


@pytest.mark.parametrize(
    ("app", "arguments", "message", "code"),
    [
        ("missing_app", [], "there is no module 'missing_app'", 2),
        ("app:missing", [], "module 'app' has no 'missing'", 2),
        ("json", [], "json has no jobs", 2),
        ("broken", [], "ZeroDivisionError: division by zero", 2),
        ("app", ["--lease", "1s"], "--lease 1s: expected 5s to 1h", 2),
        ("app", ["--lease", "soon"], "'soon' is not a time span", 2),
        ("app", ["--server", "http://me:secret@host"], "TIDEGATE_TOKEN", 2),
    ],
)
def test_a_mistake_is_one_line(
    workers: list[Worker], tmp_path: pathlib.Path, app: str, arguments: list[str], message: str, code: int
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    workers.append(worker := Worker("http://127.0.0.1:9", tmp_path, *arguments, app=app))
    assert worker.process.wait(10) == code
    lines = [line for line in worker.text().splitlines() if '"text"' in line and "error" in line]
    assert len(lines) == 1
    assert message in lines[0]
    assert "secret" not in worker.text()
    assert "Traceback" not in worker.text()


def test_an_outage_is_printed_once(workers: list[Worker], tmp_path: pathlib.Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    workers.append(worker := Worker(url, tmp_path, "--processes", "2"))
    worker.prints(f"{url} does not answer: connection refused")
    time.sleep(1.5)
    assert worker.text().count("does not answer") == 1
    assert worker.stop() == 0


def test_a_wrong_token_is_one_line(tmp_path: pathlib.Path, workers: list[Worker]) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    tokens = folder / "tokens"
    tokens.write_text("admin me a-long-secret-token-for-tests\n")
    tokens.chmod(0o600)
    server = Server(folder, TIDEGATE_TOKENS_FILE=str(tokens))
    try:
        wrong = "another-secret-token-for-tests"
        workers.append(worker := Worker(server, tmp_path / "w", "--processes", "2", TIDEGATE_TOKEN=wrong))
        assert worker.process.wait(10) == 69
        assert len(worker.events("error")) == 1
        assert "TIDEGATE_TOKEN" in worker.text()
        assert wrong not in worker.text()
    finally:
        server.close()
