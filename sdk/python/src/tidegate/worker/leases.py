"""The leases that a process holds, in memory that its parent reads.

The parent extends them, so that a job that blocks the interpreter of its process keeps its lease.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Iterable
from typing import NamedTuple

# The longest line: a lease has at most 60 bytes, a number and a time 35.
_LINE = 104
_VERSION = struct.Struct("=Q")
_AREA = struct.Struct("=II")
_SLOT = struct.Struct("=Q")
_TRIES = 100


class HeldLease(NamedTuple):
    """A lease of a process. `due`: when it is first to be extended, on the monotonic clock. `begun`: its job was
    started; `runs`: it has not ended either. One that has ended is held until the server has its report."""

    lease: str
    due: float
    begun: bool
    runs: bool = False


class LeaseTable:
    """One process writes the table, another one reads it, also when the writer was killed while it wrote.

    There are two areas. The writer fills the one that is not shown, and then shows it by the next version. There is
    a slot for each job that can run at a time, with the number of the lease whose job runs there, and before these one
    with the number of the lease whose job was started last. Jobs are started in the order of these numbers.
    """

    def __init__(self, file: int, slots: int) -> None:
        self._slots = slots
        self._area = _size_of_area(slots)
        self._map = mmap.mmap(file, _size(slots))
        self._version = _VERSION.unpack_from(self._map, 0)[0]

    @staticmethod
    def file(slots: int) -> int:
        """Makes an empty table and returns its file, which a child can inherit."""
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("tidegate-leases")
        else:
            with tempfile.TemporaryFile() as made:
                file = os.dup(made.fileno())
        os.ftruncate(file, _size(slots))
        return file

    def write(self, lines: Iterable[bytes]) -> None:
        """Shows these leases, made by `line`, in the place of those before."""
        payload = b"".join(lines)
        if len(payload) > self._area - _AREA.size:
            # More than twice what the process may hold: what is not shown is not extended, and runs elsewhere later.
            payload = payload[: payload.rfind(b"\n", 0, self._area - _AREA.size) + 1]
        version = self._version + 1
        start = self._start(version)
        self._map[start + _AREA.size : start + _AREA.size + len(payload)] = payload
        _AREA.pack_into(self._map, start, len(payload), zlib.crc32(payload))
        _VERSION.pack_into(self._map, 0, version)
        self._version = version

    def begin(self, slot: int, number: int) -> None:
        """The job of the lease with this number runs in this slot; 0 when none does."""
        if number:
            _SLOT.pack_into(self._map, _VERSION.size, number)
        _SLOT.pack_into(self._map, _VERSION.size + (1 + slot) * _SLOT.size, number)

    def read(self) -> list[HeldLease]:
        """Returns the leases that were written last."""
        last, *slots = struct.unpack_from(f"={1 + self._slots}Q", self._map, _VERSION.size)
        running = set(slots)
        for _ in range(_TRIES):
            version = _VERSION.unpack_from(self._map, 0)[0]
            start = self._start(version)
            length, check = _AREA.unpack_from(self._map, start)
            payload = self._map[start + _AREA.size : start + _AREA.size + min(length, self._area)]
            if _VERSION.unpack_from(self._map, 0)[0] == version and zlib.crc32(payload) == check:
                break
        else:
            return []
        held: list[HeldLease] = []
        for line in payload.splitlines():
            # One line that cannot be read must not hide the other leases from their extension.
            with contextlib.suppress(ValueError):
                number, due, lease = line.split(b" ", 2)
                held.append(HeldLease(lease.decode(), float(due), int(number) <= last, int(number) in running))
        return held

    def close(self) -> None:
        self._map.close()

    def _start(self, version: int) -> int:
        return _VERSION.size + (1 + self._slots) * _SLOT.size + (version & 1) * self._area


def line(number: int, due: float, lease: str) -> bytes:
    """Returns a line of the table."""
    return b"%d %.3f %s\n" % (number, due, lease.encode())


def _size_of_area(slots: int) -> int:
    # Twice what a process holds at most: what it has, and what it has reported without an answer yet.
    return _AREA.size + 2 * (slots + 256 + 32) * _LINE


def _size(slots: int) -> int:
    return _VERSION.size + (1 + slots) * _SLOT.size + 2 * _size_of_area(slots)
