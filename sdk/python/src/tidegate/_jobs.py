"""Jobs: functions that workers run."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, cast, overload

from . import _graph, _telemetry  # pyright: ignore[reportPrivateUsage]
from ._decode import decode, hints
from ._options import check
from ._trace import tried
from ._values import encode_output, resolve
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
    """Settings of a job that hold wherever it runs. Spans are seconds, a ``timedelta``, or text with a unit such as
    ``"1h30m"``."""

    #: The name in definitions, by which workers find the function; ``module.function`` if left out.
    handler: str
    queue: str
    #: How often it runs again after a failure.
    retries: int
    #: The pause before the first retry; it doubles each time, up to ``backoff_max``.
    backoff: Span
    backoff_max: Span
    #: An attempt that takes longer has failed.
    timeout: Span
    #: How many leases that end in a row without a report, as of a worker that died, are tried again.
    max_lost: int
    #: 0 to 255, the highest first.
    priority: int
    #: See :func:`tidegate.limit` and :func:`tidegate.concurrency`.
    limits: Iterable[api.LimitDefinition]


class Options(Settings, total=False):
    """Settings of a job in one workflow."""

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


class _ForeignName:
    """The name of an attribute in other packages, which jobs do not have. Its error says what to use."""

    def __init__(self, use: str) -> None:
        self._use = use

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, one: Base[..., Any] | None, owner: type) -> Any:
        called = one.function.__name__ if one is not None else "job"
        raise AttributeError(f"job '{called}' has no attribute '{self._name}': {self._use.format(called)}")


class Base(Generic[P, R]):
    """The base class of sync and async jobs. Use :func:`job` to make one."""

    if not TYPE_CHECKING:
        delay = _ForeignName("use {}.enqueue(..)")
        start = _ForeignName("use {}.enqueue(..)")
        apply_async = _ForeignName("use {0}.enqueue(..), with options {0}.options(..).enqueue(..)")
        s = _ForeignName("call {}(..) in a function with @workflow")
        si = _ForeignName("call {}(..) in a function with @workflow")

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        #: The name for people: that of the function, unless a handler is given.
        self.label: str = options.get("handler") or function.__name__
        self.handler: str = options.get("handler") or f"{_module(function)}.{function.__name__}"
        # An iterator of limits can be read only once.
        self._options: Options = {**options, "limits": list(given)} if (given := options.get("limits")) else options
        functools.update_wrapper(cast("Any", self), function)

    @property
    def queue(self) -> str:
        """The queue that it waits in, unless a workflow says another one."""
        return self._options.get("queue") or "default"

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @functools.cached_property
    def _variadic(self) -> str:
        """The name of the parameter with one star, if it has one."""
        kinds = {one.kind: name for name, one in self.signature.parameters.items()}
        return kinds.get(inspect.Parameter.VAR_POSITIONAL, "")

    @functools.cached_property
    def _takes_more(self) -> bool:
        """Whether a decorator below hands the arguments on, and may add some that callers do not give."""
        if not hasattr(self.function, "__wrapped__") or "__signature__" in vars(self.function):
            return False
        own = inspect.signature(self.function, follow_wrapped=False).parameters.values()
        return any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in own)

    @functools.cached_property
    def _annotations(self) -> dict[str, Any]:
        return hints(self.function)

    @functools.cached_property
    def _unchecked(self) -> dict[str, Any]:
        """The types of params whose values need no check."""
        return {name: one for name, one in self._annotations.items() if one in (str, int, float, bool, dict)}

    def __repr__(self) -> str:
        return f"<job {self.label}>"

    def options(self, **options: Unpack[Options]) -> Self:
        """Returns the same job with other options, to be called in a workflow: ``fetch.options(queue="web")(day)``.

        Raises:
            DefinitionError: an option is unknown, or its value is of another kind.
        """
        check(f"job '{self.label}'", options, Options.__annotations__)
        changed = type(self)(self.function, cast("Options", {**self._options, **options}))
        changed.handler = options.get("handler") or self.handler
        changed.label = options.get("handler") or self.label
        return changed

    def params(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """The arguments of a call by the names of the function's parameters.

        Raises:
            InvalidParam: the function cannot be called with them. It is a TypeError, too.
        """
        bind = self.signature.bind_partial if self._takes_more else self.signature.bind
        try:
            bound = bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidParam(f"job '{self.label}': {error}{self._option_hint(kwargs)}") from None
        params: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            if self.signature.parameters[name].kind is not inspect.Parameter.VAR_KEYWORD:
                params[name] = value
                continue
            for key, one in value.items():
                if key in self.signature.parameters or key == _telemetry.KEY:
                    raise InvalidParam(f"job '{self.label}': '{key}' is the name of another param. Use another one")
                params[key] = one
        return params

    def _option_hint(self, kwargs: Iterable[str]) -> str:
        """Says how options are given, if some are among the arguments and no parameters of the function."""
        options = [name for name in kwargs if name in Options.__annotations__ and name not in self.signature.parameters]
        if not options:
            return ""
        given = ", ".join(f"{name}=.." for name in options)
        return f". An option is given as {self.function.__name__}.options({given}).enqueue(..)"

    def _add(self, graph: _graph.Graph, *args: P.args, **kwargs: P.kwargs) -> Any:
        given = self._options.get("params")
        if given is None or args or kwargs:
            params = self.params(*args, **kwargs)
        else:
            params = dict(given)
            self._fit(params, graph.shared)
        for name, value in params.items():
            # Other values may have handles in them, and are decoded where the job runs.
            if (
                type(value) in (str, int, float, bool)
                and type(value) is not self._unchecked.get(name)
                and not self._takes_more
            ):
                self._decoded(name, value)
        for name in self._limit_params():
            # The server counts by params, and does not know what the function takes without one.
            default = self.signature.parameters[name].default if name in self.signature.parameters else None
            if name not in params and name not in graph.shared and type(default) in (str, int, bool):
                params[name] = default
        return graph.add(self.handler, params, self._options)

    def _limit_params(self) -> list[str]:
        """The params that the values of limits name, as `$.tenant`."""
        entries = [entry for one in self._options.get("limits") or () for entry in one.get("entries") or ()]
        return [value[2:].split(".")[0] for _, value in entries if value.startswith("$.")]

    def _fit(self, params: Mapping[str, Any], shared: Iterable[str]) -> None:
        """Params in place of arguments have the names of the function's parameters. ``shared`` comes with globals."""
        parameters = self.signature.parameters
        if all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
            for name in params:
                if name not in parameters:
                    raise InvalidParam(
                        f"job '{self.label}' has no param '{name}'. It has {', '.join(parameters) or 'none'}"
                    )
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        for name, one in parameters.items():
            needed = one.default is inspect.Parameter.empty and one.kind not in kinds
            if needed and name not in params and name not in shared and not self._takes_more:
                raise InvalidParam(f"job '{self.label}': params have no '{name}', which the function needs")

    def step(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Adds the job to the workflow that is being built, and returns its output as a handle. So does a call; for an
        async job in a workflow that is not async, this one has the right type."""
        graph = _graph.building()
        if graph is None:
            raise DefinitionError(
                f"job '{self.label}': step() is for workflows. Outside of one, call the job itself, or enqueue()"
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
        """Enqueues as :meth:`enqueue` does, without blocking the event loop."""
        import asyncio

        run = await asyncio.to_thread(self._tried, None, args, kwargs)
        if isinstance(run, TidegateError):
            raise run
        return run

    def enqueue_with(self, client: Client | None, /, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Enqueues as :meth:`enqueue` does, by another client."""
        run = self._tried(client, args, kwargs)
        if isinstance(run, TidegateError):
            raise run
        return run

    def _tried(self, client: Client | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Run[R] | TidegateError:
        from ._run import start

        def made() -> Run[R]:
            graph = _graph.Graph(self.label)
            more: WorkflowOptions = {"key": key} if (key := self._options.get("key")) is not None else {}
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
        parameters = self.signature.parameters.items()
        # The values of `*args` come after all other positional ones, so none of those can be left out.
        has_more = bool(self._variadic and rest.get(self._variadic))
        in_place = True
        annotations, unchecked = self._annotations, self._unchecked
        for name, one in parameters:
            if one.kind is one.VAR_KEYWORD:
                named.update({key: self._given(name, value) for key, value in rest.items()})
            elif one.kind is one.VAR_POSITIONAL:
                args.extend(self._given(name, value) for value in rest.pop(name, None) or ())
            elif name in rest:
                value = rest.pop(name)
                if name in annotations and type(value) is not unchecked.get(name):
                    value = self._given(name, value)
                if one.kind is one.KEYWORD_ONLY or (one.kind is one.POSITIONAL_OR_KEYWORD and not in_place):
                    named[name] = value
                else:
                    args.append(value)
            elif one.default is one.empty:
                in_place = in_place and one.kind is one.KEYWORD_ONLY
                if not self._takes_more:
                    raise NonRetryable(f"job '{self.label}' needs the param '{name}', which its workflow does not have")
            elif one.kind is one.POSITIONAL_ONLY or (one.kind is one.POSITIONAL_OR_KEYWORD and has_more):
                args.append(one.default)
            else:
                in_place = in_place and one.kind is one.KEYWORD_ONLY
        return args, named

    def _given(self, name: str, value: Any) -> Any:
        try:
            return self._decoded(name, value)
        except InvalidParam as error:
            raise NonRetryable(str(error)) from None

    def _decoded(self, name: str, value: Any) -> Any:
        """A param as the annotation of its parameter says."""
        annotation = self._annotations.get(name)
        parameter = self.signature.parameters.get(name)
        if annotation is None or (value is None and parameter is not None and parameter.default is None):
            return value
        return decode(value, annotation, f"job '{self.label}', param '{name}'")

    def _prepared(self, claimed: api.ClaimedJob) -> tuple[list[Any], dict[str, Any]]:
        params = claimed["params"]
        if not params and not self.signature.parameters:
            return [], {}
        inputs = {one["job"]: one for one in claimed["inputs"]}
        missing = set(claimed["omitted_inputs"])
        without: list[str] = []

        def output(name: str) -> Any:
            if name in missing:
                from .context import current

                return current().output(name)
            one = inputs.get(name)
            if one is not None and (state := one.get("state") or "succeeded") != "succeeded":
                without.append(f"job '{name}' is {state}")
            return one.get("output") if one is not None else None

        try:
            # The names of params are those of the function, whatever they are.
            return self.arguments({name: resolve(value, output) for name, value in params.items()})
        except InvalidParam as error:
            raise NonRetryable(f"job '{self.label}': {error}") from None
        except NonRetryable as error:
            if not without:
                raise
            why = f"There is no output, since {', '.join(without)}: annotate the param with `| None`"
            raise NonRetryable(f"{error}. {why}") from None

    def _encoded(self, value: Any) -> Any:
        if value is None:
            return None
        try:
            return encode_output(value, f"the output of job '{self.label}'")
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
        """Runs the job as :meth:`invoke` does, for an async function."""
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


def _module(function: Callable[..., Any]) -> str:
    """The module of a function, as a worker imports it: that of a program which runs as a script has another name."""
    name = function.__module__
    if name not in ("__main__", "__mp_main__"):
        return name
    main = sys.modules.get(name)
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    if not file:
        return name
    # Here: the package is quick to import.
    from pathlib import PurePath

    return PurePath(file).stem


def _is_method(function: Callable[..., Any]) -> bool:
    """Whether it is a function in the body of a class whose first parameter is the object, or the class."""
    holder = function.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters), None)
    return holder != "" and not holder.endswith("<locals>") and first in ("self", "cls")


#: Jobs by the module that made them, so that a module's jobs are found however they are named in it.
made_in: dict[str, list[Base[..., Any]]] = {}


def _register(made: Base[..., Any]) -> None:
    made_in.setdefault(made.function.__module__, []).append(made)
