"""The jobs of a module, by their handlers: what a worker runs."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Iterable
from typing import Any

from ._jobs import Base, made_in
from ._values import is_mapping
from .errors import DefinitionError


def load(target: str) -> dict[str, Base[..., Any]]:
    """Imports ``module`` or ``module:attribute`` and returns its jobs by handler: of a module those that it defines or
    imports, of an attribute the job or the iterable of jobs that it is.

    Raises:
        DefinitionError: there is no such module or attribute, it has no jobs, or two with the same handler.
    """
    name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise
        raise DefinitionError(
            f"there is no module '{error.name}'. Run this where it can be imported, or install its package"
        ) from None
    if not attribute:
        found: list[Base[..., Any]] = [value for value in vars(module).values() if isinstance(value, Base)]
        return by_handler([*made_in.get(module.__name__, ()), *found], target)
    try:
        value: Any = functools.reduce(getattr, attribute.split("."), module)
    except AttributeError:
        raise DefinitionError(f"module '{name}' has no '{attribute}'") from None
    if inspect.ismodule(value):
        return load(value.__name__)
    if is_mapping(value):
        value = list(value.values())
    several: Iterable[Any] = value if hasattr(value, "__iter__") else ()
    jobs: list[Any] = [value] if isinstance(value, Base) else list(several)
    wrong = [one for one in jobs if not isinstance(one, Base)]
    if wrong:
        raise DefinitionError(f"{target} has {wrong[0]!r}, which is no job. Decorate it with @job")
    return by_handler(jobs, target)


def by_handler(jobs: Iterable[Base[..., Any]], where: str) -> dict[str, Base[..., Any]]:
    """The jobs by their handlers.

    Raises:
        DefinitionError: there are none, or two functions have the same handler.
    """
    found: dict[str, Base[..., Any]] = {}
    for one in jobs:
        other = found.setdefault(one.handler, one)
        if other.function is not one.function:
            raise DefinitionError(
                f"{where} has two jobs with the handler '{one.handler}': {_place(other)} and {_place(one)}. "
                "Give one another: @job(handler=..)"
            )
    if not found:
        raise DefinitionError(f"{where} has no jobs. Decorate functions in it with @job")
    return found


def _place(one: Base[..., Any]) -> str:
    module = sys.modules.get(one.function.__module__)
    return f"{getattr(module, '__name__', one.function.__module__)}.{one.function.__qualname__}"
