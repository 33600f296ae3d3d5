"""When the jobs of several processes began and ended: a small shared file, whose name is in BOARD."""

import mmap
import os
import struct
import threading
import time

SLOTS = 1024
SLOT = struct.Struct("ddq")


def make(path: str) -> None:
    with open(path, "wb") as file:
        file.write(bytes(SLOTS * SLOT.size))


def sums(path: str) -> tuple[float, float, int]:
    """When the first job began, when the last one ended, and how many there were."""
    with open(path, "rb") as file:
        slots = [slot for slot in SLOT.iter_unpack(file.read()) if slot[2]]
    count = sum(slot[2] for slot in slots)
    return min((slot[0] for slot in slots), default=0), max((slot[1] for slot in slots), default=0), count


class Board:
    """The times of the jobs of this process."""

    def __init__(self) -> None:
        self._lock, self._first, self._count = threading.Lock(), 0.0, 0
        with open(os.environ["BOARD"], "r+b") as file:
            self._shared = mmap.mmap(file.fileno(), SLOTS * SLOT.size)

    def began(self) -> None:
        if not self._first:
            self._first = time.time()

    def ended(self) -> None:
        with self._lock:
            self._count += 1
            SLOT.pack_into(self._shared, os.getpid() % SLOTS * SLOT.size, self._first, time.time(), self._count)
