"""The process of a server for tests."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from typing import IO, Any

from .errors import TidegateError

_HERE = "127.0.0.1"
#: Free ports of this machine alone, nothing on a disk, and no pause at the end.
_SETTINGS = {
    "TIDEGATE_STORE_URL": "memory",
    "TIDEGATE_TEST_CLOCK": "true",
    "TIDEGATE_HTTP_ADDR": f"{_HERE}:0",
    "TIDEGATE_DRAIN_DELAY": "0s",
    "TIDEGATE_CORES": "1",
    **dict.fromkeys(("HOST", "GRPC_HOST", "DEBUG_HOST"), _HERE),
    **dict.fromkeys(("PORT", "GRPC_PORT", "DEBUG_PORT"), "0"),
}


def find(binary: str | None = None) -> str:
    """The path of the server's program.

    Raises:
        TidegateError: it is not installed.
    """
    if given := binary or os.environ.get("TIDEGATE_BINARY"):
        return given
    try:
        package: Any = importlib.import_module("tidegate_server")
    except ModuleNotFoundError:
        found = shutil.which("tidegate")
    else:
        found = str(package.path())
    if found is None:
        raise TidegateError(
            "there is no server to test with: set TIDEGATE_BINARY to the path of the program tidegate, "
            "or install the wheel tidegate-server (`make wheels` makes it)"
        )
    return found


class Process:
    """A server that runs."""

    def __init__(
        self, process: subprocess.Popen[str], folder: tempfile.TemporaryDirectory[str] | None, log: IO[str]
    ) -> None:
        self._process, self._folder, self._log = process, folder, log
        self._guard = _guard(process.pid)
        self.url = self.limits_url = ""
        # The server must end with the program, even in the middle of a test.
        atexit.register(self.end)

    @classmethod
    def start(cls, binary: str | None, limits: str | pathlib.Path | None, settings: Mapping[str, str]) -> Process:
        """Starts a server, and returns when it answers.

        Raises:
            TidegateError: it does not start, or the limits are wrong.
        """
        program = find(binary)
        # Without what this process has: a server of production may be among its variables.
        variables = {**_SETTINGS, **settings}
        folder = None
        if limits is not None:
            folder = tempfile.TemporaryDirectory(prefix="tidegate-")
            try:
                _write_limits(program, limits, pathlib.Path(folder.name) / "config")
            except BaseException:
                folder.cleanup()
                raise
            variables["RUNTIME_ROOT"] = folder.name
        log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        try:
            process = subprocess.Popen(
                [program], env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        except OSError as error:
            raise TidegateError(_not_started(program, error)) from None
        started = cls(process, folder, log)
        started._await(program)
        return started

    def _await(self, program: str) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.split()
            if words[:1] == ["HTTP"]:
                self.limits_url = f"http://{words[1]}"
            if words[:1] == ["API"]:
                self.url = f"http://{words[1]}"
                return
        self._process.wait()
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip()]
        self.end()
        raise TidegateError(f"{program} did not start: {' '.join(lines)[:1000] or 'it said nothing'}")

    def end(self) -> None:
        """Ends it. Nothing of it stays."""
        atexit.unregister(self.end)
        if self._guard is not None:
            # First: later, the number of the server may be that of another process.
            self._guard.kill()
            self._guard.communicate()
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
        if self._folder is not None:
            self._folder.cleanup()


def _write_limits(program: str, limits: str | pathlib.Path, config: pathlib.Path) -> None:
    """Writes the limits to a folder: a text as a file, a file, or all files of a folder.

    Raises:
        TidegateError: the server would refuse them.
    """
    config.mkdir()
    if isinstance(limits, str):
        (config / "limits.yaml").write_text(limits)
    elif limits.is_dir():
        shutil.copytree(limits, config, dirs_exist_ok=True)
    elif limits.is_file():
        shutil.copy(limits, config)
    else:
        raise TidegateError(f"limits: there is no file or folder {limits}")
    try:
        done = subprocess.run([program, "check", str(config)], env={}, capture_output=True, text=True)
    except OSError as error:
        raise TidegateError(_not_started(program, error)) from None
    if done.returncode:
        output = " ".join(f"{done.stdout} {done.stderr}".replace(f"{config}/", "").split())
        is_name = isinstance(limits, str) and "\n" not in limits
        hint = ". A text is the limits themselves: name a file or folder as a pathlib.Path" if is_name else ""
        raise TidegateError(f"limits: {output[:1000]}{hint}")


def _not_started(program: str, error: OSError) -> str:
    return f"{program} cannot be started: {error.strerror}. TIDEGATE_BINARY names the program tidegate"


def _guard(server: int) -> subprocess.Popen[bytes] | None:
    """Starts a process that ends the server when this one was killed: then its standard input is at its end."""
    with contextlib.suppress(OSError):
        return subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -KILL "$0"', str(server)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C is for the tests, which end the server themselves.
            start_new_session=True,
        )
    return None
