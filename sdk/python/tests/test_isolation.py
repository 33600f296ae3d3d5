"""Each job is alone: what one of them sets or raises is not seen by others."""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import logging
import pathlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from test_worker_support import Server, Worker, until
from tidegate import GivenBack, NonRetryable, Retry, Throttled, current, job, testing
from tidegate.errors import deciding
from tidegate.worker import attempt

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")

APP = """
import asyncio, contextvars, logging, threading, time
from concurrent.futures import ThreadPoolExecutor
from tidegate import current, job

TENANT = contextvars.ContextVar("tenant", default="nobody")

@job
def takes(tenant: str) -> str:
    before = TENANT.get()
    TENANT.set(tenant)
    return before

@job
async def atakes(tenant: str) -> str:
    before = TENANT.get()
    TENANT.set(tenant)
    await asyncio.sleep(0)
    return before

@job
def threads() -> list[str]:
    def inner(number: int) -> str:
        logging.getLogger("app").warning("from thread %d", number)
        return current().job
    with ThreadPoolExecutor() as pool:
        return list(pool.map(current().wrap(inner), range(3)))
"""

Group: Any = vars(builtins)["BaseExceptionGroup"]


def test_variables_of_a_job_are_not_those_of_the_next(tmp_path: pathlib.Path) -> None:
    """A web framework's tenant stayed on the thread, and the next job wrote for the wrong one."""
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")
    (folder := tmp_path / "worker").mkdir()
    (folder / "app.py").write_text(APP)
    worker = Worker(server, folder, "--concurrency", "1")
    try:
        for handler in ("takes", "atakes", "takes", "atakes", "takes"):
            assert server.job(server.create(handler, {"tenant": "acme"}))["output"] == "nobody"
        # Those that wait here begin where one before them ends.
        for workflow in server.create_many("atakes", 50, {"tenant": "acme"}):
            assert server.job(workflow)["output"] == "nobody"
        workflow = server.create("threads")
        assert server.job(workflow)["output"] == ["threads"] * 3
        path = f"/v1/workflows/{workflow}/jobs/threads/log"
        until(lambda: "from thread 2" in str(server.client.request("GET", path)), "its threads write to its log")
    finally:
        worker.close()
        server.close()


def test_a_test_hides_no_variable_that_is_missing_in_a_worker() -> None:
    seen: list[str] = []

    @job
    def takes(tenant: str) -> None:
        seen.append(TENANT.get())
        TENANT.set(tenant)

    @job
    async def atakes(tenant: str) -> None:
        takes(tenant)

    with testing.server(jobs=[takes, atakes]) as server:
        token = TENANT.set("of the test")
        try:
            for one in (takes, atakes, takes):
                server.run(one, "acme").result()  # type: ignore[call-overload]  # pyright: ignore
        finally:
            TENANT.reset(token)
    assert seen == ["nobody"] * 3


def test_threads_of_a_job_have_its_context() -> None:
    @job
    def spreads() -> list[str]:
        found: list[str] = []
        thread = threading.Thread(target=current().wrap(lambda: found.append(current().job)))
        thread.start()
        thread.join()
        with ThreadPoolExecutor() as pool:
            found += pool.map(current().wrap(lambda _: current().job), range(4))
            # A thread without a context of its own wraps, too.
            context = current()
            found.append(pool.submit(lambda: context.wrap(lambda: current().job)()).result())
        return found

    @job
    async def aspreads() -> str:
        return await asyncio.to_thread(lambda: current().job)

    with testing.server(jobs=[spreads, aspreads]) as server:
        assert server.run(spreads).result() == ["spreads"] * 6
        assert server.run(aspreads).result() == "aspreads"
    assert current().wrap(lambda: current().job)() == ""


@pytest.mark.parametrize(
    ("errors", "outcome", "expected"),
    [
        ([Throttled("1s"), Throttled("1m"), Throttled("2s")], "throttled", b'"retry_after":"1m"'),
        ([GivenBack("1s"), GivenBack("5s")], "given_back", b'"pause":"5s"'),
        ([GivenBack()], "given_back", b""),
        ([NonRetryable("no"), NonRetryable("never")], "failed", b'"retry":"never"'),
        ([Retry("a", after="1s"), Retry("b", after="1h")], "failed", b'"retry_after":"1h"'),
        ([Throttled("1s"), asyncio.CancelledError()], "throttled", b'"retry_after":"1s"'),
        ([Group("inner", [Throttled("1s"), Group("more", [Throttled("3s")])])], "throttled", b'"3s"'),
        # A failure wins over what does not count.
        ([Throttled("1s"), ValueError("x")], "failed", b'"kind":"BaseExceptionGroup"'),
        ([GivenBack(), ValueError("x")], "failed", b'"kind":"BaseExceptionGroup"'),
        ([ValueError("x"), NonRetryable("no"), Throttled(1)], "failed", b'"retry":"never"'),
        ([Retry("a", after="1s"), Throttled("1h")], "failed", b'"retry_after":"1s"'),
        ([GivenBack("1h"), Throttled("1s")], "throttled", b'"1s"'),
        ([Throttled("soon"), Throttled("1s")], "failed", b"is not a time span"),
    ],
)
def test_a_group_of_errors_ends_the_attempt_as_they_would(
    errors: list[BaseException], outcome: str, expected: bytes
) -> None:
    """After a 429 in a task group, the vendor was called four times in a second."""
    group = Group("unhandled errors in a TaskGroup", errors)
    # Of exceptions alone, the class makes an ExceptionGroup.
    expected = expected.replace(b"BaseExceptionGroup", type(group).__name__.encode())
    ending = attempt.raised("l", group)
    assert ending.outcome == outcome
    assert expected in ending.report


def test_an_error_that_is_no_group_decides_itself() -> None:
    class Odd(Exception):
        exceptions = (Throttled(1),)

    assert isinstance(deciding(Odd()), Odd)


def test_a_task_group_can_throttle(caplog: pytest.LogCaptureFixture) -> None:
    ran: list[int] = []

    @job
    async def calls() -> str:
        async def call(number: int) -> None:
            if current().fence == 1 or not ran:
                ran.append(number)
                current().throttle("1h")

        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(call(number))
        return "done"

    @job
    async def gives_back() -> str:
        async def call() -> None:
            if len(ran) < 4:
                ran.append(0)
                current().give_back("1h")

        async with asyncio.TaskGroup() as group:
            group.create_task(call())
        return "done"

    caplog.set_level(logging.ERROR)
    with testing.server(jobs=[calls, gives_back]) as server:
        clock = server.advance(0)
        run = server.run(calls)
        assert run.result() == "done"
        assert run.jobs()[0]["attempt"] == 1
        assert (server.advance(0) - clock).total_seconds() >= 3600
        assert server.run(gives_back).result() == "done"
