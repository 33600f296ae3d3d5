"""The clients against a server: every call, repeated calls, and the errors that users see."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conftest import Server
from every_call import Caller, both, every_call
from tidegate import (
    AsyncClient,
    Client,
    Forbidden,
    InvalidParam,
    InvalidRequest,
    ServerUnavailable,
    TidegateError,
    TooLarge,
    Unauthorized,
)
from tidegate._calls import Calls

if TYPE_CHECKING:
    from tidegate import api

SDK = Path(__file__).resolve().parents[1]
ROOT = SDK.parents[1]
JOB = {"name": "report", "jobs": [{"handler": "fetch"}]}


@both
def test_every_operation_can_be_called(ask: type[Caller], server: str) -> None:
    with ask(server) as client:
        every_call(client)
        described = client("describe_api")
    operations = {
        one["operationId"]
        for methods in described["paths"].values()
        for one in methods.values()
        if "page" not in one["tags"]
    }
    names = {re.sub("([A-Z])", lambda letter: "_" + letter[1].lower(), name) for name in operations}
    assert client.called == names
    assert names == {name for name in dir(Calls) if not name.startswith("_")} | {"watch_workflow", "watch_worker"}


def test_the_generated_files_are_those_of_the_description() -> None:
    check = [sys.executable, str(SDK / "scripts" / "generate.py"), "--check"]
    assert subprocess.run(check, capture_output=True, text=True).stderr == ""


def test_the_version_is_that_of_the_server() -> None:
    import tidegate

    wanted = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    stated = re.search(r'^version = "(.*)"', (SDK / "pyproject.toml").read_text(), re.MULTILINE)
    assert wanted is not None
    assert stated is not None
    assert wanted[1] == stated[1] == tidegate.__version__


@both
def test_a_wrong_token_names_the_setting(ask: type[Caller], make_server: Callable[..., Server], tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("read dashboard readreadreadreadread1\nadmin ada adminadminadminadmin1\n")
    tokens.chmod(0o600)
    server = make_server(TIDEGATE_TOKENS_FILE=str(tokens))
    with ask(server.address, token="adminadminadminadmin1") as client:
        assert client("create_workflow", JOB)["status"] == "running"
    with ask(server.address, token="readreadreadreadread1") as client, pytest.raises(Forbidden):
        client("create_workflow", JOB)
    for token in (None, "wrongwrongwrongwrong1"):
        with ask(server.address, token=token) as client, pytest.raises(Unauthorized, match="TIDEGATE_TOKEN") as caught:
            client("create_workflow", JOB)
        assert "wrongwrong" not in f"{caught.value} {client!r}"


def test_settings_come_from_the_environment(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_SERVER", server.removeprefix("http://"))
    with Client() as client:
        assert client.server == server
        assert client.show_version()["api"] == "v1"
        assert repr(client) == f"Client({server!r})"
    monkeypatch.setenv("TIDEGATE_TOKEN", "a b")
    with pytest.raises(TidegateError, match="TIDEGATE_TOKEN"):
        Client()


@both
def test_tls_needs_an_authority(ask: type[Caller], make_server: Callable[..., Server], tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=tidegate -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = make_server(TIDEGATE_TLS_CERT=certificate, TIDEGATE_TLS_KEY=key)
    with ask(server.address, cacert=certificate) as client:
        for _ in range(3):
            assert client("create_workflow", JOB)["status"] == "running"
        assert len(client("describe_api")["paths"]) > 30
    with ask(server.address) as client, pytest.raises(ServerUnavailable, match="TIDEGATE_CACERT"):
        client("show_version")
    with ask(server.address.replace("https", "http"), retry_for=0.0) as client, pytest.raises(TidegateError) as caught:
        client("show_version")
    assert "https://" in str(caught.value), caught.value
    with ask(server.address, cacert=key) as client, pytest.raises(TidegateError, match="no certificates in PEM"):
        client("show_version")


@both
def test_https_to_a_server_without_tls(ask: type[Caller], server: str) -> None:
    with ask(server.replace("http", "https")) as client, pytest.raises(ServerUnavailable, match="Use http://"):
        client("show_version")


@both
def test_a_server_that_is_down_is_one_line(ask: type[Caller], make_server: Callable[..., Server]) -> None:
    server = make_server()
    server.kill()
    with ask(server.address, retry_for=0.2) as client, pytest.raises(ServerUnavailable) as caught:
        client("show_version")
    wanted = "does not answer: connection refused. Start the server (tidegate), or set TIDEGATE_SERVER"
    assert str(caught.value) == f"{server.address} {wanted}"
    assert not caught.value.sent
    assert isinstance(caught.value, ConnectionError)


@both
def test_a_trace_ends_at_the_call(ask: type[Caller], server: str) -> None:
    with ask(server) as client, pytest.raises(InvalidRequest) as caught:
        client("create_workflow", {"name": "r", "jobs": [{"handler": "a", "params": []}]})
    assert str(caught.value) == "jobs[0].params: expected a JSON object (invalid_field, 422)"
    assert (caught.value.path, caught.value.code, caught.value.status) == ("jobs[0].params", "invalid_field", 422)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames if f"src{'/'}tidegate" in frame.filename] == ["create_workflow"]
    assert caught.value.__suppress_context__


@both
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"a": [1, {1}]},
            "jobs[0].params.a[1]: a value of set is not JSON. Use None, bool, int, float, str, list or dict",
        ),
        ({"a": float("nan")}, "jobs[0].params.a: nan is not JSON. Use None"),
        ({(1, 2): 1}, "jobs[0].params: a key of tuple is not JSON. Use str"),
        ({"a": "\ud800"}, "jobs[0].params.a: a text with half of a surrogate pair is not JSON. Leave that out"),
    ],
)
def test_a_param_that_is_not_json_is_named(ask: type[Caller], value: object, message: str) -> None:
    with ask("127.0.0.1:1") as client, pytest.raises(InvalidParam) as caught:
        client("create_workflow", {"name": "r", "jobs": [{"handler": "a", "params": value}]})
    assert str(caught.value) == message


@both
def test_large_bodies_go_both_ways(ask: type[Caller], server: str) -> None:
    jobs = [{"handler": "a", "name": f"j{index}", "params": {"text": "é" * 50_000}} for index in range(40)]
    with ask(server) as client:
        id = client("create_workflow", {"name": "large", "jobs": jobs})["id"]
        shown = client("show_workflow", id, view="full")
        assert [job["params"] for job in shown["jobs"]] == [job["params"] for job in jobs]


@both
def test_a_body_that_is_too_large_is_refused(ask: type[Caller], server: str) -> None:
    job = {"handler": "a", "params": {"text": "x" * 12_000_000}}
    with ask(server, retry_for=0.0) as client, pytest.raises((TooLarge, InvalidRequest)) as caught:
        client("create_workflow", {"name": "r", "jobs": [job]})
    assert caught.value.code == "payload_too_large"


def test_tasks_share_a_client(server: str) -> None:
    async def create() -> None:
        async with AsyncClient(server) as client:
            body: api.Definition = {"name": "r", "jobs": [{"handler": "a"}]}
            created = await asyncio.gather(*(client.create_workflow(body) for _ in range(200)))
            assert (await client.count_workflows())["total"] == len({one["id"] for one in created}) == 200

    asyncio.run(create())


def test_a_client_outlives_its_loop_and_a_call_its_cancellation(server: str) -> None:
    client = AsyncClient(server)

    async def cancel() -> None:
        claim: api.Claim = {"queues": ["empty"], "worker": "me", "wait": "30s"}
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.claim_jobs(claim), 0.2)
        assert (await client.show_version())["api"] == "v1"

    for _ in range(2):
        asyncio.run(cancel())


def test_a_claim_may_wait_longer_than_the_timeout(server: str) -> None:
    with Client(server, timeout=0.5, retry_for=0.0) as client:
        assert client.claim_jobs({"queues": ["empty"], "worker": "me", "wait": "1s"})["jobs"] == []
        reported = client.report_jobs({"reports": [], "claim": {"queues": ["empty"], "worker": "me", "wait": "1s"}})
        assert reported["jobs"] == []


def test_threads_share_a_client(server: str) -> None:
    with Client(server) as client:
        ids: list[str] = []

        def create() -> None:
            ids.extend(client.create_workflow({"name": "r", "jobs": [{"handler": "a"}]})["id"] for _ in range(20))

        threads = [threading.Thread(target=create) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.count_workflows()["total"] == len(set(ids)) == 160


def test_a_closed_client_raises(server: str) -> None:
    client = Client(server)
    client.close()
    with pytest.raises(ServerUnavailable, match="the client is closed"):
        client.show_version()
