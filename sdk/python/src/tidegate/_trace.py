"""Traces of errors and warnings that are about users' code: their own code is in them, and ours is not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TypeVar

from .errors import TidegateError

E = TypeVar("E", bound=TidegateError)
R = TypeVar("R")

_SDK = os.path.dirname(__file__) + os.sep  # noqa: PTH120


def tried(call: Callable[[], R]) -> R | TidegateError:
    """The result of a call, or the error that it raises. If the caller raises that error, its trace has no other frame
    of this package."""
    try:
        return call()
    except TidegateError as error:
        return short(error)


def short(error: E) -> E:
    """The error, whose trace keeps the frames of other code: where the caller's workflow or job was when it was
    found."""
    frames: list[TracebackType] = []
    frame = error.__traceback__
    while frame is not None:
        if not frame.tb_frame.f_code.co_filename.startswith(_SDK):
            frames.append(frame)
        frame = frame.tb_next
    trace = None
    for one in reversed(frames):
        trace = TracebackType(trace, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return error.with_traceback(trace)


def user_level() -> int:
    """The ``stacklevel`` with which a warning of the function that asks names the latest line of other code."""
    level = 1
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_filename.startswith(_SDK):
        level, frame = level + 1, frame.f_back
    return level
