"""The two threads that call the server: one waits for jobs, the other reports and takes the next jobs along."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from typing import Any, cast

from .._http.call import Lost
from .connection import InterruptibleConnection, Refused
from .notes import Notes
from .work import Held, Work, refused

_WAIT = 20
_TIMEOUT = 30.0
# The server takes 1,000 reports and 8 MiB in a call. Half of that leaves room for notes.
_MAX_REPORTS = 1000
_MAX_BYTES = 4 * 1024 * 1024
# The first pause after a failure, and the longest, in seconds.
_PAUSES = 0.1, 2.0
_LEASE = re.compile("[0-9A-Za-z_.-]{1,100}")
# Milliseconds: more than 300 years.
_MAX_TIMEOUT = 10**13
# Seconds without a job that begins, after which the queue gets all threads: one of the jobs takes longer than was
# thought.
_STUCK = 0.005


class Calls:
    """Claims and reports of a process. `send_to_parent` sends a message to the parent process."""

    def __init__(
        self,
        work: Work,
        notes: Notes,
        poll: InterruptibleConnection,
        report: InterruptibleConnection,
        claim: dict[str, Any],
        uptime: Callable[[], str],
        send_to_parent: Callable[[dict[str, Any]], None],
    ) -> None:
        self._work = work
        self._notes = notes
        self._poll_connection = poll
        self._report_connection = report
        self._claim = json.dumps(claim, ensure_ascii=False, separators=(",", ":"))[:-1].encode()
        self._uptime = uptime
        self._send_to_parent = send_to_parent
        # The state that was sent to the parent last: the status of a refused call, 0 without an answer, `None` if calls
        # succeed.
        self._sent_status: int | None = None
        self._connected = False
        self.notes_due = False

    def poll(self) -> None:
        """The thread that waits for jobs, while there is room for any."""
        work = self._work
        failures = 0
        while True:
            with work.lock:
                while not (limit := work.room_for_poll()):
                    if work.stopping:
                        return
                    work.room.wait()
                work.requested = limit
                work.claims += 1
            answer: dict[str, Any] | None = None
            try:
                # After a failure, the answer comes at once, and says that the server is there again.
                wait = 0 if failures else _WAIT
                body = b'%s,"wait":"%ds"}' % (self._claim_of(limit), wait)
                answer = _checked(self._poll_connection.post("/v1/jobs/claim", body, _WAIT + _TIMEOUT), 0)
            except (Lost, Refused) as error:
                if not work.stopping:
                    self._failed(error)
            with work.lock:
                work.requested = 0
                if work.stopping:
                    work.quiet.notify_all()
                if answer is not None:
                    work.add(answer["jobs"])
                    work.publish()
            if answer is not None:
                failures = 0
                self._answered(answer)
            elif not work.stopping:
                failures += 1
                self._pause(failures)

    def report(self) -> None:
        """The thread that reports what has ended while the other threads run jobs."""
        work = self._work
        while True:
            if work.failures:
                self._pause(work.failures)
            with work.lock:
                while work.calling or not (work.outbox or self.notes_due):
                    if work.ended:
                        return
                    self._wait_for_reports()
                batch, limit = self._gather()
            self._report(batch, limit, by_runner=False)

    def report_here(self) -> None:
        """A thread without a job reports by itself, and runs what comes along: a chain needs no change of threads."""
        work = self._work
        with work.lock:
            if not work.can_report_here():
                return
            batch, limit = self._gather()
        self._report(batch, limit, by_runner=True)

    def _wait_for_reports(self) -> None:
        """With the lock: waits until there may be something to report, and wakes threads when jobs do not move."""
        work = self._work
        if not work.queue or work.calling:
            work.due.wait()
            return
        begun = work.begun
        if not work.due.wait(_STUCK) and work.begun == begun:
            work.dispatch(all_threads=True)
            work.due.wait()

    def _report(self, batch: list[Held], limit: int, *, by_runner: bool) -> None:
        work = self._work
        reported: list[Held] = []
        claimed: list[Any] = []
        try:
            reported, claimed = self._send(batch, limit)
        finally:
            with work.lock:
                work.calling = False
                work.taken(reported)
                left = set(batch).difference(reported)
                # Reports that were not taken go first the next time.
                work.outbox[:0] = [held for held in batch if held in left and held.lost is None]
                work.taken([held for held in left if held.lost is not None])
                work.again += len(left)
                work.failures = work.failures + 1 if left else 0
                work.add(claimed)
                work.publish(by_runner=by_runner)
                work.room.notify()
                if work.outbox or self.notes_due:
                    work.due.notify()

    def _gather(self) -> tuple[list[Held], int]:
        """With the lock: returns the reports to send now, and how many jobs to claim."""
        work = self._work
        size = 0
        count = 0
        for held in work.outbox[:_MAX_REPORTS]:
            size += len(held.ending.report) if held.ending else 0
            if count and size > _MAX_BYTES:
                break
            count += 1
        batch = work.outbox[:count]
        del work.outbox[:count]
        limit = work.room_for_report(count) if batch and not work.outbox else 0
        work.claims += 1 if limit else 0
        self.notes_due = False
        work.calling = True
        return batch, limit

    def _send(self, batch: list[Held], limit: int) -> tuple[list[Held], list[Any]]:
        """Reports; returns which reports are done with, and the jobs that came along."""
        body = b'{"reports":[%s]' % b",".join([held.ending.report for held in batch if held.ending])
        if limit:
            body += b',"claim":%s}' % self._claim_of(limit)
        notes = self._notes.pop_all()
        if notes:
            body += b',"notes":%s' % json.dumps(notes, ensure_ascii=False).encode("utf-8", "replace")
        try:
            answer = _checked(self._report_connection.post("/v1/jobs/report", body + b"}", _TIMEOUT), len(batch))
        except Lost as error:
            self._failed(error)
            return [], []
        except Refused as error:
            return self._refused(batch, error), []
        self._answered(answer)
        done: list[Held] = []
        for held, item in zip(batch, answer["reports"], strict=True):
            status = item["status"]
            if status < 300:
                done.append(held)
            elif status in (404, 409):
                # 404: its workflow was removed, or another store answers for a while. The report may be right.
                held.lost = item["error"].get("reason", "unknown")
                done.append(held)
            elif status < 500:
                self._replace(held, item["error"].get("detail", ""), done)
        return done, answer["jobs"]

    def _refused(self, batch: list[Held], error: Refused) -> list[Held]:
        status = error.problem.status
        if status not in (400, 413, 422):
            self._failed(error)
            return []
        # One of them is wrong, so each goes alone: the others must not be lost with it.
        done: list[Held] = []
        if len(batch) > 1:
            for held in batch:
                done += self._send([held], 0)[0]
        elif batch:
            self._replace(batch[0], error.problem.detail, done)
        return done

    def _replace(self, held: Held, detail: str, done: list[Held]) -> None:
        """This report is not understood, so the attempt has failed. If it refuses that too, it is dropped."""
        ending = refused(held, detail)
        if held.ending is None or held.ending.problem == ending.problem:
            self._send_to_parent({"warning": ending.problem})
            done.append(held)
        else:
            held.ending = ending

    def _claim_of(self, limit: int) -> bytes:
        """Returns a claim of `limit` jobs, without its last brace."""
        return b'%s,"limit":%d,"uptime":"%s"' % (self._claim, limit, self._uptime().encode())

    def _answered(self, answer: dict[str, Any]) -> None:
        if self._sent_status is not None or not self._connected:
            self._connected = True
            self._sent_status = None
            self._send_to_parent({"up": True})
        if answer.get("drain"):
            self._send_to_parent({"drain": True})

    def _failed(self, error: Lost | Refused) -> None:
        status = error.problem.status if isinstance(error, Refused) else 0
        # A changed status is reported, too: a server that was gone may come back with other tokens.
        if self._sent_status != status:
            self._sent_status = status
            self._send_to_parent({"down": str(error), "status": status})

    def _pause(self, failures: int) -> None:
        pause = min(_PAUSES[0] * 2 ** min(failures - 1, 10), _PAUSES[1]) * random.uniform(0.5, 1.0)
        ends = time.monotonic() + pause
        work = self._work
        with work.lock:
            while not work.ended and (left := ends - time.monotonic()) > 0:
                work.quiet.wait(left)


def _is_job(one: Any) -> bool:
    timeout = one["timeout_ms"]
    return (
        _LEASE.fullmatch(one["lease"]) is not None
        and isinstance(one["handler"], str)
        and isinstance(one["job"], str)
        and isinstance(one["queue"], str)
        and isinstance(one["workflow_id"], str)
        and isinstance(one["params"], dict)
        and isinstance(one["inputs"], list)
        and isinstance(one["attempt"], int)
        and (timeout is None or (isinstance(timeout, int) and 0 <= timeout <= _MAX_TIMEOUT))
    )


def _checked(answer: Any, reports: int) -> dict[str, Any]:
    """Returns the answer if it can be one of Tidegate: something between may answer in its place, and no thread must
    end with that."""
    try:
        if (
            all(_is_job(one) for one in answer["jobs"])
            and len(answer.get("reports") or ()) == reports
            and all(one["status"] < 300 or isinstance(one["error"], dict) for one in answer.get("reports") or ())
        ):
            return cast("dict[str, Any]", answer)
    except (LookupError, TypeError, AttributeError):
        pass
    raise Lost("it does not answer like Tidegate (status 200)", sent=True, lasting=True)
