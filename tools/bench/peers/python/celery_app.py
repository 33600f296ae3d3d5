"""A job that does nothing, for Celery: no results, as its guide for speed says; all else is as it comes."""

import os

from celery import Celery, signals
from board import Board

app = Celery("bench", broker=os.environ["BROKER"])
app.conf.task_ignore_result = True
app.conf.worker_send_task_events = False
board = None


@signals.task_prerun.connect
def began(**_: object) -> None:
    global board
    if board is None:
        board = Board()
    board.began()


@signals.task_postrun.connect
def ended(**_: object) -> None:
    board.ended()


@app.task(name="noop")
def noop() -> None:
    return None
