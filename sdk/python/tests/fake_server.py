"""A server that answers with given bytes, for answers that the real one never gives."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

Answer = bytes | None


def answer(body: bytes, status: str = "200 OK", kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunked(*chunks: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


class FakeServer:
    """Takes one connection after the other. Each reads a request, sends the next answer and is closed.

    `None` closes the connection without an answer. `requests` has what was asked.
    """

    def __init__(self, *answers: Answer, at: tuple[str, int] = ("127.0.0.1", 0), slowly: float = 0.0) -> None:
        self._slowly = slowly
        self.requests: list[bytes] = []
        self._answers = list(answers)
        self._listener = socket.create_server(at)
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        # The thread that waits for a connection would keep the port.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        for one in self._answers:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.requests.append(_request(connection))
                if one is not None:
                    try:
                        # `slowly`: a pause after each byte.
                        for piece in [bytes([byte]) for byte in one] if self._slowly else [one]:
                            connection.sendall(piece)
                            time.sleep(self._slowly)
                    except OSError:
                        continue


def _request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
