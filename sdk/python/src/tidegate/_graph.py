"""The graph of a workflow while it is built."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ._span import span
from ._values import Reference, encode
from .errors import GraphError

if TYPE_CHECKING:
    from . import api
    from ._jobs import Options

_building: ContextVar[Graph | None] = ContextVar("tidegate_graph", default=None)


class Node:
    """A job of a graph that is being built."""

    __slots__ = ("definition", "graph", "name")

    def __init__(self, graph: Graph, name: str, definition: api.JobDefinition) -> None:
        self.graph, self.name, self.definition = graph, name, definition


class Handle(Reference):
    """The output of a job that has not run yet, or a part of it.

    Pass it to another job as a parameter, or name it in ``after``. ``handle["key"]`` and ``handle.field`` are parts of
    it. Its value is known only when the job has run, so nothing else can be done with it.
    """

    __slots__ = ("_node", "_path")

    def __init__(self, node: Node, path: tuple[str | int, ...] = ()) -> None:
        self._node, self._path = node, path

    def as_reference(self) -> dict[str, Any]:
        reference: dict[str, Any] = {"$output": self._node.name}
        if self._path:
            reference["path"] = list(self._path)
        return reference

    @property
    def _job(self) -> Node:
        return self._node

    def __getitem__(self, key: str | int) -> Handle:
        if not isinstance(key, (str, int)):  # pyright: ignore[reportUnnecessaryIsInstance]
            self._refuse(f"looked up by {key!r}")
        return Handle(self._node, (*self._path, key))

    def __getattr__(self, name: str) -> Handle:
        if name.startswith("_"):
            raise AttributeError(name)
        return Handle(self._node, (*self._path, name))

    def __await__(self) -> Generator[Any, Any, Handle]:
        # In an `async def` workflow, `await job(..)` reads like the call it stands for.
        return self
        yield

    def __repr__(self) -> str:
        return f"<output of job {self._node.name!r}{''.join(f'[{step!r}]' for step in self._path)}>"

    def __hash__(self) -> int:
        return id(self)

    def _refuse(self, what: str) -> NoReturn:
        raise GraphError(
            f"the output of job '{self._node.name}' cannot be {what}: it is known only when the job has run. "
            "Do that inside a job, which gets the output as a parameter, and starts a job for each item with "
            "current().spawn(job, item)"
        )

    def __eq__(self, other: object) -> bool:
        return self is other or self._refuse("compared")

    def __bool__(self) -> bool:
        self._refuse("tested in a condition")

    def __iter__(self) -> Iterator[Any]:
        self._refuse("iterated over")

    def __len__(self) -> int:
        self._refuse("counted")

    def __call__(self, *_: Any, **__: Any) -> Any:
        self._refuse("called")

    def __str__(self) -> str:
        self._refuse("made into text")

    def __format__(self, _: str) -> str:
        self._refuse("made into text")

    def _arithmetic(self, *_: Any) -> Any:
        self._refuse("computed with")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _arithmetic
    __floordiv__ = __mod__ = __pow__ = __neg__ = __lt__ = __le__ = __gt__ = __ge__ = __int__ = __float__ = _arithmetic


class Graph:
    """Jobs in the order in which they were added."""

    def __init__(self, name: str, shared: Iterable[str] = ()) -> None:
        self.name = name
        #: The names of the params that every job gets.
        self.shared = frozenset(shared)
        self.nodes: dict[str, Node] = {}
        self._numbers: dict[str, int] = {}

    def add(self, handler: str, params: dict[str, Any], options: Options) -> Handle:
        """Adds a job and returns its output. Handles in ``params`` are jobs that it runs after."""
        name = self._name(options.get("name") or handler.rpartition(".")[2], given="name" in options)
        after: dict[str, None] = {}
        for one in _several(options.get("after")):
            after[self._known(one, "after", name)] = None

        def seen(reference: Reference) -> None:
            after[self._known(reference, "params", name)] = None

        definition: api.JobDefinition = {"name": name, "handler": handler}
        encoded = {key: encode(value, f"job '{name}', param '{key}'", seen) for key, value in params.items()}
        if encoded:
            definition["params"] = encoded
        if after:
            definition["after"] = list(after)
        before = [self._known(one, "before", name) for one in _several(options.get("before"))]
        if before:
            definition["before"] = before
        fill(definition, options)
        node = Node(self, name, definition)
        self.nodes[name] = node
        return Handle(node)

    def jobs(self) -> list[api.JobDefinition]:
        """The definitions of all jobs."""
        if not self.nodes:
            raise GraphError(f"workflow '{self.name}' has no jobs: call at least one job in it")
        return [node.definition for node in self.nodes.values()]

    def _name(self, wanted: str, *, given: bool) -> str:
        if wanted not in self.nodes:
            return wanted
        if given:
            raise GraphError(f"workflow '{self.name}' has two jobs with the name '{wanted}'")
        # fetch, fetch-2, fetch-3: a number for each name makes ten thousand of them linear.
        number = self._numbers.get(wanted, 1)
        while (name := f"{wanted}-{number + 1}") in self.nodes:
            number += 1
        self._numbers[wanted] = number + 1
        return name

    def _known(self, one: object, where: str, name: str) -> str:
        """The name of a job that was named by its handle, its name or, where there is only one of it, the job
        itself."""
        if isinstance(one, Handle):
            node = one._job  # pyright: ignore[reportPrivateUsage]
            if node.graph is not self:
                raise GraphError(f"job '{name}', {where}: job '{node.name}' is one of another workflow")
            return node.name
        if isinstance(one, str):
            # It may be added later, so the server checks it.
            return one
        handler = getattr(one, "handler", None)
        named = [node.name for node in self.nodes.values() if node.definition["handler"] == handler]
        if handler is None or not named:
            raise GraphError(
                f"job '{name}', {where}: {one!r} is no job of this workflow. "
                "Use a handle, a name or a job that was added before"
            )
        if len(named) > 1:
            raise GraphError(
                f"job '{name}', {where}: the workflow has {len(named)} jobs '{handler}'. Use the handle of one"
            )
        return named[0]


def fill(definition: api.JobDefinition, options: Options) -> None:
    """Writes the options of a job into its definition."""
    given, filled = cast("dict[str, Any]", options), cast("dict[str, Any]", definition)
    for key in ("queue", "priority", "retries", "max_lost", "rule"):
        if (value := given.get(key)) is not None:
            filled[key] = value
    for key in ("wait", "backoff", "backoff_max", "timeout"):
        if (value := given.get(key)) is not None:
            filled[key] = span(value)
    if limits := options.get("limits"):
        definition["limits"] = list(limits)


def _several(names: Any) -> Iterable[Any]:
    if names is None:
        return ()
    if isinstance(names, (list, tuple, set, frozenset)):
        return names  # pyright: ignore[reportUnknownVariableType]
    return (names,)


def building() -> Graph | None:
    """The graph that is being built here, if one is."""
    return _building.get()


@contextmanager
def build(graph: Graph | None) -> Generator[None]:
    """Calls of jobs in this context are added to ``graph``; with None they are plain calls."""
    token = _building.set(graph)
    try:
        yield
    finally:
        _building.reset(token)
