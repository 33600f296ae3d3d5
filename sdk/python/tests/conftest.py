"""A server for tests: the program that TIDEGATE_BINARY names, on free ports, with a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("every_call")

_CONFIG = """domain: shop
descriptors:
  - key: tenant
    rate_limit: {unit: minute, requests_per_unit: 100}
  - key: each
    rate_limit: {unit: second, requests_per_unit: 1}
"""
# A start takes some 50 ms; a machine that is busy with other tests may need much longer.
_START = 30.0


class Server:
    """A server that can be killed and started again with the same address and data."""

    def __init__(self, binary: str, folder: Path, settings: dict[str, str]) -> None:
        self._binary = binary
        self._folder = folder
        self._settings = settings
        self._port = "0"
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "config").mkdir(exist_ok=True)
        (folder / "config" / "shop.yaml").write_text(_CONFIG)
        self.start()

    @property
    def address(self) -> str:
        scheme = "https" if "TIDEGATE_TLS_CERT" in self._settings else "http"
        return f"{scheme}://127.0.0.1:{self._port}"

    def start(self) -> None:
        here = dict.fromkeys(("HOST", "GRPC_HOST", "DEBUG_HOST"), "127.0.0.1")
        ports = dict.fromkeys(("PORT", "GRPC_PORT", "DEBUG_PORT"), "0")
        folders = {"RUNTIME_ROOT": str(self._folder), "TIDEGATE_DATA_DIR": str(self._folder / "data")}
        settings = {"TIDEGATE_HTTP_ADDR": f"127.0.0.1:{self._port}", **here, **ports, **folders, **self._settings}
        path = {"PATH": os.environ["PATH"]}
        log_file = self._folder / "output"
        with log_file.open("wb") as output:
            self._process = subprocess.Popen([self._binary], env=path | settings, stdout=output, stderr=output)
        ends = time.monotonic() + _START
        while not (found := re.search(r"^ +API +127\.0\.0\.1:([0-9]+) ", log_file.read_text(), re.MULTILINE)):
            if self._process.poll() is not None or time.monotonic() > ends:
                pytest.fail(f"the server did not start:\n{log_file.read_text()}")
            time.sleep(0.005)
        self._port = found[1]
        limits = re.search(r"^ +HTTP +(127\.0\.0\.1:[0-9]+) ", log_file.read_text(), re.MULTILINE)
        #: Where it answers calls about rate limits.
        self.limits_address = f"http://{limits[1]}" if limits else ""

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def make_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Starts servers, with settings as keywords. They end with the test."""
    binary = os.environ.get("TIDEGATE_BINARY")
    if not binary:
        pytest.fail("set TIDEGATE_BINARY to the path of the server's program")
    servers: list[Server] = []

    def make(**settings: str) -> Server:
        servers.append(Server(binary, tmp_path_factory.mktemp("server"), settings))
        return servers[-1]

    yield make
    for one in servers:
        one.kill()


@pytest.fixture
def server(make_server: Callable[..., Server]) -> str:
    """The address of a server that is started for the test."""
    return make_server().address
