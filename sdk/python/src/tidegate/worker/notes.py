"""What jobs say while they run: progress and lines for their logs, gathered until the next call."""

from __future__ import annotations

import threading
from typing import Any

# The bounds of the server for one note.
_TEXT = 256
_LINES = 256
_BYTES = 16 * 1024
# A cut line keeps room for the mark.
_MARK = "…"
_NOTES_PER_CALL = 1000


class Notes:
    """Notes of jobs by their leases. Threads use it at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: dict[str, _Note] = {}

    def add(self, lease: str, percent: int | None, text: str | None, lines: list[str]) -> bool:
        """Keeps a note, and returns whether it is the first since the last `pop_all`."""
        with self._lock:
            was_empty = not self._notes
            note = self._notes.get(lease)
            if note is None:
                note = self._notes[lease] = _Note()
            if percent is not None:
                note.progress = {"percent": percent}
                if text:
                    note.progress["text"] = cut(text, _TEXT)
            for line in lines:
                note.add(line)
            return was_empty

    def pop_all(self) -> list[dict[str, Any]]:
        """Removes and returns the notes for the next call, at most 1,000."""
        if not self._notes:
            return []
        with self._lock:
            leases = list(self._notes)[:_NOTES_PER_CALL]
            return [self._notes.pop(lease).encode(lease) for lease in leases]


class _Note:
    __slots__ = ("left_out", "lines", "progress", "size")

    def __init__(self) -> None:
        self.progress: dict[str, Any] | None = None
        self.lines: list[str] = []
        self.size = 0
        self.left_out = 0

    def add(self, line: str) -> None:
        line = cut(line, _BYTES // 4)
        size = len(line.encode())
        # The last line is kept free, and says how many are missing.
        if len(self.lines) >= _LINES - 1 or self.size + size > _BYTES - 100:
            self.left_out += 1
            return
        self.lines.append(line)
        self.size += size

    def encode(self, lease: str) -> dict[str, Any]:
        encoded: dict[str, Any] = {"lease": lease}
        if self.progress is not None:
            encoded["progress"] = self.progress
        if self.left_out:
            self.lines.append(f"{_MARK} {self.left_out} more lines in half a second were left out")
        if self.lines:
            encoded["log"] = self.lines
        return encoded


def cut(text: str, max_bytes: int) -> str:
    """Returns the text in at most `max_bytes` bytes of UTF-8, with a mark where it was cut."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= max_bytes:
        return encoded.decode()
    return encoded[: max_bytes - len(_MARK.encode())].decode("utf-8", "ignore") + _MARK
