"""Reads answers of HTTP/1.1 from bytes, without any I/O."""

from __future__ import annotations

MAX_HEAD = 64 * 1024
MAX_BODY = 256 * 1024 * 1024
# A line with the size of a chunk: 16 digits and some room for extensions, which are ignored.
_MAX_LINE = 1024
# The first byte of an answer by a server that expects TLS: the type of a TLS alert.
_TLS_ALERT = b"\x15"
# Servers send one or two before an answer.
_MAX_INTERIM = 8
_WRONG = "the answer is not HTTP/1.1"


class BadAnswer(Exception):
    """The bytes are not an answer of HTTP/1.1, or more than is taken."""


class Response:
    """One answer: feed it what arrives until it is complete.

    `headers` has names in lower case. Bytes that `read_body` has returned are not in `body`.
    """

    __slots__ = ("_body", "_interim", "_left", "_max_body", "_rest", "_state", "headers", "keep_alive", "status")

    def __init__(self, max_body: int = MAX_BODY) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.keep_alive = True
        self._max_body = max_body
        self._state = _HEAD
        self._rest = b""
        # A body of one piece is not copied. More of them are put together at once: a list of tiny ones would be large.
        self._body: bytes | bytearray = b""
        self._left = 0
        self._interim = 0

    @property
    def begun(self) -> bool:
        """Whether anything of it has arrived."""
        return bool(self.status or self._rest)

    @property
    def has_head(self) -> bool:
        """Whether `status` and `headers` are those of the answer."""
        return self._state != _HEAD

    @property
    def complete(self) -> bool:
        return self._state == _DONE

    @property
    def body(self) -> bytes:
        return bytes(self._body)

    def read_body(self) -> bytes:
        """Returns the bytes of the body that have arrived since the last call. They no longer count for the bound."""
        body = self.body
        self._body = b""
        return body

    def feed(self, data: bytes) -> bool:
        """Takes bytes, and returns whether the answer is complete."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        while True:
            state = self._state
            if state == _HEAD:
                next_data = self._read_head(data)
            elif state == _LENGTH:
                next_data = self._read_length(data)
            elif state == _DONE:
                if data:
                    # Nothing was asked for yet, so what follows belongs to no request.
                    self.keep_alive = False
                return True
            elif state == _UNTIL_END:
                self._add(data)
                return False
            else:
                next_data = self._read_chunks(data)
            if next_data is None:
                return False
            data = next_data

    def end(self) -> bool:
        """The connection has ended. Returns whether the answer is complete."""
        if self._state == _UNTIL_END:
            self._state = _DONE
        return self._state == _DONE

    def _read_head(self, data: bytes) -> bytes | None:
        end = data.find(b"\r\n\r\n", 0, MAX_HEAD)
        if end < 0:
            if len(data) >= MAX_HEAD:
                raise BadAnswer("the head of the answer is larger than 64 KiB")
            if data.startswith(_TLS_ALERT):
                raise BadAnswer("it speaks TLS. Use https:// in TIDEGATE_SERVER")
            if not data.startswith(b"HTTP/1."[: len(data)]):
                raise BadAnswer(_WRONG)
            self._rest = data
            return None
        first, *lines = data[:end].decode("latin-1").split("\r\n")
        self._read_first(first)
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            name = name.lower()
            if not colon or not name or name[-1] in " \t" or name[0] in " \t":
                raise BadAnswer(_WRONG)
            if name in headers and name in ("content-length", "transfer-encoding"):
                raise BadAnswer(f"the answer has {name} twice")
            headers[name] = value.strip(" \t")
        if 100 <= self.status < 200:
            if self.status == 101:
                raise BadAnswer("the answer is for another protocol")
            # An interim answer: that to the request follows.
            self._interim += 1
            if self._interim > _MAX_INTERIM:
                raise BadAnswer("the answer does not come, only interim ones")
            return data[end + 4 :]
        self.headers = headers
        connection = headers.get("connection")
        if connection is not None:
            words = connection.lower()
            self.keep_alive = "close" not in words and (self.keep_alive or "keep-alive" in words)
        self._begin_body(headers)
        return data[end + 4 :]

    def _read_first(self, line: str) -> None:
        version, code = line[:9], line[9:12]
        if version not in ("HTTP/1.1 ", "HTTP/1.0 ") or not (code.isascii() and code.isdigit()) or line[12:13].strip():
            raise BadAnswer(_WRONG)
        self.status = int(code)
        self.keep_alive = version == "HTTP/1.1 "
        if not 100 <= self.status <= 599:
            raise BadAnswer(_WRONG)

    def _begin_body(self, headers: dict[str, str]) -> None:
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if self.status in (204, 304):
            self._state = _DONE
        elif coding is not None:
            if length is not None or coding.lower() != "chunked":
                raise BadAnswer("the answer has a length that is not understood")
            self._state = _SIZE
        elif length is not None:
            if not (length.isascii() and length.isdigit()) or len(length) > 16:
                raise BadAnswer("the answer has a length that is not understood")
            self._left = int(length)
            self._check(self._left)
            self._state = _LENGTH if self._left else _DONE
        else:
            self.keep_alive = False
            self._state = _UNTIL_END

    def _read_length(self, data: bytes) -> bytes | None:
        piece = data if len(data) <= self._left else data[: self._left]
        self._add(piece)
        self._left -= len(piece)
        if self._left:
            return None
        self._state = _DONE
        return data[len(piece) :]

    def _read_chunks(self, data: bytes) -> bytes | None:
        at, size = 0, len(data)
        while True:
            if self._state == _CHUNK:
                piece = data[at : at + self._left]
                self._add(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left:
                    return None
                self._state = _CHUNK_END
            if self._state == _CHUNK_END:
                if size - at < 2:
                    self._rest = data[at:]
                    return None
                if data[at : at + 2] != b"\r\n":
                    raise BadAnswer("the answer has a chunk of a wrong size")
                at += 2
                self._state = _SIZE
            end = data.find(b"\r\n", at, at + _MAX_LINE)
            if end < 0:
                if size - at >= _MAX_LINE:
                    raise BadAnswer("the answer has a chunk of a wrong size")
                self._rest = data[at:]
                return None
            line = data[at:end]
            at = end + 2
            if self._state == _TRAILER:
                self._left += len(line) + 2
                if self._left > MAX_HEAD:
                    raise BadAnswer("the head of the answer is larger than 64 KiB")
                if not line:
                    self._state = _DONE
                    return data[at:]
                continue
            self._left = _chunk_size(line)
            self._check(self._left)
            self._state = _CHUNK if self._left else _TRAILER

    def _add(self, piece: bytes) -> None:
        if not self._body:
            self._body = piece
        elif isinstance(self._body, bytearray):
            self._body += piece
        else:
            self._body = bytearray(self._body) + piece
        self._check(0)

    def _check(self, more: int) -> None:
        if len(self._body) + more > self._max_body:
            raise BadAnswer(f"the answer is larger than {self._max_body} bytes")


def is_stream(response: Response) -> bool:
    """Whether it is a stream of events that goes on."""
    kind = response.headers.get("content-type", "")
    return response.has_head and 200 <= response.status < 300 and kind.startswith("text/event-stream")


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].rstrip(b" \t")
    if not 1 <= len(digits) <= 16 or not all(digit in b"0123456789abcdefABCDEF" for digit in digits):
        raise BadAnswer("the answer has a chunk of a wrong size")
    return int(digits, 16)


_HEAD, _LENGTH, _SIZE, _CHUNK, _CHUNK_END, _TRAILER, _UNTIL_END, _DONE = range(8)
