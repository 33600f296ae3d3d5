"""The first steps of new users, and the messages that they get."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import tidegate
from test_worker_support import Server, Worker, until
from tidegate import InvalidParam, JobError, NonRetryable, TidegateError, job, testing, workflow

SCRIPT = """
from tidegate import job, workflow

@job
def charge(cents: int = 0) -> int:
    return cents

if __name__ == "__main__":
    print(charge.handler)
"""


@job
def fetch(day: str) -> list[int]:
    if day == "never":
        raise NonRetryable("no such day")
    return [len(day)]


@job
def total(rows: list[int]) -> int:
    return sum(rows)


@job
def either(rows: list[int] | None) -> int:
    return len(rows or ())


@workflow
def report(day: str) -> int:
    return total(fetch(day))


def run_python(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_handler_is_named_after_its_module_as_a_worker_imports_it(tmp_path: Path) -> None:
    """Any worker of the queue with a function of this name took the job, and its result was another's."""
    assert (fetch.handler, repr(fetch)) == (f"{__name__}.fetch", "<job fetch>")
    assert job(handler="mail")(fetch.function).handler == "mail"
    assert fetch.options(queue="x").handler == f"{__name__}.fetch"
    (tmp_path / "package").mkdir()
    for file in ("shop.py", "package/shop.py"):
        (tmp_path / file).write_text(SCRIPT)
    assert run_python(tmp_path, "shop.py") == "shop.charge"
    assert run_python(tmp_path, "-m", "shop") == "shop.charge"
    assert run_python(tmp_path, "-m", "package.shop") == "package.shop.charge"
    assert run_python(tmp_path, str(tmp_path / "shop.py")) == "shop.charge"


def test_a_worker_does_not_take_a_job_of_another_program(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")
    (folder := tmp_path / "worker").mkdir()
    (folder / "shop.py").write_text(SCRIPT)
    # The name of the file is the module.
    worker = Worker(server, folder, app="shop.py").ready()
    try:
        other = server.create("bank.charge", {"cents": 5})
        assert server.job(server.create("shop.charge", {"cents": 5}))["output"] == 5
        assert server.state(other) == "ready"
    finally:
        worker.close()
        server.close()


def test_the_trace_of_the_job_is_below_that_of_its_caller() -> None:
    with testing.server() as server, pytest.raises(JobError) as raised:
        server.run(report, "never").result()
    trace = "".join(traceback.format_exception(raised.value))
    assert "in the worker:\nTraceback" in trace and 'raise NonRetryable("no such day")' in trace
    assert "The above exception was the direct cause" in trace
    # Of the package, there is one frame.
    assert [Path(frame.filename).name for frame in traceback.extract_tb(raised.value.__traceback__)] == [
        "test_first_use.py",
        "_run.py",
    ]


def test_names_can_be_completed() -> None:
    assert {"Run", "limit", "limited", "concurrency", "Client", "AsyncClient", "job"} <= set(dir(tidegate))
    assert not {"TYPE_CHECKING", "Any", "annotations"} & set(dir(tidegate))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("delay", "use fetch.enqueue(..)"),
        ("apply_async", "use fetch.enqueue(..), with options fetch.options(..).enqueue(..)"),
        ("s", "call fetch(..) in a function with @workflow"),
        ("start", "use fetch.enqueue(..)"),
    ],
)
def test_methods_of_other_packages_have_a_hint(name: str, expected: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(fetch, name)
    assert str(raised.value) == f"job 'fetch' has no attribute '{name}': {expected}"
    assert not hasattr(fetch, name)


def test_an_option_among_the_arguments_has_a_hint() -> None:
    with pytest.raises(InvalidParam) as raised:
        fetch.enqueue("monday", key="x", queue="web")  # type: ignore[call-arg]  # pyright: ignore
    expected = (
        "got an unexpected keyword argument 'key'. An option is given as fetch.options(key=.., queue=..).enqueue(..)"
    )
    assert str(raised.value) == f"job 'fetch': {expected}"


def test_a_loop_over_a_result_names_what_to_use() -> None:
    @workflow
    def loops() -> None:
        for _ in fetch("monday"):
            pass

    with pytest.raises(tidegate.GraphError, match=r"starts a job for each item with current\(\).spawn\(job, item\)"):
        loops.definition()


def test_a_param_of_a_failed_job_names_it() -> None:
    @workflow
    def late() -> Any:
        rows = fetch("never")
        total.options(rule="all_done")(rows)
        return either.options(rule="all_done")(rows)

    with testing.server() as server:
        run = server.run(late)
        assert run.output("either") == 0
        error = (server.client.show_job(run.id, "total").get("errors") or [])[-1]
        expected = "param 'rows': expected a list, got None. There is no output, since job 'fetch' is failed: "
        assert expected + "annotate the param with `| None`" in error["message"]


def test_progress_and_watch() -> None:
    with testing.server() as server:
        run = report.start("monday")
        seen = run.progress()
        assert next(seen) == tidegate.Progress("running", 0, 2, 0)
        server.finish(run)
        *_, last = seen
        assert last == tidegate.Progress("succeeded", 2, 2, 0)
        assert (last.done, last.total, str(last)) == (2, 2, "2 of 2 jobs, succeeded")
        out = io.StringIO()
        assert run.watch(out) == "succeeded"
        assert out.getvalue() == f"report {run.id}: 2 of 2 jobs, succeeded\n"
        assert server.run(report, "never").watch(out) == "failed"
        assert "2 of 2 jobs, 1 failed, failed" in out.getvalue() or "1 failed" in out.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line() -> None:
    with testing.server() as server:
        out = Terminal()
        run = server.run(report, "monday")
        run.watch(out)
    assert out.getvalue() == f"\rreport {run.id}: 2 of 2 jobs, succeeded\n"


LIMITS = "domain: vendor\ndescriptors: [{key: tenant, rate_limit: {unit: minute, requests_per_unit: 1}}]\n"


def test_limits_of_a_test_are_checked_at_once(tmp_path: Path) -> None:
    """A folder's name was taken for the text, and the test failed forty jobs later."""
    for limits, expected in (
        ("limits", "limits.yaml: error: .* A text is the limits themselves"),
        (LIMITS.replace("minute", "minuet"), "limits: limits.yaml.*minuet"),
        (tmp_path / "nothing", "there is no file or folder"),
    ):
        with pytest.raises(TidegateError, match=expected), testing.server(limits=limits):
            pytest.fail("it started")
    (folder := tmp_path / "limits").mkdir()
    (folder / "vendor.yaml").write_text(LIMITS)
    for limits in (LIMITS, folder, folder / "vendor.yaml"):
        with testing.server(limits=limits) as server:
            limiter = tidegate.limits.RateLimits(server.limits_url)
            limiter.take("vendor", tenant="a")
            with pytest.raises(tidegate.LimitExceeded):
                limiter.take("vendor", tenant="a")


TALKS = """
import logging
from tidegate import job

@job
def talks() -> None:
    log = logging.getLogger("app")
    log.debug("in detail")
    log.info("hello")
    log.warning("careful")
"""


@pytest.mark.parametrize(
    ("level", "shown"),
    [(None, ["hello", "careful"]), ("debug", ["in detail", "hello", "careful"]), ("warning", ["careful"]), ("off", [])],
)
def test_what_jobs_log_is_on_the_terminal(tmp_path: Path, level: str | None, shown: list[str]) -> None:
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")
    (folder := tmp_path / "worker").mkdir()
    (folder / "app.py").write_text(TALKS)
    worker = Worker(server, folder, *(["--log-level", level] if level else []))
    try:
        workflow_id = server.create("talks")
        assert server.job(workflow_id)["state"] == "succeeded"
        path = f"/v1/workflows/{workflow_id}/jobs/talks/log"
        until(lambda: "careful" in str(server.client.request("GET", path)), "it is in the log of the job")
        lines = [(one["text"], one["job"]) for one in worker.events("log")]
        assert lines == [(text, "talks") for text in shown]
    finally:
        worker.close()
        server.close()


@job
def large(size: int) -> str:
    return "x" * size


@job
def sizes(texts: list[str]) -> int:
    return sum(map(len, texts))


def test_a_result_that_one_answer_does_not_hold_comes_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB of outputs were refused, and hid the failure of a job."""
    size = 1024 * 1024 - 10

    @workflow
    def many(number: int) -> dict[str, Any]:
        return {"all": [large(size) for _ in range(number)]}

    @workflow
    def one_of(number: int) -> str:
        first, *_ = [large(size) for _ in range(number)]
        return first

    @workflow
    def fails() -> list[Any]:
        return [*(large(size) for _ in range(66)), fetch("never")]

    with testing.server() as server:
        requested: list[str] = []
        show_job = server.client.show_job
        monkeypatch.setattr(server.client, "show_job", lambda id, name: (requested.append(name), show_job(id, name))[1])
        run = server.run(many, 66)
        assert sum(len(one) for one in run.result()["all"]) == 66 * size
        assert len(requested) == 66
        assert len(run.outputs()) == 66
        with pytest.raises(tidegate.TooLarge):
            run.jobs()
        with pytest.raises(JobError, match="job 'fetch', attempt 1: NonRetryable: no such day"):
            server.run(fails).result()
        # Outputs that fit into one answer are read once.
        requested.clear()
        assert len(server.run(many, 9).result()["all"]) == 9
        assert requested == []
        # One output of many jobs does not bring all others along.
        assert len(server.run(one_of, 9).result()) == size
        assert requested == ["large"]
