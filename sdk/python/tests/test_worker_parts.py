"""Parts of the worker alone: the table of leases, figures, notes and what the console writes."""

from __future__ import annotations

import io
import os
import threading
from typing import Any

import pytest

from tidegate.errors import GivenBack, NonRetryable, Retry, Throttled
from tidegate.worker import attempt
from tidegate.worker.attempt_histogram import AttemptHistogram
from tidegate.worker.console import Console, duration
from tidegate.worker.leases import HeldLease, LeaseTable, line
from tidegate.worker.notes import Notes, cut
from tidegate.worker.process import ChildMessage
from tidegate.worker.settings import Settings
from tidegate.worker.supervisor import Drained, Supervisor


def test_leases_are_read_by_another_process() -> None:
    file = LeaseTable.file(4)
    writer, reader = LeaseTable(file, 4), LeaseTable(file, 4)
    os.close(file)
    assert reader.read() == []
    writer.write([line(number, 10.5, f"{number}-0-x") for number in (1, 2, 3)])
    writer.begin(3, 1)
    writer.begin(3, 0)
    writer.begin(3, 2)
    # One has ended and is not reported, one runs, one was not started.
    assert reader.read() == [("1-0-x", 10.5, True, False), ("2-0-x", 10.5, True, True), ("3-0-x", 10.5, False, False)]
    writer.begin(3, 0)
    writer.write([])
    assert reader.read() == []


def test_a_table_is_whole_while_it_is_written() -> None:
    file = LeaseTable.file(16)
    writer, reader = LeaseTable(file, 16), LeaseTable(file, 16)
    os.close(file)
    writer.write([line(0, 0.0, "lease-0")])
    ended = threading.Event()

    def write() -> None:
        for turn in range(2000):
            writer.write([line(turn, 1.0, f"lease-{turn}")] * (turn % 200 + 1))
        ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not ended.is_set():
        held = reader.read()
        assert held
        turn = int(held[0].lease.removeprefix("lease-"))
        assert held == [held[0]] * (turn % 200 + 1)
    thread.join()


def test_a_table_that_is_full_keeps_whole_lines() -> None:
    file = LeaseTable.file(1)
    table = LeaseTable(file, 1)
    os.close(file)
    table.write([line(turn, 1.0, "x" * 60) for turn in range(2000)])
    held = table.read()
    assert 578 <= len(held) < 2000
    assert {one.lease for one in held} == {"x" * 60}


def test_figures_of_processes_are_added() -> None:
    total, one = AttemptHistogram(), AttemptHistogram()
    for milliseconds in range(1, 101):
        one.add("a", "succeeded", milliseconds / 1000)
    one.add("b", "failed", 2.0)
    assert total.merge(one.encode()) == (101, 1)
    assert total.merge(one.encode()) == (101, 1)
    assert (total.count("a"), total.count("b", "failed"), total.count("b", "succeeded")) == (200, 2, 0)
    assert total.percentile("a", 0.5) == pytest.approx(0.05, rel=0.05)
    assert total.percentile("a", 0.99) == pytest.approx(0.099, rel=0.05)
    assert [total.below("a", bound) for bound in (0.001, 0.01, 0.05, 0.1, 1.0)] == [2, 20, 100, 200, 200]
    assert total.seconds["a"] == pytest.approx(2 * 5.05)


def test_notes_are_cut_at_the_bounds_of_the_server() -> None:
    notes = Notes()
    assert notes.add("a", 10, "ü" * 300, [])
    assert not notes.add("a", 20, None, ["line"] * 300)
    assert not notes.add("b", None, None, ["é" * 9000] * 10)
    first, second = notes.pop_all()
    assert first["progress"] == {"percent": 20}
    assert len(first["log"]) == 256
    assert first["log"][-1] == "… 45 more lines in half a second were left out"
    assert sum(len(text.encode()) for text in second["log"]) <= 16 * 1024
    assert second["log"][0].endswith("…")
    assert notes.pop_all() == []


@pytest.mark.parametrize(
    ("text", "most", "expected"), [("abc", 3, "abc"), ("abcdef", 5, "ab…"), ("üüü", 4, "…"), ("üüü", 5, "ü…")]
)
def test_texts_are_cut_between_characters(text: str, most: int, expected: str) -> None:
    assert cut(text, most) == expected
    assert len(cut(text, most).encode()) <= most


@pytest.mark.parametrize(
    ("error", "outcome", "report"),
    [
        (Throttled(1.5), "throttled", b'{"lease":"l","outcome":"throttled","retry_after":"1500ms"}'),
        (GivenBack("2s"), "given_back", b'{"lease":"l","outcome":"given_back","pause":"2s"}'),
        (GivenBack(), "given_back", b'{"lease":"l","outcome":"given_back"}'),
        (
            NonRetryable("no"),
            "failed",
            b'{"lease":"l","outcome":"failed","retry":"never","error":{"kind":"NonRetryable","message":"no"}}',
        ),
        (
            Retry("no", after=60),
            "failed",
            b'{"lease":"l","outcome":"failed","retry_after":"60000ms","error":{"kind":"Retry","message":"no"}}',
        ),
        (ValueError(), "failed", b'{"lease":"l","outcome":"failed","error":{"kind":"ValueError","message":""}}'),
    ],
)
def test_errors_become_reports(error: BaseException, outcome: str, report: bytes) -> None:
    ending = attempt.raised("l", error)
    assert (ending.outcome, ending.report) == (outcome, report)


def test_a_wrong_time_span_fails_the_attempt() -> None:
    ending = attempt.raised("l", Throttled("soon"))
    assert ending.outcome == "failed"
    assert "'soon' is not a time span" in ending.problem


def test_a_trace_has_the_frames_of_the_job_alone_and_is_bounded() -> None:
    def deep(left: int) -> None:
        if not left:
            raise ValueError("x" * 20_000)
        deep(left - 1)

    with pytest.raises(ValueError, match="x") as raised:
        deep(50)
    report = attempt.raised("l", raised.value).report
    assert b"in deep" in report or b"xxxx" in report
    assert len(report) < 40_000


def test_lines_for_people() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, "utf-8")
    console = Console(out=out, colours=False)
    console.jobs([[0.0, "succeeded", "charge", "charge", 0.0123, "01M7Z85C8H08RJZ5Q5JGPKMY04", ""]], 1, 0)
    console.jobs([[0.0, "failed", "mail", "send", 1.5, "01M7Z85C8H08RJZ5Q5JGPKMY04", "Error: \x1b[31mred"]], 1, 1)
    good, bad = raw.getvalue().decode().splitlines()
    assert good[9:].split() == ["✓", "charge", "12.3", "ms", "01M7Z85C8H08"]
    assert bad[9:].split() == ["✗", "mail", "(send)", "1.5", "s", "01M7Z85C8H08", "Error:", "?[31mred"]
    assert "\x1b" not in raw.getvalue().decode()


@pytest.mark.parametrize(
    ("seconds", "shown"), [(12e-6, "12 us"), (0.0123, "12.3 ms"), (0.9996, "1 s"), (75.0, "75 s"), (4000.0, "4,000 s")]
)
def test_durations_are_short(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_a_suspect_that_comes_while_the_worker_stops_is_returned() -> None:
    """Its process reported it before it was notified that the worker stops."""
    settings = Settings(target="app", name="w", server="http://127.0.0.1:1")
    ended: list[HeldLease] = []
    supervisor = Supervisor(settings, Console(out=io.StringIO()))
    supervisor._lease_extender.give_back = lambda held, **_: ended.extend(held)  # type: ignore[method-assign]
    child: Any = None
    supervisor._on_event(Drained())
    supervisor._on_event(ChildMessage(child, {"suspect": {"lease": "1-0-x"}}))
    assert [(one.lease, one.begun) for one in ended] == [("1-0-x", False)]
