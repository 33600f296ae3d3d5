"""Misspelt options and params are refused where they are written, before any call of a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidegate import DefinitionError, InvalidParam, Workflow, current, job, workflow


@job
def fetch(day: str, pages: int = 1) -> list[int]:
    return [pages]


@job
def note(**more: Any) -> None: ...


@workflow
def report(day: str) -> list[int]:
    return fetch(day)


def graph_of(add: Callable[[Workflow], object], **options: Any) -> object:
    kind: Any = type("R", (Workflow,), {"configure": add, "options": options})
    return kind.definition()


# Type checkers find these, too; here they come from code without type checks.
F: Any = fetch
W: Any = workflow
J: Any = job
R: Any = report


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: F.options(retrys=1), "job 'fetch' has no option 'retrys'. It has after, backoff, "),
        (lambda: F.options(wait="soon"), "job 'fetch', wait: 'soon' is not a time span"),
        (lambda: F.options(rule="sometimes"), "job 'fetch', rule: expected one of all_success, all_done, "),
        (lambda: F.options(priority=256), "job 'fetch', priority: expected a whole number from 0 to 255, got 256"),
        (lambda: F.options(params=[1]), "job 'fetch', params: expected a dict, got [1]"),
        (lambda: J(retrys=3), "@job has no option 'retrys'. It has backoff, "),
        (lambda: J(queue=3), "@job, queue: expected a text, got 3"),
        (lambda: J(retries="3"), "@job, retries: expected a whole number from 0 to 65534, got '3'"),
        (lambda: J(limits={"concurrency": 3}), "@job, limits: expected a list such as"),
        (lambda: W(retention="lots"), "@workflow, retention: 'lots' is not a time span"),
        (lambda: W(tags="a"), "@workflow, tags: expected a list of texts, got 'a'"),
        (lambda: R.options(on_failure="stop"), "workflow 'report', on_failure: expected one of continue, fail_fast"),
        (lambda: R.options(retries=3), "workflow 'report' has no option 'retries'. It has globals, "),
        (lambda: type("S", (Workflow,), {"options": {"strat": "now"}}), "S.options has no option 'strat'. It has "),
        (lambda: graph_of(lambda flow: flow.run(F, quue="m")), "job 'fetch' has no option 'quue'. It has after, "),
    ],
)
def test_a_wrong_option_is_refused_with_the_known_ones(write: Callable[[], object], message: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        write()
    assert str(raised.value).startswith(message)


def test_params_in_place_of_arguments_fit_the_function() -> None:
    for params, message in [
        ({"dya": "monday"}, "job 'fetch' has no param 'dya'. It has day, pages"),
        ({"pages": 2}, "job 'fetch': params have no 'day', which the function needs"),
    ]:
        with pytest.raises(InvalidParam) as raised:
            graph_of(lambda flow, params=params: flow.run(fetch, params=params))  # type: ignore[misc]
        assert str(raised.value) == message
    # Globals are params of every job, and **more takes any.
    assert graph_of(lambda flow: flow.run(fetch), globals={"day": "monday"})
    assert graph_of(lambda flow: flow.run(note, params={"any": 1}))
    assert fetch.options(retries=0, queue="web", wait=1.5, priority=255, rule="all_done")
    assert report.options(retention="forever", tags=("a",), start="manual", globals={})


def test_spawn_in_a_plain_call_names_its_needs() -> None:
    with pytest.raises(DefinitionError, match=r"^spawn\(\) needs a job that a worker runs.*tidegate\.testing$"):
        current().spawn(report, "monday")


@pytest.mark.parametrize("percent", [-1, 100.5, 400, float("nan")])
def test_progress_has_a_range(percent: float) -> None:
    with pytest.raises(InvalidParam, match="expected a percentage from 0 to 100"):
        current().progress(percent)
    current().progress(100)
