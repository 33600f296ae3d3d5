"""Where the server is, and what is sent to it with every request."""

from __future__ import annotations

import os
from urllib.parse import quote, urlsplit

from ..errors import TidegateError

DEFAULT = "http://127.0.0.1:7070"
_HEAD = "accept: application/json\r\nuser-agent: tidegate-python/0.1.0\r\n"


class Address:
    """The address of a server, read from a URL or from `host:port`. A path is put in front of the paths of the API."""

    __slots__ = ("encrypted", "host", "port", "prefix", "url")

    def __init__(self, text: str) -> None:
        # The text before the @ may be a password, so no part of the text is shown.
        if "@" in text:
            raise TidegateError(
                "the server's address has a user or a password in it: put a token into TIDEGATE_TOKEN instead"
            )
        if "?" in text or "#" in text:
            raise TidegateError(f"the server {text!r}: an address with ? or # is not understood")
        wrong = TidegateError(f"the server {text!r}: expected an address such as {DEFAULT}")
        if not (text.isascii() and text.isprintable()) or " " in text or "\\" in text:
            raise wrong
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            host, port = parts.hostname, parts.port
        except ValueError:
            raise wrong from None
        if parts.scheme not in ("http", "https") or not host or parts.netloc.endswith(":"):
            raise wrong
        self.encrypted = parts.scheme == "https"
        self.host = host
        self.port: int = port if port is not None else (443 if self.encrypted else 80)
        self.prefix = parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{parts.netloc}{self.prefix}"

    @staticmethod
    def find(server: str | None) -> Address:
        """Reads `server`, or the variable TIDEGATE_SERVER when there is none."""
        return Address(server or os.environ.get("TIDEGATE_SERVER") or DEFAULT)

    def head(self, token: str | None) -> bytes:
        """Returns the header lines that all requests have."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.port != (443 if self.encrypted else 80):
            host += f":{self.port}"
        lines = f"host: {host}\r\n{_HEAD}"
        if token:
            if not _is_visible(token):
                raise TidegateError("the token has a character that is not visible ASCII: look at TIDEGATE_TOKEN")
            lines += f"authorization: Bearer {token}\r\n"
        return lines.encode("ascii")


def find_token(token: str | None) -> str | None:
    """Returns `token`, or that of TIDEGATE_TOKEN when there is none."""
    return token if token is not None else os.environ.get("TIDEGATE_TOKEN") or None


def find_cacert(cacert: str | None) -> str | None:
    """Returns `cacert`, or the file of TIDEGATE_CACERT when there is none."""
    return cacert if cacert is not None else os.environ.get("TIDEGATE_CACERT") or None


def part(text: str) -> str:
    """Returns a name as a part of a path."""
    if text in (".", ".."):
        # Proxies and servers take these for folders, also when they are escaped.
        raise TidegateError(f"the name {text!r} cannot be in an address")
    return text if text.isalnum() and text.isascii() else quote(text, safe="")


def query(items: dict[str, object]) -> str:
    """Returns a query with its `?`, without the items that are None; an empty text when there are none."""
    pairs = [f"{name}={quote(_word(value), safe='')}" for name, value in items.items() if value is not None]
    return "?" + "&".join(pairs) if pairs else ""


def header(name: str, value: str) -> bytes:
    """Returns a line for the head of a request."""
    if not (value.isascii() and value.isprintable()) or value != value.strip():
        raise TidegateError(f"the header {name} cannot be {value!r}: expected printable ASCII")
    return f"{name}: {value}\r\n".encode("ascii")


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _is_visible(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text
