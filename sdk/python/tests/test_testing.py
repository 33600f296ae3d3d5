"""Workflows of users on a server for tests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import tidegate
from tidegate import (
    Client,
    InvalidParam,
    JobError,
    NonRetryable,
    Retry,
    ServerUnavailable,
    TidegateError,
    WorkflowNotDone,
    current,
    job,
    testing,
    workflow,
)
from tidegate.pytest_plugin import tidegate_server as tidegate_server

attempts: list[int] = []


@job
def fetch(day: str) -> list[int]:
    return [1, 2, len(day)]


@job(queue="numbers")
def double(number: int) -> int:
    return 2 * number


@job
async def add(first: int, second: int) -> int:
    await asyncio.sleep(0)
    return first + second


@workflow
def report(day: str) -> int:
    rows: Any = fetch(day)
    return add.step(double(rows[2]), rows[1])


@job(retries=8, backoff="10m", backoff_max="1h")
def unsteady(fails: int) -> int:
    attempts.append(current().attempt)
    if current().attempt <= fails:
        raise ConnectionError("the vendor does not answer")
    return current().attempt


@pytest.fixture
def server() -> Iterator[testing.Server]:
    attempts.clear()
    with testing.server() as one:
        yield one


def test_a_graph_runs_to_its_end(server: testing.Server) -> None:
    run = server.run(report, "monday")
    assert (run.status, run.result()) == ("succeeded", 14)
    assert server.run(report, day="fri").result() == 8


def test_hours_of_backoff_take_no_time(server: testing.Server) -> None:
    began, clock = time.monotonic(), server.advance(0)
    assert server.run(unsteady, 6).result() == 7
    assert attempts == [1, 2, 3, 4, 5, 6, 7]
    assert (server.advance(0) - clock).total_seconds() > 2 * 3600
    assert time.monotonic() - began < 60


def test_the_error_of_a_job_is_that_of_its_run(server: testing.Server) -> None:
    @job(retries=5)
    def broken() -> None:
        raise NonRetryable("no such account")

    with pytest.raises(JobError, match=r"job 'broken', attempt 1: NonRetryable: no such account") as raised:
        server.run(broken).result()
    assert "test_testing.py" in raised.value.trace
    assert "tidegate/testing.py" not in raised.value.trace


def test_a_retry_waits_for_its_span(server: testing.Server) -> None:
    @job(retries=1)
    def later() -> str:
        if current().attempt == 1:
            raise Retry("tomorrow", after="1d")
        return "done"

    clock = server.advance(0)
    assert server.run(later).result() == "done"
    assert (server.advance(0) - clock).total_seconds() >= 86_400


def test_a_test_moves_the_clock_step_by_step(server: testing.Server) -> None:
    @workflow
    def with_retries() -> Any:
        return double.options(wait="1h")(4)

    run = with_retries.start()
    assert server.work() == 0
    server.advance("59m")
    assert server.work() == 0
    server.advance("1m")
    assert (server.work(), run.result()) == (1, 8)


def test_children_and_notes(server: testing.Server) -> None:
    @job
    def parent() -> int:
        current().progress(50, "half")
        current().log("asks a child")
        return current().spawn(report, "sunday").result() + current().spawn(double, 1).result()

    run = server.run(parent)
    assert run.result() == 16
    shown = server.client.show_job(run.id, "parent")
    progress = shown.get("progress")
    assert progress is not None and progress["percent"] == 50
    assert shown["attempt"] == 1


def test_classes_are_run(server: testing.Server) -> None:
    class Report(tidegate.Workflow):
        def configure(self, day: str) -> None:
            rows = self.run(fetch, params={"day": day})
            self.run(double, params={"number": rows[0]})

    assert server.run(Report, "monday").result() == {"fetch": [1, 2, 6], "double": 2}


def test_windows_of_limits_turn() -> None:
    limits = "domain: vendor\ndescriptors:\n  - key: account\n    rate_limit: {unit: hour, requests_per_unit: 2}\n"
    with testing.server(limits=limits) as server:
        unit = tidegate.limit("vendor", account="a")

        @job(limits=[unit])
        def call(number: int) -> int:
            return number

        @workflow
        def many() -> Any:
            return [call(number) for number in range(6)]

        clock = server.advance(0)
        assert server.run(many).result() == [0, 1, 2, 3, 4, 5]
        assert (server.advance(0) - clock).total_seconds() > 3600


@pytest.mark.asyncio
async def test_it_is_used_from_async_tests(server: testing.Server) -> None:
    assert server.run(report, "monday").result() == 14


def test_a_stuck_workflow_is_reported(server: testing.Server) -> None:
    server.client.create_workflow(
        {"name": "empty", "jobs": [{"name": "double", "handler": double.handler, "queue": "numbers"}]}
    )
    server.work()
    server.client.pause_queue("numbers")
    with pytest.raises(WorkflowNotDone, match=r"is running, and nothing .*: job 'double' is ready in queue 'numbers'"):
        server.run(double, 1)


def test_an_unknown_job_is_reported(server: testing.Server) -> None:
    created = server.client.create_workflow({"name": "w", "jobs": [{"handler": "elsewhere"}]})
    with pytest.raises(tidegate.DefinitionError, match="no function here has the handler 'elsewhere'"):
        run: tidegate.Run[Any] = tidegate.Run(created["id"], server.client)
        server.finish(run)


def test_settings_of_this_process_do_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "127.0.0.1:1")
    monkeypatch.setenv("TIDEGATE_STORE_URL", "127.0.0.1:1")
    with testing.server() as server:
        assert server.run(double, 1).result() == 2


def test_a_server_that_cannot_start_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TidegateError, match="TIDEGATE_CORES"), testing.server(TIDEGATE_CORES="many"):
        pass
    with (
        pytest.raises(TidegateError, match="cannot be started: No such file"),
        testing.server(binary="/nowhere/tidegate"),
    ):
        pass
    monkeypatch.delenv("TIDEGATE_BINARY")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(TidegateError, match="install the wheel tidegate-server"), testing.server():
        pass


def test_the_fixture(tidegate_server: testing.Server) -> None:
    assert tidegate_server.run(double, 4).result() == 8
    run = double.enqueue(5)
    tidegate_server.work()
    assert run.result() == 10


def test_wrong_arguments_are_refused_at_once(server: testing.Server) -> None:
    with pytest.raises(TypeError, match="double"):
        server.run(double, 1, 2)  # type: ignore[call-overload]  # pyright: ignore
    with pytest.raises(InvalidParam):
        server.run(double, [1j])  # type: ignore[call-overload]  # pyright: ignore


def test_no_server_outlives_tests_that_were_killed() -> None:
    program = "import tidegate.testing as t, time\nwith t.server() as s: print(s.url, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        url = tests.stdout.readline().strip()
        with Client(url, retry_for=0) as client:
            client.list_queues()
            tests.kill()
            ends = time.monotonic() + 10
            with pytest.raises(ServerUnavailable):
                while time.monotonic() < ends:
                    client.list_queues()
                    time.sleep(0.02)
