"""The transport: how bytes become answers, and what it does with answers that are none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from fake_server import FakeServer, answer, chunked
from tidegate import AsyncClient, Client, NotTidegate, ServerUnavailable, TidegateError
from tidegate._http.address import Address, part, query
from tidegate._http.call import Lost
from tidegate._http.events import Event, EventReader
from tidegate._http.response import BadAnswer, Response
from tidegate._http.sync import Pool
from tidegate.worker.connection import InterruptibleConnection

HEAD = b"HTTP/1.1 200 OK\r\n"
TEN = b"0123456789"


def read(data: bytes, step: int, *, end: bool = False) -> Response:
    response = Response(max_body=1000)
    for at in range(0, len(data), step):
        response.feed(data[at : at + step])
    if end:
        response.end()
    return response


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("data", "status", "body", "keep"),
    [
        (HEAD + b"Content-Length: 5\r\n\r\nhello", 200, b"hello", True),
        (HEAD + b"content-length:0\r\nConnection: close\r\n\r\n", 200, b"", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"content-length: 1\r\n\r\nx", 200, b"x", True),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", 200, b"x", False),
        (
            HEAD + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
            200,
            b"abc" + TEN,
            True,
        ),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: y\r\n\r\n", 200, b"a", True),
    ],
)
def test_an_answer_is_read_however_it_arrives(step: int, data: bytes, status: int, body: bytes, keep: bool) -> None:
    response = read(data, step)
    assert (response.complete, response.status, response.body, response.keep_alive) == (True, status, body, keep)


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    response = read(HEAD + b"\r\nhello", 3, end=True)
    assert (response.complete, response.body, response.keep_alive) == (True, b"hello", False)


def test_what_follows_an_answer_ends_the_connection() -> None:
    assert not read(HEAD + b"content-length: 1\r\n\r\nxHTTP/1.1 200", 1000).keep_alive


@pytest.mark.parametrize("step", [1, 5, 100_000])
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not HTTP"),
        (b"HTTP/2 200\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 999 OK\r\n\r\n", "not HTTP"),
        (HEAD + b"no colon\r\n\r\n", "not HTTP"),
        (HEAD + b"name : x\r\n\r\n", "not HTTP"),
        (HEAD + b"a: b\r\n folded: x\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 101 Switching\r\n\r\n", "another protocol"),
        (HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\n", "twice"),
        (HEAD + b"content-length: -1\r\n\r\n", "length"),
        (HEAD + b"content-length: 1_0\r\n\r\n", "length"),
        (HEAD + b"content-length: 99999999999999999999\r\n\r\n", "length"),
        (HEAD + b"content-length: 1001\r\n\r\n", "larger than"),
        (HEAD + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", "length"),
        (HEAD + b"transfer-encoding: gzip\r\n\r\n", "length"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n-1\r\n", "chunk"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n0x1\r\n", "chunk"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n\r\n", "chunk"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\nabc", "chunk"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1" * 2000, "chunk"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\nfffffffffffffff\r\n", "larger than"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 1001, "larger than"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 20_000, "64 KiB"),
        (HEAD + b"\r\n" + b"x" * 1001, "larger than"),
        (HEAD + b"a: b\r\n" * 20_000, "64 KiB"),
        (HEAD + b"x" * 70_000, "64 KiB"),
    ],
)
def test_what_is_no_answer_is_refused(step: int, data: bytes, why: str) -> None:
    with pytest.raises(BadAnswer, match=why):
        read(data, step)


@pytest.mark.parametrize(
    ("text", "url", "host", "port"),
    [
        ("http://127.0.0.1:7070", "http://127.0.0.1:7070", "127.0.0.1", 7070),
        ("box:1", "http://box:1", "box", 1),
        ("http://box", "http://box", "box", 80),
        ("https://box/tidegate/", "https://box/tidegate", "box", 443),
        ("http://[::1]:7070", "http://[::1]:7070", "::1", 7070),
    ],
)
def test_an_address_is_a_url_or_a_host_and_a_port(text: str, url: str, host: str, port: int) -> None:
    address = Address(text)
    assert (address.url, address.host, address.port) == (url, host, port)


@pytest.mark.parametrize(
    "text",
    ["redis://box:1", "http://", "http://box:x", "https://:1", "http://box?a=1", "box#a", "box:", "a b", "b\r\nx: y"],
)
def test_another_address_is_refused(text: str) -> None:
    with pytest.raises(TidegateError, match="the server"):
        Address(text)


def test_a_password_is_not_shown() -> None:
    for text in ("http://user:secret@box", "user:secret@box:1", "http://user:sec/secret@box"):
        with pytest.raises(TidegateError, match="a user or a password") as caught:
            Address(text)
        assert "secret" not in str(caught.value)


def test_names_are_escaped() -> None:
    assert part("a/b c:é%") == "a%2Fb%20c%3A%C3%A9%25"
    assert query({"a": "1&2", "b": None, "c": True, "d": 3}) == "?a=1%262&c=true&d=3"


def test_events_are_read_however_they_arrive() -> None:
    data = b': hi\n\nid: 7\r\nevent: job\r\ndata: {"a":\r\ndata: 1}\r\n\r\ndata: 2\n\nevent: lost\n\n'
    for step in (1, 3, 1000):
        reader = EventReader()
        events = [event for at in range(0, len(data), step) for event in reader.feed(data[at : at + step])]
        assert events == [Event("job", {"a": 1}), Event("message", 2)]
        assert reader.last_id == "7"
    with pytest.raises(BadAnswer):
        EventReader().feed(b"data: {\n\n")


def ask_sync(address: str) -> Any:
    with Client(address, retry_for=0.0, timeout=2.0) as client:
        return client.show_version()


def ask_async(address: str) -> Any:
    async def call() -> Any:
        async with AsyncClient(address, retry_for=0.0, timeout=2.0) as client:
            return await client.show_version()

    return asyncio.run(call())


BOTH = pytest.mark.parametrize("ask", [ask_sync, ask_async])


@BOTH
@pytest.mark.parametrize(
    ("given", "kind", "why"),
    [
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000, ServerUnavailable, "64 KiB"),
        (answer(b"{}")[:-1], ServerUnavailable, "before the end"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab", ServerUnavailable, "before the end"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", ServerUnavailable, "chunk"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\n", ServerUnavailable, "larger than"),
        (None, ServerUnavailable, "before the end"),
        (b"\x15\x03\x03\x00\x02\x02", ServerUnavailable, "Use https://"),
        (answer(b"<h1>Welcome</h1>", kind="text/html"), NotTidegate, "Welcome"),
        (answer(b"{", kind="application/json"), NotTidegate, "no JSON"),
        (answer(b"[" * 100_000, kind="application/json"), NotTidegate, "no JSON"),
        (answer(b"\xff\xfe\x00", kind="application/json"), NotTidegate, "no JSON"),
        (answer(b"bad\x1b[31m gateway", "502 Bad Gateway", "text/plain"), NotTidegate, "status 502"),
        (answer(b"[]", "500 No", "application/problem+json"), NotTidegate, "status 500"),
        (answer(b"", "302 Found"), NotTidegate, "status 302"),
    ],
)
def test_a_strange_answer_is_an_error_of_one_line(
    ask: Callable[[str], Any], given: bytes | None, kind: type[TidegateError], why: str
) -> None:
    with FakeServer(given) as server, pytest.raises(kind, match=why) as caught:
        ask(server.address)
    text = str(caught.value)
    assert server.address in text
    assert text.isprintable()
    assert len(text) < 300


@BOTH
@pytest.mark.parametrize(
    "given", [chunked(b'{"a"', b":1}"), answer(b'{"a":1}'), chunked(*(b"[1", b",2" * 10_000, b"]"))]
)
def test_chunks_are_joined(ask: Callable[[str], Any], given: bytes) -> None:
    with FakeServer(given) as server:
        assert ask(server.address) in ({"a": 1}, [1, *[2] * 10_000])


@BOTH
def test_a_large_answer_is_read_whole(ask: Callable[[str], Any]) -> None:
    text = "x" * 20_000_000
    with FakeServer(answer(f'"{text}"'.encode())) as server:
        assert ask(server.address) == text


@BOTH
def test_a_silent_server_is_given_up(ask: Callable[[str], Any]) -> None:
    begin = time.monotonic()
    with FakeServer() as server, pytest.raises(ServerUnavailable, match="no answer in time"):
        ask(server.address)
    assert time.monotonic() - begin < 10


def test_an_answer_in_drops_does_not_stretch_the_time() -> None:
    import socket
    import threading

    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            for character in HEAD + b"x: " + b"y" * 1000:
                try:
                    connection.sendall(bytes([character]))
                except OSError:
                    return
                time.sleep(0.02)

    threading.Thread(target=serve, daemon=True).start()
    begin = time.monotonic()
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ServerUnavailable), Client(address, timeout=0.5, retry_for=0.0) as client:
        client.show_version()
    assert time.monotonic() - begin < 5
    listener.close()


@BOTH
def test_interim_answers_without_end_are_no_answer(ask: Callable[[str], Any]) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" * 100
    with FakeServer(interim) as server, pytest.raises(TidegateError, match="only interim ones"):
        ask(server.address)


def test_a_worker_gives_up_an_answer_in_drops_in_time() -> None:
    with FakeServer(answer(b"{" + b" " * 400 + b"}"), slowly=0.05) as server:
        began = time.monotonic()
        with pytest.raises(Lost, match="no answer in time"):
            InterruptibleConnection(Address(server.address), None, None).post("/v1/jobs/claim", b"{}", 0.5)
        assert time.monotonic() - began < 5


@BOTH
def test_a_number_that_python_does_not_read_is_named(ask: Callable[[str], Any]) -> None:
    long = answer(b'{"x": ' + b"1" * 5000 + b"}")
    with FakeServer(long) as server, pytest.raises(TidegateError, match="more than 4300 digits"):
        ask(server.address)


def test_connections_are_not_used_after_a_fork(server: str) -> None:
    with Client(server) as client:
        client.show_version()
        pool: Pool = client._pool  # pyright: ignore[reportPrivateUsage]
        pool._process = -1  # pyright: ignore[reportPrivateUsage]
        assert pool._idle_connection() is None  # pyright: ignore[reportPrivateUsage]
        assert client.show_version()["api"] == "v1"
