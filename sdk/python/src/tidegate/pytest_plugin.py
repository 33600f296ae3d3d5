"""The fixture ``tidegate_server`` for pytest: a server for each test that asks for it. See :mod:`tidegate.testing`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import Server


@pytest.fixture
def tidegate_server() -> Iterator[Server]:
    """A server with workflows in memory and a clock of its own."""
    # Tests that do not use it do not wait for the import.
    from .errors import TidegateError
    from .testing import server

    with ExitStack() as stack:
        try:
            one = stack.enter_context(server())
        except TidegateError as error:
            pytest.fail(str(error), pytrace=False)
        yield one
