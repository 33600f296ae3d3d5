"""The client that jobs and workflows use unless they are given another one."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import Client

_lock = threading.Lock()
_settings: dict[str, Any] = {}
_default: tuple[int, Client] | None = None
_here: ContextVar[Client | None] = ContextVar("tidegate_client", default=None)


def connect(server: str | None = None, *, token: str | None = None, cacert: str | None = None, **more: Any) -> None:
    """Says which server this process uses. Without it, that is ``TIDEGATE_SERVER`` with ``TIDEGATE_TOKEN`` and
    ``TIDEGATE_CACERT``, and ``http://127.0.0.1:7070`` without these. Takes what :class:`tidegate.Client` takes."""
    global _default
    with _lock:
        _settings.clear()
        _settings.update(server=server, token=token, cacert=cacert, **more)
        _default = None


def client() -> Client:
    """The client of this context, or of this process. It is made when it is needed."""
    if (here := _here.get()) is not None:
        return here
    global _default
    with _lock:
        # A child of fork() must not use the connections of its parent.
        if _default is None or _default[0] != os.getpid():
            from .client import Client

            _default = os.getpid(), Client(**_settings)
        return _default[1]


@contextmanager
def using(other: Client) -> Generator[Client]:
    """Jobs and workflows that are started in this context use ``other``."""
    token = _here.set(other)
    try:
        yield other
    finally:
        _here.reset(token)
