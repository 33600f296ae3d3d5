"""Calls and streams that are repeated: when an answer was lost, or the server said to come again."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from conftest import Server
from every_call import Caller, SyncAsk, both
from fake_server import FakeServer, answer
from tidegate import (
    Busy,
    Client,
    Conflict,
    IdempotencyMismatch,
    NotFound,
    ServerUnavailable,
)
from tidegate._http.events import Event

if TYPE_CHECKING:
    pass

JOB = {"name": "report", "jobs": [{"handler": "fetch"}]}
DONE = answer(b'{"id":"x","status":"running","already":false}')


def problem(status: int, code: str, **more: object) -> bytes:
    fields = {"status": status, "code": code, "detail": "no", "title": "No", **more}
    return answer(json.dumps(fields).encode(), f"{status} No", "application/problem+json")


@both
def test_a_server_that_is_killed_loses_no_call(ask: type[Caller], make_server: Callable[..., Server]) -> None:
    server = make_server()
    ended = threading.Event()
    ids: list[str] = []

    def create() -> None:
        with ask(server.address, retry_for=30.0) as client:
            while not ended.is_set():
                ids.append(client("create_workflow", JOB)["id"])

    thread = threading.Thread(target=create)
    thread.start()
    for _ in range(3):
        before = len(ids)
        while len(ids) < before + 20 and thread.is_alive():
            time.sleep(0.01)
        server.kill()
        time.sleep(0.1)
        server.start()
    ended.set()
    thread.join()
    with Client(server.address) as client:
        assert client.count_workflows()["total"] == len(set(ids)) == len(ids)


@both
def test_a_connection_that_was_closed_is_replaced(ask: type[Caller], make_server: Callable[..., Server]) -> None:
    server = make_server()
    with ask(server.address, retry_for=0.0) as client:
        id = client("create_workflow", JOB)["id"]
        server.kill()
        server.start()
        # Not safe to repeat: it must not go to the connection that is no more.
        assert client("retry_workflow", id)["already"] is True


@both
def test_a_creation_gets_a_key_and_is_repeated(ask: type[Caller]) -> None:
    created = answer(b'{"id":"x","name":"report","status":"running","existing":false}', "201 Created")
    with FakeServer(None, problem(503, "overloaded", retry_after=0), created) as server, ask(server.address) as client:
        assert client("create_workflow", JOB)["id"] == "x"
        keys = [re.search(rb"idempotency-key: (\S+)", request) for request in server.requests]
    assert len({key[1] for key in keys if key}) == 1
    assert len(keys) == 3


@pytest.mark.parametrize("named", [{"idempotency_key": "order/17"}, {}])
def test_the_key_of_the_caller_counts(server: str, named: dict[str, str]) -> None:
    body = JOB if named else {**JOB, "idempotency_key": "order/17"}
    with SyncAsk(server) as client:
        first = client("create_workflow", body, **named)
        second = client("create_workflow", body, **named)
        assert (first["id"], second["existing"]) == (second["id"], True)
        assert client("find_workflow", key="order/17")["id"] == first["id"]
        with pytest.raises(IdempotencyMismatch) as caught:
            client("create_workflow", {**body, "name": "other"}, **named)
    assert caught.value.workflow_id == first["id"]


UNSAFE: list[tuple[str, list[object]]] = [
    ("retry_workflow", ["x"]),
    ("retry_job", ["x", "fetch"]),
    ("restart_jobs", ["x", {"jobs": ["fetch"]}]),
    ("act_on_workflows", [{"action": "retry", "filter": {"name": "x"}}]),
]


@both
@pytest.mark.parametrize(("name", "arguments"), UNSAFE)
def test_what_could_be_done_twice_is_not_repeated(ask: type[Caller], name: str, arguments: list[object]) -> None:
    with FakeServer(None, DONE) as server, ask(server.address) as client:
        with pytest.raises(ServerUnavailable, match="may have been carried out") as caught:
            client(name, *arguments)
        assert caught.value.sent
        assert len(server.requests) == 1


@both
def test_with_as_of_it_is_repeated(ask: type[Caller]) -> None:
    with FakeServer(None, DONE) as server, ask(server.address) as client:
        assert client("retry_workflow", "x", {"as_of": "2026-11-21T12:00:00Z"})["status"] == "running"


def test_what_was_not_done_is_repeated() -> None:
    with (
        FakeServer(problem(503, "store_unavailable", retry_after=0, nothing_done=True), DONE) as server,
        Client(server.address) as client,
    ):
        assert client.retry_workflow("x")["status"] == "running"
    with (
        FakeServer(problem(503, "store_unavailable", retry_after=0), DONE) as server,
        Client(server.address) as client,
        pytest.raises(Busy),
    ):
        client.retry_workflow("x")


def test_a_pause_that_is_too_long_is_not_waited_for() -> None:
    begin = time.monotonic()
    with (
        FakeServer(problem(503, "overloaded", retry_after=60)) as server,
        Client(server.address) as client,
        pytest.raises(Busy) as caught,
    ):
        client.show_version()
    assert caught.value.retry_after == 60
    assert time.monotonic() - begin < 5


def test_the_pause_of_the_server_is_kept() -> None:
    begin = time.monotonic()
    with (
        FakeServer(problem(503, "overloaded", retry_after=1), answer(b"{}")) as server,
        Client(server.address) as client,
    ):
        client.show_version()
    assert time.monotonic() - begin >= 1.0


def test_a_second_removal_is_no_error() -> None:
    with FakeServer(None, problem(404, "workflow_not_found")) as server, Client(server.address) as client:
        client.delete_workflow("x")
    with (
        FakeServer(problem(404, "workflow_not_found")) as server,
        Client(server.address) as client,
        pytest.raises(NotFound),
    ):
        client.delete_workflow("x")


def test_a_refusal_after_a_lost_answer_names_it() -> None:
    expected = pytest.raises(Conflict, match="An earlier try of this call")
    with FakeServer(None, problem(409, "already_started")) as server, Client(server.address) as client, expected:
        client.start_workflow("x")


@both
def test_streams_go_on_after_a_restart(ask: type[Caller], make_server: Callable[..., Server]) -> None:
    server = make_server()
    with ask(server.address, retry_for=30.0) as client, Client(server.address, retry_for=30.0) as other:
        id = other.create_workflow({"name": "report", "jobs": [{"handler": "fetch"}]})["id"]
        seen: list[Event] = []

        def change() -> None:
            while len(seen) < 1:
                time.sleep(0.01)
            server.kill()
            server.start()
            other.cancel_workflow(id)
            while seen[-1].data.get("status") != "cancelled":
                time.sleep(0.01)
            other.delete_workflow(id)

        thread = threading.Thread(target=change)
        thread.start()
        client.watch("watch_workflow", id, seen.append)
        thread.join()
    assert seen[0].data["status"] == "running"
    assert "job" in [event.kind for event in seen]
    assert seen[-1] == Event("removed", {"id": id})


@both
def test_a_stream_of_nothing_is_refused(ask: type[Caller], server: str) -> None:
    with ask(server) as client, pytest.raises(NotFound):
        client.watch("watch_workflow", "01M7Z85C8H08RJZ5Q5JGPKMY04", print)


@both
def test_what_was_removed_in_the_meantime_ends_the_stream(ask: type[Caller]) -> None:
    stream = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nid: 1\nevent: workflow\ndata: {}\n\n"
    seen: list[Event] = []
    with FakeServer(stream, None, problem(404, "workflow_not_found")) as server, ask(server.address) as client:
        client.watch("watch_workflow", "x", seen.append)
        assert b"last-event-id: 1\r\n" in server.requests[-1]
    assert seen == [Event("workflow", {}), Event("removed", {"id": "x"})]
