"""Three errors that users make, and each ends in one line that says where it is and what to do: the server is down, the
token is wrong, a param is not JSON."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate
from conftest import Server
from test_worker_support import Worker
from tidegate import Client, InvalidParam, ServerUnavailable, TidegateError, Unauthorized, job, workflow

SDK = Path(__file__).parents[1] / "src" / "tidegate"
DOWN = "http://127.0.0.1:9"
IS_DOWN = f"{DOWN} does not answer: connection refused. Start the server (tidegate), or set TIDEGATE_SERVER"
WRONG = "wrongwrongwrongwrong1"
IS_WRONG = (
    "the token is not known to this server (unauthorized, 401). "
    "Set TIDEGATE_TOKEN to a token from the server's tokens file"
)


@job
def fetch(day: Any) -> int:
    return 1


@workflow
def report(day: Any) -> int:
    return fetch(day)


class Report(tidegate.Workflow):
    def configure(self, day: Any) -> None:
        self.run(fetch, params={"day": day})


def start(day: Any) -> object:
    return report.start(day)


def astart(day: Any) -> object:
    return asyncio.run(report.astart(day))


def enqueue(day: Any) -> object:
    return fetch.enqueue(day)


def aenqueue(day: Any) -> object:
    return asyncio.run(fetch.aenqueue(day))


def of_a_class(day: Any) -> object:
    return Report.start(day)


def by_a_client(day: Any) -> object:
    with tidegate.using(Client(retry_for=0.1)) as client:
        return client.create_workflow({"name": "w", "jobs": [{"handler": "fetch", "params": {"day": day}}]})


WAYS = [start, astart, enqueue, aenqueue, of_a_class, by_a_client]


def check(way: Callable[[Any], object], day: Any, kind: type[TidegateError], message: str | None) -> str:
    with pytest.raises(kind) as caught:
        way(day)
    assert "\n" not in str(caught.value)
    assert message is None or str(caught.value) == message
    # A user who does not catch it sees the call of this package, and not what is below it.
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count(str(SDK)) <= (2 if way is by_a_client else 1), shown
    assert "direct cause" not in shown and "another exception" not in shown, shown
    return str(caught.value)


@pytest.mark.parametrize("way", WAYS)
def test_the_server_is_down(way: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_SERVER", DOWN)
    with tidegate.using(Client(retry_for=0.1)):
        check(way, "monday", ServerUnavailable, IS_DOWN)


@pytest.fixture
def closed(make_server: Callable[..., Server], tmp_path: Path) -> Server:
    """A server that wants a token."""
    tokens = tmp_path / "tokens"
    tokens.write_text("admin ada adminadminadminadmin1\n")
    tokens.chmod(0o600)
    return make_server(TIDEGATE_TOKENS_FILE=str(tokens))


def test_the_token_is_wrong(closed: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_SERVER", closed.address)
    monkeypatch.setenv("TIDEGATE_TOKEN", WRONG)
    for way in WAYS:
        with tidegate.using(Client()):
            check(way, "monday", Unauthorized, IS_WRONG)
    monkeypatch.setenv("TIDEGATE_TOKEN", "")
    with tidegate.using(Client()):
        assert "TIDEGATE_TOKEN" in check(start, "monday", Unauthorized, None)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("day", "advice"),
    [
        (object(), "Use None, bool, int, float, str, list"),
        ({"a": 1j}, "Use"),
        (bytearray(b"bytes"), "Use"),
        (float("nan"), "Use None"),
        ({(1, 2): 3}, "Use str|Keys in JSON are str"),
        ("\ud800", "Leave that out"),
    ],
)
def test_a_param_is_not_json(way: Callable[[Any], object], day: Any, advice: str) -> None:
    # Nothing is sent for it, so the server may be away.
    with tidegate.using(Client(DOWN, retry_for=0.1)):
        output = check(way, day, InvalidParam, None)
    assert output.startswith(("job 'fetch', param 'day'", "jobs[0].params.day")), output
    assert any(one in output for one in advice.split("|")), output


def test_the_trace_keeps_the_line_of_the_workflow() -> None:
    with pytest.raises(InvalidParam) as caught:
        start(object())
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "report"
    assert "encode" not in names


@job
def pair(left: int, right: int) -> int:
    return left + right


def cyclic() -> object:
    @workflow
    def around() -> int:
        first = fetch.options(name="a", after="b")(1)
        return fetch.options(name="b", after=first)(2)

    return around.start()


def of_too_few() -> object:
    return pair.enqueue(1)  # type: ignore[call-arg]  # pyright: ignore


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [(cyclic, "a -> b|circle|cycle"), (of_too_few, "job 'pair': missing a required argument: 'right'")],
)
def test_other_mistakes_have_one_frame_of_ours(server: str, wrong: Callable[[], object], expected: str) -> None:
    with tidegate.using(Client(server)), pytest.raises(TidegateError) as caught:
        wrong()
    assert any(one in str(caught.value) for one in expected.split("|")), caught.value
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count(str(SDK)) <= 1, shown


def test_a_decorator_refuses_what_could_not_run() -> None:
    with pytest.raises(tidegate.DefinitionError, match="backoff: '2 parsecs' is not a time span"):
        job(backoff="2 parsecs")
    with pytest.raises(tidegate.DefinitionError, match="a lambda has no name"):
        job(lambda: 1)
    with pytest.raises(tidegate.DefinitionError, match="is a method, and a worker has no object"):

        class Mailer:  # pyright: ignore[reportUnusedClass]
            @job
            def send(self) -> None: ...

    assert job(handler="one")(lambda: 1)() == 1


def test_an_unknown_host_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    with Client("http://nohost") as client, pytest.raises(ServerUnavailable) as raised:
        client.list_queues()
    wrong = "http://nohost does not answer: nohost: Name or service not known. Look at TIDEGATE_SERVER"
    assert str(raised.value) == wrong


def test_a_run_without_a_worker_names_the_reason(server: str) -> None:
    with tidegate.using(Client(server)):
        run = fetch.options(queue="nobody-here").enqueue("monday")
        with pytest.raises(tidegate.WorkflowNotDone, match=r"0 of 1 jobs have ended\. Job 'fetch': .*nobody-here"):
            run.result(timeout=0.05)


APP = "from tidegate import job\n\n\n@job\ndef one() -> int:\n    return 1\n"


def worker(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "app.py").write_text(APP)
    command = [sys.executable, "-m", "tidegate.worker", "app"]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=30
    )


def test_a_worker_with_a_wrong_token(closed: Server, tmp_path: Path) -> None:
    done = worker(tmp_path, TIDEGATE_SERVER=closed.address, TIDEGATE_TOKEN=WRONG)
    assert done.returncode == 69
    assert done.stderr == f"tidegate-worker: {IS_WRONG}\n"
    assert WRONG not in done.stdout


def test_a_worker_whose_server_is_down_waits_for_it(tmp_path: Path) -> None:
    one = Worker(DOWN, tmp_path)
    try:
        one.prints(f"{DOWN} does not answer: connection refused")
        assert one.stop() == 0
    finally:
        one.close()
    assert one.text().count("does not answer") == 1
    assert "Traceback" not in one.text()


@pytest.mark.parametrize(
    ("address", "message"), [("http://", "expected an address such as"), ("http://me:secret@host", "TIDEGATE_TOKEN")]
)
def test_a_worker_with_a_wrong_address(address: str, message: str, tmp_path: Path) -> None:
    done = worker(tmp_path, TIDEGATE_SERVER=address)
    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("tidegate-worker: ") and message in line
    assert "secret" not in line


TEST = """
import pytest
from tidegate import job
from tidegate.pytest_plugin import tidegate_server

@job
def fetch(day):
    return 1

def test_param(tidegate_server):
    tidegate_server.run(fetch, [1j])
"""


def run_test(folder: Path, **variables: str) -> str:
    (folder / "test_theirs.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "test_theirs.py"]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_the_fixture_names_a_param_that_is_not_json(tmp_path: Path) -> None:
    output = run_test(tmp_path)
    assert (
        "E   tidegate.errors.InvalidParam: job 'fetch', param 'day'[0]: a value of type complex is not JSON. Use None"
        in output
    )
    assert "_values.py" not in output


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"TIDEGATE_BINARY": "/nowhere/tidegate"},
            "/nowhere/tidegate cannot be started: No such file or directory. TIDEGATE_BINARY names",
        ),
        ({"TIDEGATE_BINARY": sys.executable}, "did not start: "),
        (
            {"TIDEGATE_BINARY": "", "PATH": ""},
            "there is no server to test with: set TIDEGATE_BINARY to the path of the program tidegate, or install",
        ),
    ],
)
def test_the_fixture_without_a_server_is_one_line(variables: dict[str, str], message: str, tmp_path: Path) -> None:
    output = run_test(tmp_path, **variables)
    assert message in output
    assert ".py:" not in output.split("short test summary")[0], output
