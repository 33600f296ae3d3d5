"""Jobs: functions that workers run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, cast, overload

from . import _graph, _telemetry  # pyright: ignore[reportPrivateUsage]
from ._options import check
from ._trace import tried
from ._values import decode, encode, hints, resolve
from .errors import DefinitionError, InvalidParam, NonRetryable, TidegateError

if TYPE_CHECKING:
    # It is no dependency: type checkers bring it.
    from typing_extensions import Self, Unpack

    from . import api
    from ._run import Run
    from ._span import Span
    from ._workflows import WorkflowOptions
    from .client import Client

P = ParamSpec("P")
R = TypeVar("R")

Rule = Literal["all_success", "all_done", "any_success", "any_failed", "none_failed"]


class Settings(TypedDict, total=False):
    """What a job is like wherever it runs. Spans are seconds, a ``timedelta``, or text with a unit such as
    ``"1h30m"``."""

    #: The name in definitions and queues; the function's name if left out.
    handler: str
    queue: str
    #: How often it runs again after a failure.
    retries: int
    #: The pause before the first retry; it doubles each time, up to ``backoff_max``.
    backoff: Span
    backoff_max: Span
    #: An attempt that takes longer has failed.
    timeout: Span
    #: 0 to 255, the highest first.
    priority: int
    #: See :func:`tidegate.limit` and :func:`tidegate.concurrency`.
    limits: Iterable[api.LimitDefinition]


class Options(Settings, total=False):
    """What a job is like in one workflow."""

    #: Unique in the workflow; the handler's name, with a number from the second on, if left out.
    name: str
    #: What it runs after, besides the jobs whose outputs it gets: handles or names of jobs.
    after: object
    #: What runs after it.
    before: object
    #: The pause after the jobs before it are done.
    wait: Span
    #: Which outcomes of the jobs before it let it run.
    rule: Rule
    #: For ``enqueue``: enqueueing again with this key returns the first run.
    key: str
    #: Params in place of arguments, for those who build a graph from data.
    params: Mapping[str, Any]


class Base(Generic[P, R]):
    """What jobs have in common. Use :func:`job` to make one."""

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.handler = options.get("handler") or function.__name__
        self._options = options
        functools.update_wrapper(cast("Any", self), function)

    @property
    def queue(self) -> str:
        """The queue that it waits in, unless a workflow says another one."""
        return self._options.get("queue") or "default"

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @functools.cached_property
    def _annotations(self) -> dict[str, Any]:
        return hints(self.function)

    def __repr__(self) -> str:
        return f"<job {self.handler}>"

    def options(self, **options: Unpack[Options]) -> Self:
        """Returns the same job with other options, to be called in a workflow: ``fetch.options(queue="web")(day)``.

        Raises:
            DefinitionError: an option is unknown, or its value is of another kind.
        """
        check(f"job '{self.handler}'", options, Options.__annotations__)
        changed = type(self)(self.function, cast("Options", {**self._options, **options}))
        changed.handler = options.get("handler") or self.handler
        return changed

    def params(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """The arguments of a call by the names of the function's parameters.

        Raises:
            InvalidParam: the function cannot be called with them. It is a TypeError, too.
        """
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidParam(f"job '{self.handler}': {error}") from None
        params: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            if self.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                params.update(value)
            else:
                params[name] = value
        return params

    def _add(self, graph: _graph.Graph, *args: P.args, **kwargs: P.kwargs) -> Any:
        given = self._options.get("params")
        if given is None or args or kwargs:
            params = self.params(*args, **kwargs)
        else:
            params = dict(given)
            self._fit(params, graph.shared)
        return graph.add(self.handler, params, self._options)

    def _fit(self, params: Mapping[str, Any], shared: Iterable[str]) -> None:
        """Params in place of arguments have the names of the function's parameters. ``shared`` comes with globals."""
        parameters = self.signature.parameters
        if all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
            for name in params:
                if name not in parameters:
                    raise InvalidParam(
                        f"job '{self.handler}' has no param '{name}'. It has {', '.join(parameters) or 'none'}"
                    )
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        for name, one in parameters.items():
            needed = one.default is inspect.Parameter.empty and one.kind not in kinds
            if needed and name not in params and name not in shared:
                raise InvalidParam(f"job '{self.handler}': params have no '{name}', which the function needs")

    def step(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Adds the job to the workflow that is being built, and returns its output as a handle. So does a call; for an
        async job in a workflow that is not async, this one has the right type."""
        graph = _graph.building()
        if graph is None:
            raise DefinitionError(
                f"job '{self.handler}': step() is for workflows. Outside of one, call the job itself, or enqueue()"
            )
        return cast("R", self._add(graph, *args, **kwargs))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Creates a workflow of this job alone, and returns its run. It uses the client of :func:`tidegate.connect`.

        Raises:
            InvalidParam: an argument is not JSON.
            ServerUnavailable: no server answers.
        """
        run = self._tried(None, args, kwargs)
        if isinstance(run, TidegateError):
            raise run
        return run

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """The same for async code, which is not held up by it."""
        import asyncio

        run = await asyncio.to_thread(self._tried, None, args, kwargs)
        if isinstance(run, TidegateError):
            raise run
        return run

    def enqueue_with(self, client: Client | None, /, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """The same by another client."""
        run = self._tried(client, args, kwargs)
        if isinstance(run, TidegateError):
            raise run
        return run

    def _tried(self, client: Client | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Run[R] | TidegateError:
        from ._run import start

        def made() -> Run[R]:
            graph = _graph.Graph(self.handler)
            more: WorkflowOptions = {"key": key} if (key := self._options.get("key")) else {}
            alone = self._add(graph, *args, **kwargs)
            return start(graph, alone, self._annotations.get("return", Any), more, client)

        return tried(made)

    def arguments(self, params: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call of the function with ``params`` of a workflow. Params that it has no parameter for,
        such as globals that other jobs need, are left out.

        Raises:
            NonRetryable: a parameter is missing, or does not fit its annotation.
        """
        args: list[Any] = []
        named: dict[str, Any] = {}
        rest = dict(params)
        rest.pop(_telemetry.KEY, None)
        for name, parameter in self.signature.parameters.items():
            kind = parameter.kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                named.update(rest)
                continue
            if name not in rest:
                if parameter.default is inspect.Parameter.empty and kind is not inspect.Parameter.VAR_POSITIONAL:
                    raise NonRetryable(
                        f"job '{self.handler}' needs the param '{name}', which its workflow does not have"
                    )
                continue
            value = rest.pop(name)
            annotation = self._annotations.get(name)
            try:
                if kind is inspect.Parameter.VAR_POSITIONAL:
                    args.extend(decode(value, cast("Any", list)[annotation] if annotation else list, f"param '{name}'"))
                    continue
                if annotation is not None:
                    value = decode(value, annotation, f"param '{name}'")
            except InvalidParam as error:
                raise NonRetryable(f"job '{self.handler}': {error}") from None
            if (
                kind is inspect.Parameter.KEYWORD_ONLY
                or (named and kind is not inspect.Parameter.POSITIONAL_ONLY)
                or kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            ):
                named[name] = value
            else:
                args.append(value)
        return args, named

    def _prepared(self, claimed: api.ClaimedJob) -> tuple[list[Any], dict[str, Any]]:
        params = claimed["params"]
        if not params and not self.signature.parameters:
            return [], {}
        inputs = claimed["inputs"]
        if inputs:
            outputs = {one["job"]: one.get("output") for one in inputs}
            missing = set(claimed["omitted_inputs"])

            def output(name: str) -> Any:
                if name in missing:
                    from .context import current

                    return current().output(name)
                return outputs.get(name)

        else:

            def output(name: str) -> Any:
                return None

        try:
            return self.arguments(resolve(params, output))
        except InvalidParam as error:
            raise NonRetryable(f"job '{self.handler}': {error}") from None

    def _encoded(self, value: Any) -> Any:
        if value is None:
            return None
        try:
            return encode(value, f"the output of job '{self.handler}'")
        except InvalidParam as error:
            raise NonRetryable(str(error)) from None

    def invoke(self, claimed: api.ClaimedJob) -> Any:
        """Runs the function for a claimed job, and returns its output as JSON-able objects.

        Raises:
            NonRetryable: the params do not fit the function, or the output is not JSON.
            Exception: whatever the function raises.
        """
        args, named = self._prepared(claimed)
        return self._encoded(self.function(*args, **named))

    async def ainvoke(self, claimed: api.ClaimedJob) -> Any:
        """The same for an async function."""
        args, named = self._prepared(claimed)
        return self._encoded(await self.function(*args, **named))


class Job(Base[P, R]):
    """A function that workers run. Called as a function it is one; called in a workflow, it becomes a job of it."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        graph = _graph.building()
        if graph is None:
            return cast("R", self.function(*args, **kwargs))
        return cast("R", self._add(graph, *args, **kwargs))


class AsyncJob(Base[P, R]):
    """An async function that workers run."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        graph = _graph.building()
        if graph is None:
            return cast("Coroutine[Any, Any, R]", self.function(*args, **kwargs))
        return cast("Coroutine[Any, Any, R]", self._add(graph, *args, **kwargs))


@overload
def job(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncJob[P, R]: ...  # type: ignore[overload-overlap]  # pyright: ignore
@overload
def job(function: Callable[P, R], /) -> Job[P, R]: ...
@overload
def job(**settings: Unpack[Settings]) -> _Decorator: ...
def job(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Makes a function a job: ``@job`` or ``@job(retries=3, queue="web")``.

    The function can still be called and tested as before. Its arguments and what it returns are JSON, or what its
    annotations make of it: dataclasses, pydantic models, enums, dates and UUIDs.

    Raises:
        DefinitionError: an option is unknown, or the function cannot be a job.
    """
    check("@job", settings, Settings.__annotations__)
    if function is None:
        return functools.partial(_made, settings=settings)
    return _made(function, settings)


if TYPE_CHECKING:
    from typing import Protocol

    class _Decorator(Protocol):
        @overload
        def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncJob[P, R]: ...  # type: ignore[overload-overlap]  # pyright: ignore
        @overload
        def __call__(self, function: Callable[P, R], /) -> Job[P, R]: ...


def _made(function: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    if not callable(function) or isinstance(function, type):
        raise DefinitionError(f"@job is for functions, and {function!r} is none")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(f"@job: {function.__name__} is a generator. A job returns its output: return a list")
    if _is_method(function):
        raise DefinitionError(
            f"@job: {function.__qualname__} is a method, and a worker has no object to call it of. "
            "Use a function outside of the class"
        )
    if function.__name__ == "<lambda>" and "handler" not in settings:
        raise DefinitionError('@job: a lambda has no name to find it by. Use def, or @job(handler="a_name")')
    kind: Any = AsyncJob if inspect.iscoroutinefunction(function) else Job
    made: Base[..., Any] = kind(function, dict(settings))
    _register(made)
    return made


def _is_method(function: Callable[..., Any]) -> bool:
    """Whether it is a function in the body of a class whose first parameter is the object, or the class."""
    holder = function.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters), None)
    return holder != "" and not holder.endswith("<locals>") and first in ("self", "cls")


#: Jobs by the module that made them, so that a module's jobs are found however they are named in it.
made_in: dict[str, list[Base[..., Any]]] = {}


def _register(made: Base[..., Any]) -> None:
    made_in.setdefault(made.function.__module__, []).append(made)
