"""Workflows: functions, or classes in the manner of Gush, that make graphs of jobs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, ParamSpec, TypedDict, TypeVar, cast, overload

from . import _graph
from ._decode import hints
from ._jobs import Base, Options
from ._options import check
from ._span import span
from ._trace import tried
from ._values import encode
from .errors import DefinitionError, TidegateError

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from . import api
    from ._run import Run
    from ._span import Span
    from .client import Client

P = ParamSpec("P")
R = TypeVar("R")


class WorkflowOptions(TypedDict, total=False):
    """Options of a workflow."""

    #: The name of this kind of workflow; the function's name if left out.
    name: str
    tags: Iterable[str]
    #: Every job gets these params, too; its own win.
    globals: Mapping[str, Any]
    #: ``fail_fast`` cancels what has not ended when a job fails.
    on_failure: Literal["continue", "fail_fast"]
    #: How long it is kept after its end: a span, or ``"forever"``.
    retention: Span
    #: Creating again with this key returns the first workflow.
    key: str
    #: ``manual``: it starts when a call starts it.
    start: Literal["now", "manual"]


def description(graph: _graph.Graph, options: WorkflowOptions) -> api.Definition:
    """The definition of a graph, as ``POST /v1/workflows`` takes it."""
    definition: api.Definition = {"name": graph.name, "jobs": graph.jobs()}
    if tags := options.get("tags"):
        definition["tags"] = list(tags)
    if given := options.get("globals"):
        definition["globals"] = encode(given, f"workflow '{graph.name}', globals")
    if (on_failure := options.get("on_failure")) is not None:
        definition["on_failure"] = on_failure
    if (retention := options.get("retention")) is not None:
        definition["retention"] = "forever" if retention == "forever" else span(retention)
    if (key := options.get("key")) is not None:
        definition["idempotency_key"] = key
    if (start := options.get("start")) is not None:
        definition["start"] = start
    return definition


class Template(Generic[P, R]):
    """A function that makes a graph of jobs. Use :func:`workflow` to make one."""

    def __init__(self, function: Callable[..., Any], options: WorkflowOptions) -> None:
        self.function = function
        self.name = options.get("name") or function.__name__
        #: What was chosen for it.
        self.chosen = options
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function. Outside of a workflow its jobs run here, one after the other, as plain calls; in another
        workflow they become jobs of that."""
        return cast("R", self.function(*args, **kwargs))

    def options(self, **options: Unpack[WorkflowOptions]) -> Self:
        """Returns the same workflow with other options: ``report.options(key="report/monday").start("monday")``.

        Raises:
            DefinitionError: an option is unknown, or its value is of another kind.
        """
        check(f"workflow '{self.name}'", options, WorkflowOptions.__annotations__)
        changed = type(self)(self.function, cast("WorkflowOptions", {**self.chosen, **options}))
        changed.name = options.get("name") or self.name
        return changed

    def build(self, *args: P.args, **kwargs: P.kwargs) -> tuple[_graph.Graph, Any]:
        """The graph that the function makes with these arguments, and what it returns."""
        graph = _graph.Graph(self.name, self.chosen.get("globals") or ())
        with _graph.build(graph):
            result = self.function(*args, **kwargs)
            if inspect.iscoroutine(result):
                result = _finished(result, self.name)
        return graph, result

    def definition(self, *args: P.args, **kwargs: P.kwargs) -> api.Definition:
        """The definition that would be sent to the server."""
        return description(self.build(*args, **kwargs)[0], self.chosen)

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Creates a workflow on the server, and returns its run. It uses the client of :func:`tidegate.connect`.

        Raises:
            GraphError: the function does something that is possible only in a job.
            InvalidParam: a parameter of a job is not JSON.
            ServerUnavailable: no server answers.
        """
        run = self._tried(None, args, kwargs)
        if isinstance(run, TidegateError):
            raise run
        return run

    async def astart(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Starts the workflow as :meth:`start` does, without blocking the event loop."""
        import asyncio

        run = await asyncio.to_thread(self._tried, None, args, kwargs)
        if isinstance(run, TidegateError):
            raise run
        return run

    def start_with(self, client: Client | None, /, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Starts the workflow as :meth:`start` does, by another client."""
        run = self._tried(client, args, kwargs)
        if isinstance(run, TidegateError):
            raise run
        return run

    def _tried(self, client: Client | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Run[R] | TidegateError:
        from ._run import start

        def made() -> Run[R]:
            graph, result = self.build(*args, **kwargs)
            return start(graph, result, hints(self.function).get("return", Any), self.chosen, client)

        return tried(made)


def _finished(coroutine: Coroutine[Any, Any, Any], name: str) -> Any:
    """The result of an async function, which may await only handles."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    except RuntimeError as error:
        if "event loop" not in str(error):
            raise
    coroutine.close()
    raise DefinitionError(
        f"workflow '{name}' waits for something that is no job. Do that in a job, or before the workflow is started"
    )


@overload
def workflow(function: Callable[P, Coroutine[Any, Any, R]], /) -> Template[P, R]: ...  # pyright: ignore
@overload
def workflow(function: Callable[P, R], /) -> Template[P, R]: ...
@overload
def workflow(**options: Unpack[WorkflowOptions]) -> _Decorator: ...
def workflow(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Makes a function a workflow: ``@workflow`` or ``@workflow(tags=["team:data"])``.

    In the function, calls of jobs make jobs of the graph and return handles of their outputs. A job runs after the jobs
    whose handles it gets as parameters. The function returns a handle, or lists, tuples and dicts of handles: what the
    run's ``result()`` is.

    Raises:
        DefinitionError: an option is unknown, or its value is of another kind.
    """
    check("@workflow", options, WorkflowOptions.__annotations__)
    if function is None:
        return functools.partial(_made, options=options)
    return _made(function, options)


def _made(function: Callable[..., Any], options: Mapping[str, Any]) -> Template[..., Any]:
    return Template(function, cast("WorkflowOptions", options))


if TYPE_CHECKING:
    from typing import Protocol

    class _Decorator(Protocol):
        @overload
        def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Template[P, R]: ...  # pyright: ignore
        @overload
        def __call__(self, function: Callable[P, R], /) -> Template[P, R]: ...


class Workflow:
    """A workflow in the manner of Gush: a class whose ``configure`` calls ``self.run`` for each job.

    ::

        class Report(Workflow):
            def configure(self, day: str) -> None:
                rows = self.run(fetch, params={"day": day})
                self.run(send, params={"rows": rows}, queue="mail")

        Report.start("monday")
    """

    #: Options of all workflows of the class.
    options: ClassVar[WorkflowOptions] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check(f"{cls.__name__}.options", cls.options, WorkflowOptions.__annotations__)

    def __init__(self) -> None:
        name, shared = self.options.get("name") or type(self).__name__, self.options.get("globals") or ()
        self._graph = _graph.Graph(name, shared)

    def configure(self, *args: Any, **kwargs: Any) -> None:
        """Describes the graph. A class has its own."""
        raise DefinitionError(f"{type(self).__name__} has no configure(self, ..)")

    def run(self, job: Base[..., Any], **options: Unpack[Options]) -> Any:
        """Adds a job, and returns the handle of its output. ``after`` and ``before`` name jobs by handle, by name, or,
        where there is only one of it, by the job itself."""
        if not isinstance(job, Base):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(f"{type(self).__name__}: {job!r} is no job. Decorate it with @job")
        changed: Any = job.options(**cast("Options", {"params": {}, **options}))
        return changed._add(self._graph)

    @classmethod
    def definition(cls, *args: Any, **kwargs: Any) -> api.Definition:
        """The definition that would be sent to the server."""
        return description(cls._configured(args, kwargs), cls.options)

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> Run[dict[str, Any]]:
        """Creates a workflow on the server with ``configure(*args, **kwargs)``. The result of its run has the outputs
        of all jobs by name."""
        from ._run import start

        def made() -> Run[dict[str, Any]]:
            graph = cls._configured(args, kwargs)
            every = {name: _graph.Handle(node) for name, node in graph.nodes.items()}
            return start(graph, every, dict, cls.options, None)

        run = tried(made)
        if isinstance(run, TidegateError):
            raise run
        return run

    @classmethod
    def _configured(cls, args: Iterable[Any], kwargs: Mapping[str, Any]) -> _graph.Graph:
        one = cls()
        one.configure(*args, **kwargs)
        return one._graph
