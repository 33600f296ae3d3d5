"""A job that does nothing, for taskiq: a list in Redis, no results."""

import os

from taskiq import TaskiqMessage, TaskiqMiddleware, TaskiqResult
from taskiq_redis import ListQueueBroker
from board import Board


class EventRecorder(TaskiqMiddleware):
    def startup(self) -> None:
        self.board = Board()

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        self.board.began()
        return message

    def post_execute(self, message: TaskiqMessage, result: TaskiqResult) -> None:
        self.board.ended()


broker = ListQueueBroker(os.environ["BROKER"]).with_middlewares(EventRecorder())


@broker.task(task_name="noop")
async def noop() -> None:
    return None
