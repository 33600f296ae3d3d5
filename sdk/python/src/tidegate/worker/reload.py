"""Notices that files of the program have changed."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterable

_EVERY = 0.3


class Reload:
    """One thread, which calls `changed` with the name of a file."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._seen: dict[str, int] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._run, name="tidegate-reload", daemon=True).start()

    def watch(self, files: Iterable[str]) -> None:
        """These files belong to the program, besides those that were watched before."""
        with self._lock:
            for file in files:
                self._seen.setdefault(file, _version(file))

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(_EVERY)
            with self._lock:
                changed = [file for file, seen in self._seen.items() if _version(file) not in (seen, 0)]
                for file in changed:
                    self._seen[file] = _version(file)
            if changed:
                self._changed(changed[0])


def working_folder() -> pathlib.Path | None:
    """Returns the working folder; None when it was removed, as a release that is not the newest."""
    try:
        return pathlib.Path.cwd()
    except OSError:
        return None


def places(target: str) -> list[str]:
    """Returns where a module of the program would be. Also a file that does not exist yet is noticed when it comes."""
    here = working_folder()
    if here is None:
        return []
    path = here / target.partition(":")[0].replace(".", "/")
    return [f"{path}.py", str(path / "__init__.py")]


def _version(file: str) -> int:
    """Returns the time of the last change, 0 while there is no such file: some editors replace files."""
    try:
        return pathlib.Path(file).stat().st_mtime_ns
    except OSError:
        return 0
